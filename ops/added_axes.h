#pragma once

#include <voxgrad/core/tensor.h>
#include <voxgrad/ops/triple.h>

// Ops over one or two dimensions are ops over three, with one cell on the added axes.

namespace vox::detail {

inline Triple lift(int64_t w, int64_t added) { return {added, added, w}; }
inline Triple lift(const Pair& size, int64_t added) { return {added, size.h, size.w}; }

template <class Size>
OptionalTriple lift(const std::optional<Size>& size, int64_t added) {
  return size ? OptionalTriple(lift(*size, added)) : OptionalTriple();
}

/// x, whose last dimensions are `axes` axes, with the missing axes before them; only views.
inline Tensor with_added_axes(Tensor x, int64_t axes) {
  for (int64_t i = axes; i < 3; ++i) x = x.unsqueeze(-axes - 1);
  return x;
}
inline Tensor without_added_axes(Tensor x, int64_t axes) {
  for (int64_t i = axes; i < 3; ++i) x = x.squeeze(-axes - 1);
  return x;
}

}  // namespace vox::detail
