#include <voxgrad/ops/along.h>
#include <voxgrad/ops/dispatch.h>
#include <voxgrad/ops/elementwise.h>
#include <voxgrad/ops/indexing.h>
#include <voxgrad/ops/layer_kernels.h>
#include <voxgrad/ops/sort.h>

#include <cmath>

// All are made of argsort, which is not differentiable, and of gather, which is.

namespace vox {

namespace {

constexpr ByDevice kernel{"argsort", &cpu::argsort, VOX_CUDA(&cuda::argsort)};

Tensor order(const char* function, const Tensor& x, int64_t dim, bool descending) {
  return detail::along(function, x.detach(), dim, [&](const Tensor& rows) {
    Tensor indices = detail::empty_for(function, rows.shape(), {i64, rows.device()});
    if (rows.numel() > 0) kernel.on(rows.device(), function)(rows.contiguous(), descending, indices);
    return indices;
  });
}

/// The elements of x at `indices`, which are in range.
ValuesAndIndices taken(const char* function, const Tensor& x, int64_t dim, const Tensor& indices) {
  return {in_the_name_of(function, [&] { return detail::gather(x, dim, indices); }), indices};
}

/// Checks the operand of median and quantile. Returns `dim`, not counted from the end.
int64_t checked_dim(const char* function, const Tensor& x, int64_t dim) {
  detail::check_defined(function, "x", x);
  dim = normalize_dim_or_0(function, dim, x.rank());
  check<ShapeError>(x.numel() > 0, function, ": there is no element to choose from: shape ", x.shape());
  return dim;
}

/// The index, along `dim`, of the element that has `rank` others before it, or of a NaN if there is one.
Tensor ranked(const Tensor& x, int64_t dim, const Tensor& indices, int64_t rank) {
  const Tensor last = indices.slice(dim, indices.size(dim) - 1), at = indices.slice(dim, rank, rank + 1);
  return where(isnan(detail::gather(x.detach(), dim, last)), last, at);
}

}  // namespace

Tensor argsort(const Tensor& x, Int dim, Flag descending) {
  detail::check_defined("argsort", "x", x);
  return order("argsort", x, dim, descending);
}

ValuesAndIndices sort(const Tensor& x, Int dim, Flag descending) {
  detail::check_defined("sort", "x", x);
  return taken("sort", x, dim, order("sort", x, dim, descending));
}

ValuesAndIndices topk(const Tensor& x, Int k, Int dim, Flag largest) {
  detail::check_defined("topk", "x", x);
  dim = normalize_dim_or_0("topk", dim, x.rank());
  const int64_t size = x.rank() > 0 ? x.size(dim) : 1;
  check<ShapeError>(k >= 0 && k <= size, "topk: k must be from 0 to the size of dim ", dim, ", ", size,
                    ", got ", k);
  if (x.rank() == 0 && k == 0) return topk(x.reshape({1}), 0);
  const Tensor all = order("topk", x, dim, largest);
  return taken("topk", x, dim, x.rank() > 0 ? all.slice(dim, 0, k).contiguous() : all);
}

ValuesAndIndices median(const Tensor& x, Int dim, Flag keepdim) {
  dim = checked_dim("median", x, dim);
  return in_the_name_of("median", [&]() -> ValuesAndIndices {
    const Tensor rows = x.rank() > 0 ? x : x.reshape({1});
    const Tensor index = ranked(rows, dim, order("median", rows, dim, false), (rows.size(dim) - 1) / 2);
    const Tensor values = detail::gather(rows, dim, index);
    if (keepdim && x.rank() > 0) return {values, index};
    return {values.squeeze(dim), index.squeeze(dim)};
  });
}

Tensor median(const Tensor& x) {
  checked_dim("median", x, 0);
  return median(x.flatten(), 0).values;
}

Tensor quantile(const Tensor& x, Real q, std::optional<Int> dim, Flag keepdim) {
  detail::check_floating("quantile", "x", x);
  check<ValueError>(q >= 0 && q <= 1, "quantile: q must be from 0 to 1, got ", q);
  const int64_t along = checked_dim("quantile", x, dim ? int64_t{*dim} : 0);
  return in_the_name_of("quantile", [&] {
    if (!dim && x.rank() > 1) {
      const Tensor y = quantile(x.flatten(), q, 0);
      return keepdim ? y.reshape(Shape::filled(x.rank(), 1)) : y;
    }
    const Tensor rows = x.rank() > 0 ? x : x.reshape({1});
    const double place = q * static_cast<double>(rows.size(along) - 1), below = std::floor(place);
    const Tensor indices = order("quantile", rows, along, false);
    const auto element = [&](double rank) {
      const Tensor index = ranked(rows, along, indices, static_cast<int64_t>(rank));
      return detail::gather(rows, along, index).to(opmath(x.dtype()));
    };
    Tensor y = element(below);
    if (place > below) y = y + (element(below + 1) - y) * (place - below);
    y = y.to(x.dtype());
    return keepdim && x.rank() > 0 ? y : y.squeeze(along);
  });
}

}  // namespace vox
