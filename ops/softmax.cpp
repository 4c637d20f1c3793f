#include <voxgrad/autograd/record.h>
#include <voxgrad/ops/elementwise.h>
#include <voxgrad/ops/reduce.h>
#include <voxgrad/ops/reduce_kernels.h>

// softmax and log_softmax along one dimension, composed of reductions and elementwise ops: so they run on
// every device, and a view gives the bits of its copy. 16-bit tensors are computed in f32 and rounded once,
// gradients too. Each is one node of the tape, which saves the result:
//   softmax       dx = y * (g - sum(g * y))
//   log_softmax   dx = g - exp(y) * sum(g)

namespace vox {

namespace {

/// x minus its maximum along `dim`, which keeps exp() within range.
Tensor shifted(const char* function, const Tensor& x, int64_t dim) {
  detail::check_floating(function, "x", x);
  detail::check_reducible(function, x);
  const Tensor wide = x.to(opmath(x.dtype()));
  return wide.numel() == 0 ? wide.clone() : wide - max(wide, {dim}, true);
}

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
  detail::check_defined("softmax", "x", x);
  dim = normalize_dim("softmax", dim, x.rank());
  Tensor y;
  {
    const auto guard = no_grad();
    const Tensor e = exp(shifted("softmax", x, dim));
    y = (e / sum(e, {dim}, true)).to(x.dtype());
  }
  return recorded<SoftmaxNode>(x, dim, y);
}

Tensor log_softmax(const Tensor& x, int64_t dim) {
  detail::check_defined("log_softmax", "x", x);
  dim = normalize_dim("log_softmax", dim, x.rank());
  Tensor y;
  {
    const auto guard = no_grad();
    const Tensor s = shifted("log_softmax", x, dim);
    y = (s - log(sum(exp(s), {dim}, true))).to(x.dtype());
  }
  return recorded<LogSoftmaxNode>(x, dim, y);
}

}  // namespace vox
