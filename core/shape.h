#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <initializer_list>
#include <iterator>
#include <limits>
#include <ostream>
#include <vector>

#include <voxgrad/core/arguments.h>
#include <voxgrad/core/check.h>

namespace vox {

/// The largest number of dimensions a tensor may have. Fixed, so that a shape is a plain value that kernels
/// take as an argument and that costs no allocation.
inline constexpr int64_t max_rank = 8;

/// Sizes, strides or dimensions of a tensor: a short list of int64_t, kept inside the object. One integer
/// stands for a list of one: `sum(x, 2)`.
class Shape {
 public:
  constexpr Shape() = default;
  constexpr Shape(std::initializer_list<int64_t> sizes) : Shape(sizes.begin(), sizes.end()) {}
  constexpr Shape(detail::Integer auto size) { push_back(static_cast<int64_t>(size)); }
  template <detail::Integer I>
  Shape(const std::vector<I>& sizes) : Shape(sizes.begin(), sizes.end()) {}
  template <std::input_iterator It>
  constexpr Shape(It first, It last) {
    for (; first != last; ++first) push_back(static_cast<int64_t>(*first));
  }
  template <detail::Integer Rank, detail::Integer Value>
  Shape(Rank, Value) {
    static_assert(sizeof(Rank) == 0, "Shape{2, 3} lists sizes, Shape::filled(2, 3) is (3, 3)");
  }
  /// `rank` times `value`.
  static constexpr Shape filled(int64_t rank, int64_t value) {
    Shape s;
    for (int64_t i = 0; i < rank; ++i) s.push_back(value);
    return s;
  }

  constexpr int64_t rank() const { return rank_; }
  constexpr bool empty() const { return rank_ == 0; }
  /// Unchecked, i in [0, rank). Tensor::size(dim) is checked and counts from the end as well.
  constexpr int64_t operator[](int64_t i) const { return sizes_[static_cast<size_t>(i)]; }
  constexpr int64_t& operator[](int64_t i) { return sizes_[static_cast<size_t>(i)]; }
  constexpr const int64_t* begin() const { return sizes_.data(); }
  constexpr const int64_t* end() const { return sizes_.data() + rank_; }
  constexpr int64_t* begin() { return sizes_.data(); }
  constexpr int64_t* end() { return sizes_.data() + rank_; }
  constexpr int64_t back() const {
    check_place(0, rank_);
    return (*this)[rank_ - 1];
  }

  constexpr void push_back(int64_t size) {
    if (rank_ == max_rank) throw ShapeError("Shape: a tensor has at most 8 dimensions");
    sizes_[static_cast<size_t>(rank_++)] = size;
  }
  /// Removes the entry at i, in [0, rank).
  constexpr void erase(int64_t i) {
    check_place(i, rank_);
    std::copy(begin() + i + 1, end(), begin() + i);
    sizes_[static_cast<size_t>(--rank_)] = 0;
  }
  /// Inserts an entry before the one at i, in [0, rank].
  constexpr void insert(int64_t i, int64_t size) {
    check_place(i, rank_ + 1);
    push_back(size);
    std::rotate(begin() + i, end() - 1, end());
  }

  friend constexpr bool operator==(const Shape& a, const Shape& b) {
    return std::equal(a.begin(), a.end(), b.begin(), b.end());
  }

 private:
  static constexpr void check_place(int64_t i, int64_t places) {
    if (i < 0 || i >= places) throw ShapeError("Shape: there is no entry at this place");
  }
  std::array<int64_t, max_rank> sizes_{};
  int64_t rank_ = 0;
};

inline std::ostream& operator<<(std::ostream& out, const Shape& shape) {
  out << '(';
  for (int64_t i = 0; i < shape.rank(); ++i) out << (i ? "," : "") << shape[i];
  return out << (shape.rank() == 1 ? ",)" : ")");
}

/// a * b, or a ShapeError naming `function` if the product does not fit 64 bits.
inline int64_t checked_mul(const char* function, int64_t a, int64_t b) {
  int64_t product;
  check<ShapeError>(!__builtin_mul_overflow(a, b, &product), function, ": ", a, " * ", b,
                    " overflows 64 bits");
  return product;
}

/// a + b, checked likewise.
inline int64_t checked_add(const char* function, int64_t a, int64_t b) {
  int64_t sum;
  check<ShapeError>(!__builtin_add_overflow(a, b, &sum), function, ": ", a, " + ", b, " overflows 64 bits");
  return sum;
}

/// Whether 64 bits can count the bytes of `shape` (sizes >= 0), even with its sizes of 0 replaced by 1.
inline bool is_countable(const Shape& shape, int64_t bytes_of_element) {
  int64_t product = bytes_of_element;
  for (int64_t size : shape) {
    if (size != 0 && __builtin_mul_overflow(product, size, &product)) return false;
  }
  return true;
}

/// Number of elements: the product of the sizes (1 for rank 0). Throws for negative sizes and for products
/// that overflow, even if another size is 0.
inline int64_t checked_numel(const char* function, const Shape& shape) {
  for (int64_t size : shape) check<ShapeError>(size >= 0, function, ": a size must be >= 0, got ", shape);
  check<ShapeError>(is_countable(shape, 1), function, ": a tensor has at most 2^63 - 1 elements, got shape ",
                    shape);
  int64_t numel = 1;
  for (int64_t size : shape) numel *= size;
  return numel;
}

/// Strides (in elements) of a dense tensor in row-major order.
inline Shape contiguous_strides(const Shape& shape) {
  Shape strides = shape;
  int64_t step = 1;
  for (int64_t i = shape.rank() - 1; i >= 0; --i) {
    strides[i] = step;
    step *= std::max<int64_t>(shape[i], 1);
  }
  return strides;
}

/// Turns a dimension in [-places, places-1] into one in [0, places-1]. `places` is the rank, or another
/// number for an op whose `dim` does not count the dimensions of its operand: one more if the op adds a
/// dimension.
inline int64_t normalize_place(const char* function, int64_t dim, int64_t rank, int64_t places) {
  check<ShapeError>(dim >= -places && dim < places, function, ": dim ", dim, " is out of range for rank ",
                    rank, "; allowed are ", -places, " to ", places - 1);
  return dim < 0 ? dim + places : dim;
}
/// The same for a dimension of the operand.
inline int64_t normalize_dim(const char* function, int64_t dim, int64_t rank) {
  check<ShapeError>(rank > 0, function, ": dim ", dim,
                    " is out of range for rank 0; a tensor of rank 0 has no dimensions");
  return normalize_place(function, dim, rank, rank);
}
/// The same for ops that accept the dims 0 and -1 of a tensor of rank 0, as PyTorch does: those that reduce
/// or reorder dimensions.
inline int64_t normalize_dim_or_0(const char* function, int64_t dim, int64_t rank) {
  return normalize_place(function, dim, rank, std::max<int64_t>(rank, 1));
}

/// The shape both operands broadcast to, aligned at the last dimension (NumPy's rule).
inline Shape broadcast_shapes(const char* function, const Shape& a, const Shape& b) {
  const Shape& longer = a.rank() >= b.rank() ? a : b;
  const Shape& shorter = a.rank() >= b.rank() ? b : a;
  Shape out = longer;
  for (int64_t i = 1; i <= shorter.rank(); ++i) {
    int64_t& size = out[out.rank() - i];
    const int64_t other = shorter[shorter.rank() - i];
    check<ShapeError>(size == other || size == 1 || other == 1, function, ": shapes ", a, " and ", b,
                      " do not broadcast: sizes ", size, " and ", other, " differ and neither is 1");
    if (size == 1) size = other;
  }
  return out;
}

}  // namespace vox
