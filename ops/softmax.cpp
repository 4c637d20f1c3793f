#include <voxgrad/autograd/record.h>
#include <voxgrad/ops/elementwise.h>
#include <voxgrad/ops/kernels.h>
#include <voxgrad/ops/reduce.h>
#include <voxgrad/ops/reduce_ops.h>

// softmax and log_softmax along one dimension, composed of reductions and elementwise ops. So they run on
// every device, and a view gives the same bits as its copy. 16-bit tensors and their gradients are computed
// in f32 and rounded once. Each op is one node, which saves the result:
//   softmax       dx = y * (g - sum(g * y))
//   log_softmax   dx = g - exp(y) * sum(g)

namespace vox {

namespace {

int64_t checked_dim(const char* function, const Tensor& x, int64_t dim) {
  detail::check_floating(function, "x", x);
  detail::check_reducible(function, x);
  return normalize_dim(function, dim, x.rank());
}

/// The first part of both ops. All memory is allocated before any work is done. `y` is the result. `wide` is
/// x minus its maximum along `dim`, which keeps exp() within range, in opmath(dtype).
struct Shifted {
  Tensor y, wide;

  Shifted(const char* function, const Tensor& x, int64_t dim) {
    const TensorOptions options{opmath(x.dtype()), x.device()};
    y = detail::empty_for(function, x.shape(), x.options());
    wide = x.dtype() == options.dtype ? y : detail::empty_for(function, x.shape(), options);
    if (x.numel() == 0) return;
    const Tensor& from = x.dtype() == options.dtype ? x : wide.copy_(x);
    apply(Binary::sub, from, max(from, {dim}, true), wide);
  }
  static void apply(Binary op, const Tensor& a, const Tensor& b, const Tensor& result) {
    detail::binary_kernel.on(a.device())(op, a, b.expand(a.shape()), result, 0);
  }
  /// Copies the result from `wide` to y, and returns y.
  Tensor result() { return y.impl() == wide.impl() ? y : y.copy_(wide); }
};

struct SoftmaxNode final : autograd::Node {
  const char* name() const override { return "softmax"; }
  autograd::Gradients backward(autograd::Gradients g) override {
    const DType dtype = g[0]->dtype(), wide = opmath(dtype);
    const Tensor y = saved_y_.get().to(wide), grad = g[0]->to(wide);
    return {(y * (grad - sum(grad * y, {dim_}, true))).to(dtype)};
  }
  int64_t dim_ = 0;
  autograd::SavedTensor saved_y_{this};
};

struct LogSoftmaxNode final : autograd::Node {
  const char* name() const override { return "log_softmax"; }
  autograd::Gradients backward(autograd::Gradients g) override {
    const DType dtype = g[0]->dtype(), wide = opmath(dtype);
    const Tensor grad = g[0]->to(wide);
    return {(grad - exp(saved_y_.get().to(wide)) * sum(grad, {dim_}, true)).to(dtype)};
  }
  int64_t dim_ = 0;
  autograd::SavedTensor saved_y_{this};
};

template <class N>
Tensor recorded(const Tensor& x, int64_t dim, const Tensor& y) {
  if (auto node = autograd::record<N>({x}, y)) {
    node->dim_ = dim;
    node->saved_y_.save(y);
  }
  return y;
}

}  // namespace

Tensor softmax(const Tensor& x, int64_t dim) {
  dim = checked_dim("softmax", x, dim);
  Tensor y;
  {
    const auto guard = no_grad();
    Shifted s("softmax", x, dim);
    detail::unary_kernel.on(x.device())(Unary::exp, s.wide, s.wide, 0, 0);
    Shifted::apply(Binary::div, s.wide, sum(s.wide, {dim}, true), s.wide);
    y = s.result();
  }
  return recorded<SoftmaxNode>(x, dim, y);
}

Tensor log_softmax(const Tensor& x, int64_t dim) {
  dim = checked_dim("log_softmax", x, dim);
  Tensor y;
  {
    const auto guard = no_grad();
    const Tensor e = detail::empty_for("log_softmax", x.shape(), {opmath(x.dtype()), x.device()});
    Shifted s("log_softmax", x, dim);
    detail::unary_kernel.on(x.device())(Unary::exp, s.wide, e, 0, 0);
    Shifted::apply(Binary::sub, s.wide, log(sum(e, {dim}, true)), s.wide);
    y = s.result();
  }
  return recorded<LogSoftmaxNode>(x, dim, y);
}

}  // namespace vox
