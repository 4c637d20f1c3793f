#pragma once

#include <optional>

#include <voxgrad/core/tensor.h>

// How ops see autocast (Note [Autocast] in autocast.h): a dtype that holds for a thread while a scope lives.

namespace vox {

/// Sets the 16-bit dtype of this thread's ops while it lives, or none; then the latest scope that is left
/// counts. Scopes may end in any order, but on their own thread.
class AutocastScope {
 public:
  explicit AutocastScope(std::optional<DType> dtype) : dtype_(dtype), previous_(innermost_) {
    innermost_ = this;
  }
  virtual ~AutocastScope() {
    AutocastScope** scope = &innermost_;
    while (*scope && *scope != this) scope = &(*scope)->previous_;
    if (*scope) *scope = previous_;  // else it belongs to another thread
  }
  AutocastScope(const AutocastScope&) = delete;
  AutocastScope& operator=(const AutocastScope&) = delete;

  /// The innermost scope of this thread that sets a dtype; null if there is none or autocast is off.
  static AutocastScope* current() { return innermost_ && innermost_->dtype_ ? innermost_ : nullptr; }
  DType dtype() const { return *dtype_; }
  virtual Tensor cast(const Tensor& t) { return t.to(*dtype_); }

 private:
  inline static thread_local AutocastScope* innermost_ = nullptr;
  const std::optional<DType> dtype_;
  AutocastScope* previous_;  // the next outer scope of this thread
};

/// The dtype of the innermost scope on this thread; none if there is no scope or it is off.
inline std::optional<DType> autocast_dtype() {
  const AutocastScope* const scope = AutocastScope::current();
  return scope ? std::optional(scope->dtype()) : std::nullopt;
}

namespace detail {

// What ops ask about operands. These may be undefined.

/// The operand of a convolution or product: cast to autocast_dtype() if it is f32 or the other 16-bit dtype.
inline Tensor autocast_operand(const Tensor& t) {
  AutocastScope* const scope = AutocastScope::current();
  if (!scope || !t.defined() || t.dtype() == scope->dtype()) return t;
  return is_floating(t.dtype()) && t.dtype() != f64 ? scope->cast(t) : t;
}
/// Whether an op that computes in f32 under autocast must cast t.
inline bool autocast_widens(const Tensor& t) {
  return AutocastScope::current() && t.defined() && is_16_bit(t.dtype());
}
/// Whether one is f32 and the other 16-bit, under autocast.
inline bool autocast_mixes(const Tensor& a, const Tensor& b) {
  if (!AutocastScope::current() || !a.defined() || !b.defined()) return false;
  return (a.dtype() == f32 && is_16_bit(b.dtype())) || (b.dtype() == f32 && is_16_bit(a.dtype()));
}

}  // namespace detail
}  // namespace vox
