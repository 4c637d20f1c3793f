#include <voxgrad/autograd/shared_nodes.h>
#include <voxgrad/core/factories.h>
#include <voxgrad/ops/dispatch.h>
#include <voxgrad/ops/elementwise.h>
#include <voxgrad/ops/indexing.h>
#include <voxgrad/ops/layer_kernels.h>
#include <voxgrad/ops/reduce.h>
#include <voxgrad/ops/shaping.h>
#include <voxgrad/ops/sort.h>

#include <algorithm>
#include <utility>
#include <vector>

// Indexing consists of two recorded maps, linear for a fixed index, each the gradient of the other:
//
//   gathered    y[.., k, ..] = x[.., index, ..]
//   scattered   x[.., index, ..] = the sum of y[.., k, ..], and 0 elsewhere
//
// `index` has y's shape, or one dimension: then it names whole slices.

namespace vox {

namespace {

constexpr ByDevice check_kernel{"gather", &cpu::check_indices, VOX_CUDA(&cuda::check_indices)};
constexpr ByDevice gather_kernel{"gather", &cpu::gather, VOX_CUDA(&cuda::gather)};
constexpr ByDevice scatter_kernel{"scatter", &cpu::scatter, VOX_CUDA(&cuda::scatter)};

Tensor gathered(const char* function, const Tensor& x, int64_t dim, const Tensor& index);
Tensor scattered(const char* function, const Tensor& y, const Shape& shape, int64_t dim, const Tensor& index);

/// `shape` with x's size along dim.
Shape with_size_of(const Tensor& x, int64_t dim, Shape shape) {
  shape[dim] = x.shape()[dim];
  return shape;
}

/// The elements of x that an index of this shape can name, off the tape.
Tensor corner(const Tensor& x, int64_t dim, const Shape& index_shape) {
  return detail::alias(x, x.impl()->offset, with_size_of(x, dim, index_shape), x.strides());
}

/// The shape of x[index].
Shape gathered_shape(const Tensor& x, int64_t dim, const Tensor& index) {
  Shape shape = x.shape();
  shape[dim] = index.numel();
  return index.rank() == 1 ? shape : index.shape();
}

Tensor gather_into(const char* function, Tensor y, const Tensor& x, int64_t dim, const Tensor& index) {
  Tensor from = corner(x, dim, y.shape());
  // The kernel reads a dense copy faster. The copy pays if it is no larger than the result.
  if (from.numel() <= y.numel()) from = in_the_name_of(function, [&] { return from.contiguous(); });
  if (y.numel() > 0) gather_kernel.on(y.device(), function)(from, dim, index.contiguous(), y);
  return autograd::linear_keeping(index, function, {x}, y,
                                  [function, dim, shape = x.shape()](const Tensor& g, const Tensor& kept) {
                                    return scattered(function, g, shape, dim, kept);
                                  });
}

Tensor gathered(const char* function, const Tensor& x, int64_t dim, const Tensor& index) {
  const Shape shape = gathered_shape(x, dim, index);
  return gather_into(function, detail::empty_for(function, shape, x.options()), x, dim, index);
}

Tensor scattered(const char* function, const Tensor& y, const Shape& shape, int64_t dim,
                 const Tensor& index) {
  return in_the_name_of(function, [&] {
    const DType sums = is_floating(y.dtype()) ? opmath(y.dtype()) : i64;  // 16-bit sums are rounded once
    const Tensor sum = zeros(shape, {sums, y.device()});
    Tensor target = corner(sum, dim, y.shape());
    if (y.numel() > 0 && target.numel() > 0)
      scatter_kernel.on(y.device())(y.detach().to(sums).contiguous(), dim, index.contiguous(), target);
    return autograd::linear_keeping(
        index, function, {y}, sum.to(y.dtype()),
        [function, dim](const Tensor& g, const Tensor& kept) { return gathered(function, g, dim, kept); });
  });
}

/// For each element of a tensor of this shape, the last k along `dim` at which `index` names it, or -1.
Tensor last_index(const Shape& shape, int64_t dim, const Tensor& index) {
  const Tensor last = full(shape, -1, index.options());
  Tensor target = corner(last, dim, index.shape());
  if (index.numel() > 0 && target.numel() > 0)
    scatter_kernel.on(index.device())(Tensor(), dim, index.contiguous(), target);
  return last;
}

// ---- Checks -----------------------------------------------------------------------------------------------

void check_index(const char* function, const char* name, const Tensor& x, const Tensor& index) {
  detail::check_defined(function, name, index);
  check<DTypeError>(index.dtype() == i64, function, ": ", name, " must have dtype i64, got ", index.dtype());
  detail::check_same_device(function, x, index);
}

void check_indices(const char* function, const char* name, const Tensor& index, int64_t size) {
  if (index.numel() > 0) check_kernel.on(index.device(), function)(function, name, index, size);
}

/// Whether the sizes of `part` are at most those of `whole`, except along `except`.
bool fits(const Shape& part, const Shape& whole, int64_t except) {
  for (int64_t d = 0; d < part.rank(); ++d)
    if (d != except && part[d] > whole[d]) return false;
  return true;
}

/// The operands of gather and scatter, of which those of rank 0 have become rows; dim is not below 0.
struct Operands {
  Tensor x, index;
  int64_t dim;

  Operands(const char* function, const Tensor& given, int64_t given_dim, const Tensor& given_index) {
    detail::check_defined(function, "x", given);
    check_index(function, "index", given, given_index);
    x = as_row(given), index = as_row(given_index);
    dim = normalize_dim(function, given_dim, x.rank());
    check<ShapeError>(index.rank() == x.rank() && fits(index.shape(), x.shape(), dim), function,
                      ": index must have x's rank, and at most x's sizes except along dim ", dim, ", got ",
                      given_index.shape(), " for x of shape ", given.shape());
    check_indices(function, "index", index, x.shape()[dim]);
  }
  static Tensor as_row(const Tensor& t) { return t.rank() == 0 ? t.reshape({1}) : t; }

  /// What scatter writes: src, cut to the shape of the index.
  Tensor source(const char* function, const Tensor& src) const {
    detail::check_defined(function, "src", src);
    detail::check_same_dtype(function, x, src);
    detail::check_same_device(function, x, src);
    Tensor part = as_row(src);
    check<ShapeError>(part.rank() == x.rank() && fits(index.shape(), part.shape(), -1), function,
                      ": src must have x's rank and at least the sizes of index, got ", src.shape(),
                      " for an index of shape ", index.shape());
    for (int64_t d = 0; d < part.rank(); ++d) part = part.slice(d, 0, index.shape()[d]);
    return part;
  }
};

/// y, or its element if `like` has rank 0.
Tensor as_rank_of(const Tensor& like, const Tensor& y) { return like.rank() == 0 ? y.reshape({}) : y; }

}  // namespace

// ---- Slices -----------------------------------------------------------------------------------------------

Tensor detail::index_select(const Tensor& x, int64_t dim, const Tensor& indices) {
  return gathered("index_select", x, dim, indices);
}

Tensor index_select(const Tensor& x, Int dim, const Tensor& indices) {
  detail::check_defined("index_select", "x", x);
  dim = normalize_dim("index_select", dim, x.rank());
  check_index("index_select", "indices", x, indices);
  check<ShapeError>(indices.rank() == 1, "index_select: indices must have one dimension, got shape ",
                    indices.shape());
  // The result's memory is asked for before all indices are read.
  Tensor y = detail::empty_for("index_select", gathered_shape(x, dim, indices), x.options());
  check_indices("index_select", "indices", indices, x.shape()[dim]);
  return gather_into("index_select", std::move(y), x, dim, indices);
}

Tensor embedding(const Tensor& indices, const Tensor& weight, std::optional<Int> padding_idx) {
  detail::check_defined("embedding", "weight", weight);
  detail::check_floating("embedding", "weight", weight);
  check<ShapeError>(weight.rank() == 2, "embedding: weight must be (rows, features), got shape ",
                    weight.shape());
  check_index("embedding", "indices", weight, indices);
  const int64_t rows = weight.shape()[0];
  check<ValueError>(!padding_idx || (*padding_idx >= -rows && *padding_idx < rows),
                    "embedding: padding_idx must be from ", -rows, " to ", rows - 1, ", got ",
                    padding_idx ? int64_t{*padding_idx} : 0);
  check_indices("embedding", "indices", indices, rows);
  return in_the_name_of("embedding", [&] {
    Shape shape = indices.shape();
    shape.push_back(weight.shape()[1]);
    Tensor y = gathered("embedding", weight, 0, indices.reshape({indices.numel()})).reshape(shape);
    if (!padding_idx) return y;
    const int64_t padding = *padding_idx < 0 ? *padding_idx + rows : int64_t{*padding_idx};
    return where(eq(indices, padding).unsqueeze(-1), y.detach(), y);
  });
}

// ---- Elements ---------------------------------------------------------------------------------------------

Tensor detail::gather(const Tensor& x, int64_t dim, const Tensor& index) {
  const Tensor row = Operands::as_row(x);
  return as_rank_of(
      index, gathered("gather", row, normalize_dim("gather", dim, row.rank()), Operands::as_row(index)));
}

Tensor gather(const Tensor& x, Int dim, const Tensor& index) {
  const Operands o("gather", x, dim, index);
  return as_rank_of(index, gathered("gather", o.x, o.dim, o.index));
}

Tensor scatter(const Tensor& x, Int dim, const Tensor& index, const Tensor& src) {
  const Operands o("scatter", x, dim, index);
  Tensor from = o.source("scatter", src);
  return in_the_name_of("scatter", [&] {
    if (index.numel() == 0) return is_floating(x.dtype()) ? scatter_add(x, dim, index, src) : x.clone();
    const Tensor last = last_index(o.x.shape(), o.dim, o.index);
    // The source of every element of x. Those that no index names read place 0, or padding.
    std::vector<int64_t> padding;
    for (int64_t d = o.x.rank() - 1; d >= 0; --d)
      padding.insert(padding.end(), {0, d == o.dim ? 0 : o.x.shape()[d] - o.index.shape()[d]});
    if (with_size_of(o.x, o.dim, o.index.shape()) != o.x.shape()) from = pad(from, padding);
    return as_rank_of(x, where(ge(last, 0), gathered("scatter", from, o.dim, maximum(last, 0)), o.x));
  });
}

Tensor scatter(const Tensor& x, Int dim, const Tensor& index, Scalar value) {
  detail::check_defined("scatter", "x", x);
  detail::check_defined("scatter", "index", index);
  return in_the_name_of("scatter", [&] {
    const Tensor number = full(Shape::filled(index.rank(), 1), value, x.options());
    return scatter(x, dim, index, number.expand(index.shape()));
  });
}

Tensor scatter_add(const Tensor& x, Int dim, const Tensor& index, const Tensor& src) {
  const Operands o("scatter_add", x, dim, index);
  const Tensor from = o.source("scatter_add", src);
  return in_the_name_of("scatter_add", [&] {
    const DType wide = opmath(x.dtype());
    const Tensor sums = scattered("scatter_add", from.to(wide), o.x.shape(), o.dim, o.index);
    return as_rank_of(x, (o.x.to(wide) + sums).to(x.dtype()));
  });
}

Tensor nonzero(const Tensor& x) {
  detail::check_defined("nonzero", "x", x);
  return in_the_name_of("nonzero", [&] {
    const Tensor is_nonzero = ne(x.detach(), 0).reshape({x.numel()});
    const int64_t count = sum(is_nonzero).item<int64_t>();
    if (x.rank() == 0) return zeros({count, 0}, {i64, x.device()});
    Tensor place = argsort(is_nonzero, 0, true).slice(0, 0, count);  // in row-major order
    std::vector<Tensor> columns(static_cast<size_t>(x.rank()));
    for (int64_t d = x.rank() - 1; d >= 0; --d) {
      const auto size = static_cast<double>(std::max<int64_t>(x.shape()[d], 1));
      const Tensor rest = floor(place.to(f64) / size).to(i64);  // exact below 2^53
      columns[static_cast<size_t>(d)] = place - rest * x.shape()[d];
      place = rest;
    }
    return stack(columns, 1);
  });
}

}  // namespace vox
