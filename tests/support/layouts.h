#pragma once

#include <algorithm>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include <voxgrad/core/factories.h>
#include <voxgrad/core/tensor.h>

// The memory layouts in which kernels are tested. They are built on the host, byte by byte, without any
// kernel under test.

namespace vox::testing {

/// A tensor in some memory layout, and the same elements in dense memory of their own.
struct LaidOut {
  std::string layout;
  Tensor tensor, dense;
  Tensor memory;            ///< all of its memory, as one dimension; unwritten_byte elsewhere
  bool is_writable = true;  ///< whether each element has memory of its own
};

/// What unwritten memory holds in tests: NaN in every floating dtype, 255 in u8, -1 in i64, and no bool.
inline constexpr unsigned char unwritten_byte = 0xff;

/// Calls f(index) for every index of `shape`, in row-major order.
template <class F>
void for_each_place(const Shape& shape, F f) {
  Shape index = Shape::filled(shape.rank(), 0);
  for (int64_t n = checked_numel("tests", shape); n > 0; --n) {
    f(index);
    for (int64_t d = shape.rank() - 1; d >= 0 && ++index[d] == shape[d]; --d) index[d] = 0;
  }
}

inline int64_t place_of(const Shape& index, const Shape& strides) {
  int64_t place = 0;
  for (int64_t d = 0; d < index.rank(); ++d) place += index[d] * strides[d];
  return place;
}

/// `values` with element (i, j, ...) at offset + i * strides[0] + ... of memory of `cells` elements, followed
/// by some unwritten ones. Along a dimension of stride 0 the first element stands for all.
inline LaidOut lay_out(std::string layout, const Tensor& values, int64_t offset, const Shape& strides,
                       int64_t cells) {
  cells += 16;
  const Tensor host = values.to(Device::cpu()).contiguous();
  const Shape& shape = host.shape();
  const auto size = static_cast<size_t>(size_of(host.dtype()));
  const auto bytes_of = [size](int64_t elements) { return static_cast<size_t>(elements) * size; };
  const auto* from = static_cast<const unsigned char*>(host.impl()->data());
  std::vector<unsigned char> memory(bytes_of(cells), unwritten_byte), dense(bytes_of(host.numel()));
  const Shape row_major = contiguous_strides(shape);
  bool repeats = false;
  for_each_place(shape, [&](const Shape& index) {
    Shape first = index;
    for (int64_t d = 0; d < shape.rank(); ++d) {
      if (strides[d] == 0) first[d] = 0;
    }
    repeats = repeats || first != index;
    const unsigned char* element = from + bytes_of(place_of(first, row_major));
    std::memcpy(memory.data() + bytes_of(offset + place_of(first, strides)), element, size);
    std::memcpy(dense.data() + bytes_of(place_of(index, row_major)), element, size);
  });
  const TensorOptions options = values.options();
  Tensor whole = vox::detail::from_host(memory.data(), cells, {cells}, options);
  return {.layout = std::move(layout),
          .tensor = vox::detail::alias(whole, offset, shape, strides),
          .dense = vox::detail::from_host(dense.data(), host.numel(), shape, options),
          .memory = whole,
          .is_writable = !repeats};
}

/// `values` in a dense block of shape `block`: at every `step`-th cell of each dimension, from cell (begin,
/// begin, ...) on.
inline LaidOut lay_out_in_block(std::string layout, const Tensor& values, const Shape& block, int64_t begin,
                                int64_t step) {
  const Shape whole = contiguous_strides(block);
  Shape strides = whole;
  for (int64_t& stride : strides) stride *= step;
  const int64_t offset = place_of(Shape::filled(block.rank(), begin), whole);
  return lay_out(std::move(layout), values, offset, strides, checked_numel("tests", block));
}

/// The dense tensor `values` in every layout, always with its shape. A layout with strides of 0 repeats the
/// first elements of `values` and leaves out the others. `values` may be empty.
inline std::vector<LaidOut> layouts(const Tensor& values) {
  const Shape& shape = values.shape();
  const int64_t rank = shape.rank(), numel = values.numel();
  const Shape dense = contiguous_strides(shape);
  std::vector<LaidOut> list;
  list.push_back(lay_out("contiguous", values, 0, dense, numel));
  list.push_back(lay_out("unaligned", values, 1, dense, numel + 1));
  if (rank == 0) return list;

  Shape doubled = shape, framed = shape;
  for (int64_t d = 0; d < rank; ++d) doubled[d] = 2 * shape[d], framed[d] = shape[d] + 2;
  list.push_back(lay_out_in_block("strided", values, doubled, 0, 2));
  list.push_back(lay_out_in_block("cropped", values, framed, 1, 1));
  for (int64_t d = 0; d + 1 < rank; ++d) {
    Shape swapped = shape;
    std::swap(swapped[d], swapped[rank - 1]);
    Shape strides = contiguous_strides(swapped);
    std::swap(strides[d], strides[rank - 1]);
    list.push_back(lay_out(str("transposed ", d), values, 0, strides, numel));
  }
  Shape reversed = shape;
  std::reverse(reversed.begin(), reversed.end());
  Shape backwards = contiguous_strides(reversed);
  std::reverse(backwards.begin(), backwards.end());
  if (rank > 2) list.push_back(lay_out("reversed", values, 0, backwards, numel));
  const auto expanded = [&](std::string layout, const Shape& kept) {
    Shape strides = contiguous_strides(kept);
    for (int64_t d = 0; d < rank; ++d) {
      if (kept[d] != shape[d]) strides[d] = 0;
    }
    list.push_back(lay_out(std::move(layout), values, 0, strides, checked_numel("tests", kept)));
  };
  for (int64_t d = 0; d < rank; ++d) {
    Shape others = shape, alone = Shape::filled(rank, 1);
    others[d] = 1, alone[d] = shape[d];
    expanded(str("expanded ", d), others);
    if (rank > 2) expanded(str("expanded all but ", d), alone);  // like the gradient of a sum over the others
  }
  expanded("repeated", Shape::filled(rank, 1));
  return list;
}

}  // namespace vox::testing
