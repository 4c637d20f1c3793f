#include <voxgrad/autograd/autocast.h>
#include <voxgrad/autograd/shared_nodes.h>
#include <voxgrad/ops/kernels.h>
#include <voxgrad/ops/shaping.h>

// cat and stack write their inputs through views of a fresh result, so they need no kernels.

namespace vox {

using autograd::Gradients;

// ---- cat, stack -------------------------------------------------------------------------------------------
namespace {

struct CatNode final : autograd::Node {
  int64_t dim_ = 0;
  std::vector<int64_t> starts_;  // where input i begins along dim_, and where the last one ends
  const char* name() const override { return "cat"; }
  Gradients backward(Gradients g) override {
    Gradients grads(edges().size());
    for (size_t i = 0; i < grads.size(); ++i)
      grads[i] =
          if_needed(static_cast<int64_t>(i), [&] { return g[0]->slice(dim_, starts_[i], starts_[i + 1]); });
    return grads;
  }
};

/// Throws unless `t` can be joined to `first` along `dim`.
void check_joins(const char* function, const Tensor& first, const Tensor& t, int64_t dim) {
  detail::check_defined(function, "tensors", t);
  detail::check_same_dtype(function, first, t);
  detail::check_same_device(function, first, t);
  Shape expected = first.shape();
  if (t.rank() == expected.rank()) expected[dim] = t.shape()[dim];
  check<ShapeError>(t.shape() == expected, function, ": sizes may differ along dim ", dim, " only, got ",
                    first.shape(), " and ", t.shape());
}

Tensor join(const char* function, const std::vector<Tensor>& tensors, int64_t dim) {
  check<ValueError>(!tensors.empty(), function, ": needs at least one tensor, got none");
  const Tensor& first = tensors[0];
  detail::check_defined(function, "tensors", first);
  if (std::any_of(tensors.begin(), tensors.end(),
                  [&](const Tensor& t) { return detail::autocast_mixes(first, t); })) {
    std::vector<Tensor> wide;
    for (const Tensor& t : tensors) wide.push_back(t.to(f32));
    return join(function, wide, dim);
  }
  dim = normalize_dim(function, dim, first.rank());
  std::vector<int64_t> starts{0};
  for (const Tensor& t : tensors) {
    check_joins(function, first, t, dim);
    starts.push_back(checked_add(function, starts.back(), t.shape()[dim]));
  }

  Shape shape = first.shape();
  shape[dim] = starts.back();
  Tensor y = detail::empty_for(function, shape, first.options());
  {
    const auto guard = no_grad();
    for (size_t i = 0; i < tensors.size(); ++i) y.slice(dim, starts[i], starts[i + 1]).copy_(tensors[i]);
  }
  if (auto node = autograd::record<CatNode>(tensors, std::span(&y, 1))) {
    node->dim_ = dim;
    node->starts_ = std::move(starts);
  }
  return y;
}

}  // namespace

Tensor cat(const std::vector<Tensor>& tensors, Int dim) { return join("cat", tensors, dim); }

Tensor stack(const std::vector<Tensor>& tensors, Int dim) {
  check<ValueError>(!tensors.empty(), "stack: needs at least one tensor, got none");
  detail::check_defined("stack", "tensors", tensors[0]);
  const Shape& shape = tensors[0].shape();
  dim = normalize_place("stack", dim, shape.rank(), shape.rank() + 1);
  std::vector<Tensor> rows;
  for (const Tensor& t : tensors) {
    detail::check_defined("stack", "tensors", t);
    check<ShapeError>(t.shape() == shape, "stack: the shapes must be equal, got ", shape, " and ", t.shape());
    rows.push_back(in_the_name_of("stack", [&] { return t.unsqueeze(dim); }));
  }
  return join("stack", rows, dim);
}

// ---- pad --------------------------------------------------------------------------------------------------
Tensor pad(const Tensor& x, const std::vector<int64_t>& padding, Element value) {
  detail::check_defined("pad", "x", x);
  detail::check_scalar("pad", value, x.dtype());
  const auto entries = static_cast<int64_t>(padding.size());
  check<ShapeError>(entries % 2 == 0 && entries <= 2 * x.rank(),
                    "pad: padding must be (before, after) for up to ", x.rank(), " dimensions, got ", entries,
                    " entries");
  Shape before = Shape::filled(x.rank(), 0), shape = x.shape();
  for (int64_t i = 0; i < entries / 2; ++i) {
    const int64_t b = padding[static_cast<size_t>(2 * i)], a = padding[static_cast<size_t>(2 * i + 1)];
    check<ValueError>(b >= 0 && a >= 0, "pad: padding must be >= 0, got (", b, ", ", a,
                      ") (use slice() to crop)");
    const int64_t dim = x.rank() - 1 - i;
    before[dim] = b;
    shape[dim] = checked_add("pad: padding", checked_add("pad: padding", b, shape[dim]), a);
  }

  Tensor y = detail::empty_for("pad", shape, x.options());
  detail::pad_kernel.on(y.device())(x, before, Shape::filled(x.rank(), 1), value, y);
  return autograd::linear("pad", {x}, y, [before, inner = x.shape()](Tensor g) {
    for (int64_t d = 0; d < inner.rank(); ++d)
      if (g.shape()[d] != inner[d]) g = g.slice(d, before[d], before[d] + inner[d]);
    return g;
  });
}

}  // namespace vox
