#pragma once

#include <algorithm>
#include <cstdint>

#include <voxgrad/core/host_device.h>
#include <voxgrad/core/tensor.h>

namespace vox::detail {

/// Where N operands keep element i.
template <int N>
struct Offsets {
  int64_t at[N] = {};
  VOX_HOST_DEVICE int64_t operator[](int operand) const { return at[operand]; }
};

/// How kernels walk N operands of one shape, each with its own strides: dimensions of size 1 are dropped and
/// neighbours that every operand can walk as one are joined, so that dense operands have rank 1. The order of
/// the elements stays the logical one. Plain numbers, passed to CUDA kernels by value.
template <int N>
struct StridedLayout {
  int64_t numel = 0;
  int rank = 0;                       ///< 0 for a single element
  int64_t sizes[max_rank] = {};       ///< from the innermost dimension outwards
  int64_t strides[N][max_rank] = {};  ///< likewise, in elements

  /// Whether operand k is dense: element i lies at i.
  bool is_dense(int k) const { return rank == 0 || (rank == 1 && strides[k][0] == 1); }
  bool is_dense() const {
    for (int k = 0; k < N; ++k) {
      if (!is_dense(k)) return false;
    }
    return true;
  }

  /// Offsets of element i, 0 <= i < numel.
  VOX_HOST_DEVICE Offsets<N> offsets(int64_t i) const {
    Offsets<N> result;
    for (int d = 0; d < rank; ++d) {
      const int64_t rest = d + 1 < rank ? quotient(i, sizes[d]) : 0;
      const int64_t index = i - rest * sizes[d];
      for (int k = 0; k < N; ++k) result.at[k] += index * strides[k][d];
      i = rest;
    }
    return result;
  }

  /// Walks `count` elements of operand k from element `begin` on: calls f(offset, length, stride) for each
  /// run along the innermost dimension, in order.
  template <class F>
  void for_runs(int k, int64_t begin, int64_t count, F f) const {
    if (rank <= 1) return f(begin * strides[k][0], count, strides[k][0]);
    int64_t index[max_rank];
    int64_t offset = 0;
    for (int d = 0; d < rank; ++d) {
      const int64_t rest = quotient(begin, sizes[d]);
      index[d] = d + 1 < rank ? begin - rest * sizes[d] : begin;
      offset += index[d] * strides[k][d];
      begin = rest;
    }
    while (true) {
      const int64_t length = std::min(count, sizes[0] - index[0]);
      f(offset, length, strides[k][0]);
      count -= length;
      if (count == 0) return;
      offset -= index[0] * strides[k][0];
      index[0] = 0;
      for (int d = 1; d < rank; ++d) {  // carry, as an odometer does
        offset += strides[k][d];
        if (++index[d] < sizes[d] || d + 1 == rank) break;
        offset -= sizes[d] * strides[k][d];
        index[d] = 0;
      }
    }
  }

 private:
  // A division of 32-bit numbers is several times cheaper than one of 64, above all on a GPU.
  static VOX_HOST_DEVICE int64_t quotient(int64_t i, int64_t size) {
    if (((i | size) >> 32) == 0) return static_cast<uint32_t>(i) / static_cast<uint32_t>(size);
    return i / size;
  }
};

/// The layout of operands that all have the shape of the first.
template <class... Rest>
StridedLayout<1 + static_cast<int>(sizeof...(Rest))> strided_layout(const Tensor& first,
                                                                    const Rest&... rest) {
  constexpr int n = 1 + static_cast<int>(sizeof...(Rest));
  const Tensor* operands[n] = {&first, &rest...};
  StridedLayout<n> layout;
  layout.numel = first.numel();
  const Shape& shape = first.shape();
  for (int64_t dim = shape.rank() - 1; dim >= 0; --dim) {
    if (shape[dim] == 1) continue;
    const int last = layout.rank - 1;
    const auto continues_last = [&](int k) {
      return operands[k]->strides()[dim] == layout.strides[k][last] * layout.sizes[last];
    };
    bool join = layout.rank > 0;
    for (int k = 0; k < n && join; ++k) join = continues_last(k);
    if (join) {
      layout.sizes[last] *= shape[dim];
      continue;
    }
    layout.sizes[layout.rank] = shape[dim];
    for (int k = 0; k < n; ++k) layout.strides[k][layout.rank] = operands[k]->strides()[dim];
    ++layout.rank;
  }
  return layout;
}

}  // namespace vox::detail
