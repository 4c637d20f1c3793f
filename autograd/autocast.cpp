#include <voxgrad/autograd/autocast.h>
#include <voxgrad/autograd/grad_mode.h>

#include <algorithm>

namespace vox {

namespace {
std::optional<DType> checked(std::optional<DType> dtype) {
  check<DTypeError>(!dtype || is_16_bit(*dtype), "autocast: computes in bf16 or f16, got ",
                    dtype.value_or(f32));
  return dtype;
}
}  // namespace

AutocastGuard::AutocastGuard(std::optional<DType> dtype) : AutocastScope(checked(dtype)) {}

/// The cast of a parameter, made once. A cast made under no_grad() would not lead to the parameter, so it is
/// not kept.
Tensor AutocastGuard::cast(const Tensor& t) {
  if (!grad_enabled() || !t.requires_grad() || !t.is_leaf()) return t.to(dtype());
  const Storage* const storage = t.impl()->storage.get();
  const auto known = std::find_if(casts_.begin(), casts_.end(),
                                  [&](const Cast& c) { return c.parameter.impl() == t.impl(); });
  if (known != casts_.end() && known->storage == storage && known->version == storage->version())
    return known->cast;
  Cast fresh{t, t.to(dtype()), storage, storage->version()};
  const Tensor result = fresh.cast;
  if (known != casts_.end())
    *known = std::move(fresh);
  else
    casts_.push_back(std::move(fresh));
  return result;
}

}  // namespace vox
