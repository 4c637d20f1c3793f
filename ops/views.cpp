#include <voxgrad/autograd/shared_nodes.h>
#include <voxgrad/ops/sum.h>

#include <optional>

// A view shares the memory of its input and differs in offset, sizes and strides. The gradient of each:
//
//   view       gradient of its input
//   permute    g, permuted back
//   expand     g, summed over the repeats
//   reshape    g in the input's shape; also of squeeze and unsqueeze
//
// transpose and flatten consist of these; slice.cpp has the views of a part.

namespace vox {

using autograd::linear;

// ---- permute ----------------------------------------------------------------------------------------------

Tensor Tensor::permute(const Shape& dims) const {
  checked("permute");
  check<ShapeError>(dims.rank() == rank(), "permute: needs each of the ", rank(), " dimensions once, got ",
                    dims);
  Shape new_shape = shape(), new_strides = strides(), inverse = Shape::filled(rank(), -1);
  for (int64_t i = 0; i < rank(); ++i) {
    const int64_t from = normalize_dim("permute", dims[i], rank());
    check<ShapeError>(inverse[from] == -1, "permute: dimension ", from, " is named twice in ", dims);
    inverse[from] = i;
    new_shape[i] = shape()[from];
    new_strides[i] = strides()[from];
  }
  return linear("permute", {*this}, detail::alias(*this, impl_->offset, new_shape, new_strides),
                [inverse](const Tensor& g) { return g.permute(inverse); });
}

Tensor Tensor::transpose(Int dim0, Int dim1) const {
  checked("transpose");
  dim0 = normalize_dim_or_0("transpose", dim0, rank());
  dim1 = normalize_dim_or_0("transpose", dim1, rank());
  Shape dims;
  for (int64_t i = 0; i < rank(); ++i)
    dims.push_back(i == dim0 ? int64_t{dim1} : i == dim1 ? int64_t{dim0} : i);
  return permute(dims);
}

// ---- expand -----------------------------------------------------------------------------------------------

Tensor Tensor::expand(const Shape& target) const {
  checked("expand");
  const int64_t added = target.rank() - rank();
  check<ShapeError>(added >= 0, "expand: ", shape(), " has more dimensions than ", target);
  Shape new_shape = target, new_strides = Shape::filled(target.rank(), 0);
  for (int64_t i = added; i < target.rank(); ++i) {
    const int64_t size = shape()[i - added];
    if (new_shape[i] == -1) new_shape[i] = size;
    check<ShapeError>(size == 1 || size == new_shape[i], "expand: ", shape(), " does not expand to ", target,
                      ": size ", size, " is neither 1 nor ", new_shape[i]);
    if (size == new_shape[i]) new_strides[i] = strides()[i - added];
  }
  checked_numel("expand", new_shape);
  const Tensor y = detail::alias(*this, impl_->offset, new_shape, new_strides);
  return linear("expand", {*this}, y, [from = shape()](const Tensor& g) { return sum_to(g, from); });
}

// ---- reshape, squeeze, unsqueeze --------------------------------------------------------------------------
namespace {

Tensor restride(const Tensor& x, const Shape& shape, const Shape& strides) {
  const Tensor y = detail::alias(x, x.impl()->offset, shape, strides);
  return linear("reshape", {x}, y, [from = x.shape()](const Tensor& g) { return g.reshape(from); });
}

/// `target` with its -1, if any, replaced by the size that makes the element counts equal.
Shape infer_size(const Shape& target, const Shape& from, int64_t numel) {
  Shape shape = target;
  int64_t unknown = -1;
  for (int64_t i = 0; i < shape.rank(); ++i) {
    if (shape[i] != -1) continue;
    check<ShapeError>(unknown == -1, "reshape: at most one size may be -1, got ", target);
    unknown = i;
    shape[i] = 1;
  }
  const int64_t known = checked_numel("reshape", shape);
  if (unknown >= 0) {
    check<ShapeError>(known > 0 && numel % known == 0, "reshape: no size for -1 makes ", target, " of the ",
                      numel, " elements of ", from);
    shape[unknown] = numel / known;
  }
  check<ShapeError>(unknown >= 0 || known == numel, "reshape: ", from, " has ", numel, " elements, ", target,
                    " has ", known);
  return shape;
}

/// Strides that show x's elements in `shape` without a copy, if they exist: the new sizes must split runs of
/// x's dimensions that are joined in memory.
std::optional<Shape> strides_for(const Tensor& x, const Shape& shape) {
  if (x.numel() == 0) return contiguous_strides(shape);
  Shape strides = Shape::filled(shape.rank(), 1);
  int64_t out = shape.rank() - 1;
  int64_t run = 1;  // elements of the run of x's dimensions that ends at dimension i
  int64_t step = x.rank() > 0 ? x.strides()[x.rank() - 1] : 1;
  for (int64_t i = x.rank() - 1; i >= 0; --i) {
    run *= x.shape()[i];
    const bool run_ends = i == 0 || (x.shape()[i - 1] != 1 && x.strides()[i - 1] != run * step);
    if (!run_ends) continue;
    int64_t filled = 1;
    while (out >= 0 && (filled < run || shape[out] == 1)) {
      strides[out] = filled * step;
      filled *= shape[out--];
    }
    if (filled != run) return std::nullopt;
    if (i > 0) run = 1, step = x.strides()[i - 1];
  }
  return strides;
}

}  // namespace

Tensor Tensor::reshape(const Shape& target) const {
  checked("reshape");
  const Shape new_shape = infer_size(target, shape(), numel());
  if (const auto new_strides = strides_for(*this, new_shape)) return restride(*this, new_shape, *new_strides);
  return restride(contiguous(), new_shape, contiguous_strides(new_shape));
}

Tensor Tensor::squeeze(Int dim) const {
  checked("squeeze");
  dim = normalize_dim_or_0("squeeze", dim, rank());
  Shape new_shape = shape(), new_strides = strides();
  if (rank() > 0 && new_shape[dim] == 1) new_shape.erase(dim), new_strides.erase(dim);
  return restride(*this, new_shape, new_strides);
}

Tensor Tensor::unsqueeze(Int dim) const {
  checked("unsqueeze");
  dim = normalize_place("unsqueeze", dim, rank(), rank() + 1);
  check<ShapeError>(rank() < max_rank, "unsqueeze: a tensor has at most ", max_rank, " dimensions, got ",
                    shape());
  Shape new_shape = shape(), new_strides = strides();
  new_shape.insert(dim, 1);
  new_strides.insert(dim, dim < rank() ? shape()[dim] * strides()[dim] : 1);
  return restride(*this, new_shape, new_strides);
}

}  // namespace vox
