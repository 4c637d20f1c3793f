#include <voxgrad/autograd/autocast.h>
#include <voxgrad/autograd/grad_mode.h>

#include <algorithm>

namespace vox {

/// How this thread's ops use the innermost guard.
struct AutocastState {
  static thread_local AutocastGuard* innermost;

  static std::optional<DType> dtype() { return innermost ? innermost->dtype_ : std::nullopt; }

  /// The cast of a parameter, made once. A cast made under no_grad() would not lead to the parameter, so it
  /// is not kept.
  static Tensor cast(const Tensor& t) {
    const DType dtype = *innermost->dtype_;
    if (!grad_enabled() || !t.requires_grad() || !t.is_leaf()) return t.to(dtype);
    const Storage* const storage = t.impl()->storage.get();
    auto& casts = innermost->casts_;
    const auto known = std::find_if(casts.begin(), casts.end(), [&](const AutocastGuard::Cast& c) {
      return c.parameter.impl() == t.impl();
    });
    if (known != casts.end() && known->storage == storage && known->version == storage->version())
      return known->cast;
    AutocastGuard::Cast fresh{t, t.to(dtype), storage, storage->version()};
    const Tensor result = fresh.cast;
    if (known != casts.end())
      *known = std::move(fresh);
    else
      casts.push_back(std::move(fresh));
    return result;
  }
};
thread_local AutocastGuard* AutocastState::innermost = nullptr;

AutocastGuard::AutocastGuard(std::optional<DType> dtype)
    : dtype_(dtype), previous_(AutocastState::innermost) {
  check<DTypeError>(!dtype || is_16_bit(*dtype), "autocast: computes in bf16 or f16, got ",
                    dtype.value_or(f32));
  AutocastState::innermost = this;
}
AutocastGuard::~AutocastGuard() {
  AutocastGuard** guard = &AutocastState::innermost;
  while (*guard && *guard != this) guard = &(*guard)->previous_;
  if (*guard) *guard = previous_;  // else it belongs to another thread
}

std::optional<DType> autocast_dtype() { return AutocastState::dtype(); }

namespace detail {

Tensor autocast_operand(const Tensor& t) {
  const auto dtype = autocast_dtype();
  if (!dtype || !t.defined() || t.dtype() == *dtype || !is_floating(t.dtype()) || t.dtype() == f64) return t;
  return AutocastState::cast(t);
}

bool autocast_widens(const Tensor& t) { return autocast_dtype() && t.defined() && is_16_bit(t.dtype()); }

bool autocast_mixes(const Tensor& a, const Tensor& b) {
  if (!autocast_dtype() || !a.defined() || !b.defined()) return false;
  return (a.dtype() == f32 && is_16_bit(b.dtype())) || (b.dtype() == f32 && is_16_bit(a.dtype()));
}

}  // namespace detail
}  // namespace vox
