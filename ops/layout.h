#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include <voxgrad/core/host_device.h>
#include <voxgrad/core/tensor.h>
#include <voxgrad/ops/element.h>

// Tensors as kernels see them: where their elements are in memory.

namespace vox {

/// Sizes before, of and after dimension `dim` of a dense tensor: its elements as (outer, axis, inner).
struct AxisView {
  int64_t outer = 1, axis = 1, inner = 1;
  AxisView(const Shape& shape, int64_t dim) : axis(shape[dim]) {
    for (int64_t i = 0; i < dim; ++i) outer *= shape[i];
    for (int64_t i = dim + 1; i < shape.rank(); ++i) inner *= shape[i];
  }
};

namespace detail {

// ---- Operands of one shape, each with its own strides ----------------------------------------------------

/// Offsets of one element in N operands.
template <int N>
struct Offsets {
  int64_t at[N] = {};
  VOX_HOST_DEVICE int64_t operator[](int operand) const { return at[operand]; }
};

/// How kernels walk N operands of one shape, each with its own strides. Dimensions of size 1 are dropped, and
/// neighbours that every operand can walk as one are joined, so dense operands have rank 1. The logical order
/// of the elements does not change. Plain numbers, passed to CUDA kernels by value.
template <int N>
struct StridedLayout {
  int64_t numel = 0;
  int rank = 0;                                                ///< 0 for a single element
  int64_t sizes[max_rank] = {};                                ///< from the innermost dimension outwards
  int64_t strides[N][max_rank] = {};                           ///< likewise, in elements
  uint32_t multipliers[max_rank] = {}, shifts[max_rank] = {};  ///< divide by sizes[d], see quotient()

  /// Whether operand k is dense: element i lies at i.
  bool is_dense(int k) const { return rank == 0 || (rank == 1 && strides[k][0] == 1); }
  bool is_dense() const {
    for (int k = 0; k < N; ++k) {
      if (!is_dense(k)) return false;
    }
    return true;
  }

  /// Calls f(d, index) with the index of element i in each dimension d, 0 <= i < numel.
  template <class F>
  VOX_HOST_DEVICE void unravel(int64_t i, F f) const {
    if (rank <= 1)
      f(0, i);
    else if (numel <= most_in_32_bits)
      unravel_as(static_cast<uint32_t>(i), f);
    else
      unravel_as(i, f);
  }

  /// Offsets of element i.
  VOX_HOST_DEVICE Offsets<N> offsets(int64_t i) const {
    Offsets<N> result;
    unravel(i, [&](int d, auto index) {
      for (int k = 0; k < N; ++k) result.at[k] += index * strides[k][d];
    });
    return result;
  }

  /// A coarser layout: along dimension dims[j] it has counts[j] elements, which lie steps[j] elements apart
  /// in this one. The offset of its operand N + j is the index along dims[j], in elements of this layout.
  template <size_t M>
  StridedLayout<N + static_cast<int>(M)> coarser(const int (&dims)[M], const int64_t (&counts)[M],
                                                 const int64_t (&steps)[M]) const {
    StridedLayout<N + static_cast<int>(M)> result;
    result.rank = std::max(rank, 1);
    std::copy_n(sizes, rank, result.sizes);
    for (int k = 0; k < N; ++k) std::copy_n(strides[k], rank, result.strides[k]);
    for (size_t j = 0; j < M; ++j) {
      result.sizes[dims[j]] = counts[j];
      for (int k = 0; k < N; ++k) result.strides[k][dims[j]] *= steps[j];
      result.strides[static_cast<size_t>(N) + j][dims[j]] = steps[j];
    }
    result.numel = 1;
    for (int d = 0; d < result.rank; ++d) result.numel *= result.sizes[d];
    result.prepare_quotients();
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
      const int64_t rest = begin / sizes[d];
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
  template <class I, class F>
  VOX_HOST_DEVICE void unravel_as(I i, F& f) const {
#ifdef __CUDA_ARCH__
#pragma unroll 1  // every elementwise kernel contains this loop
#endif
    for (int d = 0; d < rank; ++d) {
      const I rest = d + 1 < rank ? quotient(i, d) : 0;
      f(d, static_cast<int64_t>(i - rest * static_cast<I>(sizes[d])));
      i = rest;
    }
  }

  // i / sizes[d]. A GPU has no instruction that divides, so 32-bit numbers use a multiplication and a shift
  // (Granlund & Montgomery 1994, "Division by invariant integers using multiplication").
  VOX_HOST_DEVICE int64_t quotient(int64_t i, int d) const { return i / sizes[d]; }
  VOX_HOST_DEVICE uint32_t quotient(uint32_t i, int d) const {
    const auto high = static_cast<uint32_t>(static_cast<uint64_t>(i) * multipliers[d] >> 32);
    return (high + i) >> shifts[d];
  }

  static constexpr int64_t most_in_32_bits = (int64_t{1} << 31) - 1;  // high + i must not overflow

  template <int>
  friend struct StridedLayout;
  template <class... Rest>
  friend StridedLayout<1 + static_cast<int>(sizeof...(Rest))> strided_layout(const Tensor&, const Rest&...);
  void prepare_quotients() {
    if (numel == 0 || numel > most_in_32_bits) return;
    for (int d = 0; d < rank; ++d) {
      const auto size = static_cast<uint64_t>(sizes[d]);
      while (uint64_t{1} << shifts[d] < size) ++shifts[d];
      multipliers[d] = static_cast<uint32_t>(((((uint64_t{1} << shifts[d]) - size) << 32) / size) + 1);
    }
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
  layout.prepare_quotients();
  return layout;
}

/// The layout of the elements of x that belong to one index of `dim`: (outer, inner).
inline StridedLayout<1> slice_layout(const Tensor& x, int64_t dim) {
  Shape shape = x.shape();
  shape[dim] = 1;
  return strided_layout(alias(x, x.impl()->offset, shape, x.strides()));
}

/// The elements of y at before + step * i, for each index i of `shape`.
inline Tensor inside(const Tensor& y, const Shape& before, const Shape& step, const Shape& shape) {
  int64_t offset = y.impl()->offset;
  Shape strides = y.strides();
  for (int64_t d = 0; d < shape.rank(); ++d) {
    if (shape[d] > 0) offset += before[d] * strides[d];
    strides[d] *= step[d];
  }
  return alias(y, offset, shape, strides);
}

// ---- Rows -------------------------------------------------------------------------------------------------

/// A tensor whose last dimensions are to be reduced, as `rows` rows of `length` elements: element r of row o
/// lies at offset(kept, o) + offset(reduced, r). Both lists have at least one dimension. Dimensions of size 1
/// are dropped, and neighbours that one stride can walk are joined. That changes no logical index.
struct RowView {
  Shape kept, kept_strides;
  Shape reduced, reduced_strides;
  int64_t rows = 1, length = 1;
};
RowView rows_of(const Tensor& x, int64_t reduced_dims);

/// The offset of the element with row-major number `index`.
constexpr int64_t offset_of(const Shape& shape, const Shape& strides, int64_t index) {
  int64_t offset = 0;
#ifdef __CUDA_ARCH__
#pragma unroll 1
#endif
  for (int64_t i = shape.rank() - 1; i > 0; --i) {
    const int64_t rest = index / shape[i];
    offset += (index - rest * shape[i]) * strides[i];
    index = rest;
  }
  return offset + index * strides[0];
}

}  // namespace detail
}  // namespace vox
