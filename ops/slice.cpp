#include <voxgrad/autograd/shared_nodes.h>
#include <voxgrad/ops/kernels.h>
#include <voxgrad/ops/shaping.h>

#include <algorithm>

// Views of a part of a tensor: slice, and select, which consists of it. The gradient is zeros with g at the
// slice's place.

namespace vox {

namespace detail {
namespace {

Tensor slice_alias(const Tensor& x, const SliceRange& r) {
  Shape shape = x.shape(), strides = x.strides();
  const int64_t offset = x.impl()->offset + (r.size > 0 ? r.start * strides[r.dim] : 0);
  shape[r.dim] = r.size;
  strides[r.dim] *= r.step;
  return alias(x, offset, shape, strides);
}

Tensor slice_range(const Tensor& x, SliceRange range) {
  return autograd::linear("slice", {x}, slice_alias(x, range), [range, shape = x.shape()](const Tensor& g) {
    return slice_adjoint(g, shape, range);
  });
}

}  // namespace

Tensor slice_adjoint(const Tensor& g, const Shape& shape, SliceRange range) {
  Tensor y = empty_for("slice", shape, g.options());
  Shape before = Shape::filled(shape.rank(), 0), step = Shape::filled(shape.rank(), 1);
  before[range.dim] = range.start, step[range.dim] = range.step;
  pad_kernel.on(y.device(), "slice")(g, before, step, 0, y);
  return autograd::linear("slice_adjoint", {g}, y,
                          [range](const Tensor& h) { return slice_range(h, range); });
}

}  // namespace detail

Tensor Tensor::slice(Int dim, Int start, std::optional<Int> end, Int step) const {
  checked("slice");
  dim = normalize_dim("slice", dim, rank());
  check<ValueError>(step >= 1, "slice: step must be >= 1, got ", step);
  const int64_t size = shape()[dim];
  const auto clamp = [size](int64_t i) { return std::clamp<int64_t>(i < 0 ? i + size : i, 0, size); };
  start = clamp(start);
  const int64_t length = std::max<int64_t>(clamp(end.value_or(size)) - start, 0);
  const int64_t count = length / step + (length % step != 0);
  return detail::slice_range(*this, {dim, start, count, count > 1 ? int64_t{step} : 1});
}

Tensor Tensor::select(Int dim, Int index) const {
  checked("select");
  dim = normalize_dim("select", dim, rank());
  const int64_t size = shape()[dim];
  check<ShapeError>(index >= -size && index<size, "select: index ", index, " is out of range for dimension ",
                                            dim, " of size ", size, "; allowed are ", size> 0
                        ? str(-size, " to ", size - 1)
                        : "none");
  const int64_t from = index < 0 ? index + size : int64_t{index};
  return slice(dim, from, from + 1).squeeze(dim);
}

Tensor Tensor::operator[](Int index) const { return select(0, index); }
Tensor Tensor::operator[](const Slice& range) const { return slice(0, range.start, range.end, range.step); }

}  // namespace vox
