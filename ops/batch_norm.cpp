#include <voxgrad/autograd/record.h>
#include <voxgrad/ops/batch_norm.h>
#include <voxgrad/ops/elementwise.h>
#include <voxgrad/ops/kernels.h>
#include <voxgrad/ops/reduce.h>

#include <algorithm>

// Batch normalisation. With xhat = (x - mean) / sqrt(variance + eps), and means over a channel:
//
//   grad_bias = sum(g),  grad_weight = sum(g xhat),
//   grad_x = weight / sqrt(variance + eps) * (g - mean(g) - xhat mean(g xhat))
//
// As a composition of recorded ops it moves the tensor through memory about ten times. So the CPU has kernels
// for forward and backward that go channel by channel. CUDA, and a backward that is itself differentiated,
// use the composition.

namespace vox {

namespace {

using autograd::Gradients;
using autograd::SavedTensor;

/// Whether to use the CPU's kernels for x. Their tasks are channels, so a large x needs enough of them.
bool is_fused(const Tensor& x) {
  constexpr int64_t enough_channels = 8, small = 1 << 16;
  return x.device().is_cpu() && (x.dtype() == f32 || x.dtype() == f64) && x.numel() > 0 &&
         (x.size(1) >= enough_channels || x.numel() <= small);
}

Tensor per_channel(const Tensor& t) { return t.reshape({1, t.numel(), 1, 1, 1}); }
const Shape all_but_channels = {0, 2, 3, 4};

struct BatchNormNode final : autograd::Node {
  SavedTensor saved_x_{this}, saved_weight_{this};
  Tensor mean_, variance_;
  bool has_weight_ = false;
  double eps_ = 0;
  const char* name() const override { return "batch_norm"; }

  Gradients backward(Gradients g) override {
    const Tensor x = saved_x_.get(), weight = has_weight_ ? saved_weight_.get() : Tensor();
    return grad_enabled() ? composed(*g[0], x, weight) : fused(*g[0], x, weight);
  }

 private:
  Gradients composed(const Tensor& g, const Tensor& x, const Tensor& weight) {
    const Tensor centred = x - mean(x, all_but_channels, true);
    const Tensor inverse = rsqrt(mean(centred * centred, all_but_channels, true) + eps_),
                 xhat = centred * inverse;
    const Tensor scale = weight.defined() ? inverse * per_channel(weight) : inverse;
    const Shape channels = {x.size(1)};
    return {if_needed(0,
                      [&] {
                        return scale * (g - mean(g, all_but_channels, true) -
                                        xhat * mean(g * xhat, all_but_channels, true));
                      }),
            if_needed(1, [&] { return sum(g * xhat, all_but_channels).reshape(channels); }),
            if_needed(2, [&] { return sum(g, all_but_channels); })};
  }

  Gradients fused(const Tensor& g, const Tensor& x, const Tensor& weight) {
    Tensor grad_x = empty(x.shape(), x.options());
    Tensor grad_weight = empty({x.size(1)}, x.options()), grad_bias = empty({x.size(1)}, x.options());
    const Tensor w = weight.defined() ? weight.detach().contiguous() : weight;
    cpu::batch_norm_gradient(g.detach().contiguous(), x.detach().contiguous(), w, mean_, variance_, eps_,
                             grad_x, grad_weight, grad_bias);
    return {if_needed(0, [&] { return grad_x; }), if_needed(1, [&] { return grad_weight; }),
            if_needed(2, [&] { return grad_bias; })};
  }
};

Tensor dense(const Tensor& t) { return t.defined() ? t.detach().contiguous() : t; }

}  // namespace

detail::BatchNorm detail::batch_norm(const Tensor& x, const Tensor& weight, const Tensor& bias, double eps) {
  if (is_fused(x)) {
    BatchNorm r{empty_for("nn::BatchNorm3d", x.shape(), x.options()), empty({x.size(1)}, x.options()),
                empty({x.size(1)}, x.options())};
    cpu::batch_norm(x.detach(), dense(weight), dense(bias), eps, r.y, r.mean, r.variance);
    if (auto node = autograd::record<BatchNormNode>({x, weight, bias}, r.y)) {
      node->saved_x_.save(x);
      node->has_weight_ = weight.defined();
      if (weight.defined()) node->saved_weight_.save(weight);
      node->mean_ = r.mean;
      node->variance_ = r.variance;
      node->eps_ = eps;
    }
    return r;
  }
  // Throws before anything is computed if the result is too large.
  empty_for("nn::BatchNorm3d", x.shape(), x.options());
  const Tensor mean = vox::mean(x, all_but_channels, true), centred = x - mean;
  const Tensor variance = vox::mean(centred * centred, all_but_channels, true);
  const Tensor scale = rsqrt(variance + eps);
  Tensor y = weight.defined() ? centred * (scale * per_channel(weight)) : centred * scale;
  if (bias.defined()) y = y + per_channel(bias);
  const Shape channels = {x.size(1)};
  return {y, mean.detach().reshape(channels), variance.detach().reshape(channels)};
}

Tensor detail::normalize(const Tensor& x, const Tensor& mean, const Tensor& variance, const Tensor& weight,
                         const Tensor& bias, double eps) {
  const auto wants_grad = [](const Tensor& t) { return t.defined() && t.requires_grad(); };
  const bool recorded = grad_enabled() && (wants_grad(x) || wants_grad(weight) || wants_grad(bias));
  Tensor scale = rsqrt(variance + eps);
  if (weight.defined()) scale = scale * weight;
  if (is_fused(x) && !recorded) {
    Tensor y = empty_for("nn::BatchNorm3d", x.shape(), x.options());
    cpu::scale_channels(x.detach(), dense(mean), dense(scale), dense(bias), y);
    return y;
  }
  const Tensor y = (x - per_channel(mean)) * per_channel(scale);
  return bias.defined() ? y + per_channel(bias) : y;
}

}  // namespace vox
