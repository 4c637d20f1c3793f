#include <voxgrad/autograd/autocast.h>
#include <voxgrad/autograd/grad_mode.h>
#include <voxgrad/autograd/record.h>
#include <voxgrad/ops/dispatch.h>
#include <voxgrad/ops/elementwise.h>
#include <voxgrad/ops/in_f32.h>
#include <voxgrad/ops/layer_kernels.h>
#include <voxgrad/ops/reduce.h>
#include <voxgrad/ops/reduce_plan.h>

#include <algorithm>

// softmax and log_softmax along one dimension. Each op is one node, which saves the result:
//   softmax       dx = y * (g - sum(g * y))
//   log_softmax   dx = g - exp(y) * sum(g)
// A kernel computes this, unless the gradient is itself recorded: then it is composed of ops.

namespace vox {

namespace {

constexpr ByDevice kernel{"softmax", in_f32<&cpu::softmax>, VOX_CUDA(&cuda::softmax)};
constexpr ByDevice gradient_kernel{"softmax", in_f32<&cpu::softmax_gradient>,
                                   VOX_CUDA(&cuda::softmax_gradient)};

int64_t checked_dim(const char* function, const Tensor& x, int64_t dim) {
  detail::check_floating(function, "x", x);
  detail::check_reducible(function, x);
  return normalize_dim_or_0(function, dim, x.rank());
}

template <bool logarithm>
struct SoftmaxNode final : autograd::Node {
  const char* name() const override { return name_of(logarithm); }
  static constexpr const char* name_of(bool log) { return log ? "log_softmax" : "softmax"; }

  autograd::Gradients backward(autograd::Gradients g) override {
    if (grad_enabled()) return {composed(*g[0])};
    const Tensor y = saved_y_.get();
    Tensor grad_x = detail::empty_for(name(), y.shape(), y.options());
    if (y.numel() > 0)
      gradient_kernel.on(y.device(), name())(g[0]->detach().contiguous(), y.detach(), dim_, logarithm,
                                             grad_x);
    return {grad_x};
  }
  int64_t dim_ = 0;
  autograd::SavedTensor saved_y_{this};

 private:
  /// 16-bit tensors are computed in f32 and rounded once.
  Tensor composed(const Tensor& g) {
    const DType wide = opmath(g.dtype());
    const Tensor y = saved_y_.get().to(wide), grad = g.to(wide);
    const Tensor x =
        logarithm ? grad - exp(y) * sum(grad, {dim_}, true) : y * (grad - sum(grad * y, {dim_}, true));
    return x.to(g.dtype());
  }
};

template <bool logarithm>
Tensor softmax_of(const Tensor& x, int64_t dim) {
  if (detail::autocast_widens(x)) return softmax_of<logarithm>(x.to(f32), dim);
  using N = SoftmaxNode<logarithm>;
  const char* const name = N::name_of(logarithm);
  dim = checked_dim(name, x, dim);
  if (x.rank() == 0) return softmax_of<logarithm>(x.unsqueeze(0), 0).squeeze(0);
  Tensor y = detail::empty_for(name, x.shape(), x.options());
  if (x.numel() > 0) kernel.on(x.device(), name)(x.detach().contiguous(), dim, logarithm, y);
  if (auto node = autograd::record<N>({x}, y)) {
    node->dim_ = dim;
    node->saved_y_.save(y);
  }
  return y;
}

}  // namespace

Tensor softmax(const Tensor& x, Int dim) { return softmax_of<false>(x, dim); }
Tensor log_softmax(const Tensor& x, Int dim) { return softmax_of<true>(x, dim); }

}  // namespace vox
