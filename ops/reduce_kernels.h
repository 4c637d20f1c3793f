#pragma once

#include <cstdint>

#include <voxgrad/core/tensor.h>

// The private side of the reductions: what a kernel gets.

namespace vox {

enum class ReduceKind { sum, mean, max, min, argmax, argmin };

/// Elements above which a row is reduced in blocks, each by itself, and then the row of block results.
inline constexpr int64_t reduce_block_size = 1024;

namespace detail {

/// ShapeError, naming `function`, if x has more than 2^53 elements. The results of so many blocks, of up to
/// 16 bytes each, are all that a process can address; only an expanded tensor gets there.
void check_reducible(const char* function, const Tensor& x);

/// A tensor whose last dimensions are to be reduced, as `rows` rows of `length` elements: element r of row o
/// lies at offset(kept, o) + offset(reduced, r). Both lists have at least one dimension; dimensions of size 1
/// are gone, and neighbours that one stride can walk are one dimension. That changes no logical index.
struct RowView {
  Shape kept, kept_strides;
  Shape reduced, reduced_strides;
  int64_t rows = 1, length = 1;
};
RowView rows_of(const Tensor& x, int64_t reduced_dims);

/// Where the element with row-major number `index` lies.
constexpr int64_t offset_of(const Shape& shape, const Shape& strides, int64_t index) {
  int64_t offset = 0;
  for (int64_t i = shape.rank() - 1; i > 0; --i) {
    offset += index % shape[i] * strides[i];
    index /= shape[i];
  }
  return offset + index * strides[0];
}

}  // namespace detail

// Reduces the last `reduced_dims` dimensions of x (any strides) into the dense y, whose elements are those of
// x's other dimensions in row-major order. y's dtype: x's; i64 for arg* and for sums of i64, u8 and bool.
// mean is for floating dtypes; max, min, argmax, argmin never get an empty row.
namespace cpu {
void reduce(ReduceKind kind, const Tensor& x, int64_t reduced_dims, Tensor& y);
}
namespace cuda {
void reduce(ReduceKind kind, const Tensor& x, int64_t reduced_dims, Tensor& y);
}

}  // namespace vox
