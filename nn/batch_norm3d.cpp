#include <voxgrad/autograd/grad_mode.h>
#include <voxgrad/core/factories.h>
#include <voxgrad/nn/batch_norm3d.h>
#include <voxgrad/ops/batch_norm.h>
#include <voxgrad/ops/elementwise.h>

#include <cmath>

namespace vox::nn {

BatchNorm3d::BatchNorm3d(const Options& o) : options(o) {
  check<ValueError>(o.num_features > 0, "nn::BatchNorm3d: num_features must be positive, got ",
                    o.num_features);
  check<ValueError>(o.eps >= 0, "nn::BatchNorm3d: eps must be >= 0, got ", o.eps);
  check<ValueError>(std::isfinite(o.momentum.value_or(0)), "nn::BatchNorm3d: momentum must be finite, got ",
                    o.momentum.value_or(0));
  check<DTypeError>(is_floating(o.tensor.dtype), "nn::BatchNorm3d: needs a floating dtype, got ",
                    o.tensor.dtype, "; allowed are f32, f64, bf16 and f16");
  if (o.affine) {
    weight = register_parameter("weight", ones({o.num_features}, o.tensor));
    bias = register_parameter("bias", zeros({o.num_features}, o.tensor));
  }
  if (o.track_running_stats) {
    running_mean = register_buffer("running_mean", zeros({o.num_features}, o.tensor));
    running_var = register_buffer("running_var", ones({o.num_features}, o.tensor));
    num_batches_tracked =
        register_buffer("num_batches_tracked", zeros({}, {.dtype = i64, .device = o.tensor.device}));
  }
}

Tensor BatchNorm3d::forward(const Tensor& input) {
  vox::detail::check_defined("nn::BatchNorm3d", "input", input);
  check<ShapeError>(input.rank() == 5 && input.size(1) == options.num_features,
                    "nn::BatchNorm3d: the input must be (N, ", options.num_features, ", D, H, W), got ",
                    input.shape());
  for (const Tensor& own : {weight, running_mean}) {  // before any statistics change
    if (!own.defined()) continue;
    vox::detail::check_same_dtype("nn::BatchNorm3d", input, own);
    vox::detail::check_same_device("nn::BatchNorm3d", input, own);
  }
  const auto wide = [&](const Tensor& t) {  // computes bf16 and f16 in f32, to round once
    return t.defined() ? t.to(opmath(input.dtype())) : t;
  };
  if (!is_training() && options.track_running_stats) {
    const Tensor y = vox::detail::normalize(wide(input), wide(running_mean), wide(running_var), wide(weight),
                                            wide(bias), options.eps);
    return y.to(input.dtype());
  }
  const int64_t count = input.numel() / options.num_features;
  check<ShapeError>(count != 1, "nn::BatchNorm3d: the statistics of a batch need at least 2 elements in ",
                    "each channel, got shape ", input.shape(), " (use eval())");
  if (count == 0) {  // any finite statistics give the empty result, and gradients of 0
    if (is_training() && options.track_running_stats) count_batch();
    const Tensor any = ones({options.num_features}, {opmath(input.dtype()), input.device()});
    return vox::detail::normalize(wide(input), any, any, wide(weight), wide(bias), options.eps)
        .to(input.dtype());
  }
  const auto result = vox::detail::batch_norm(wide(input), wide(weight), wide(bias), options.eps);
  if (is_training() && options.track_running_stats) track(result.mean, result.variance, count);
  return result.y.to(input.dtype());
}

void BatchNorm3d::count_batch() {
  const auto guard = no_grad();
  num_batches_tracked.add_(ones_like(num_batches_tracked));
}

void BatchNorm3d::track(const Tensor& mean, const Tensor& variance, int64_t count) {
  const auto guard = no_grad();
  count_batch();
  const double momentum =
      options.momentum ? *options.momentum : 1 / static_cast<double>(num_batches_tracked.item<int64_t>());
  const double unbiased = static_cast<double>(count) / static_cast<double>(count - 1);
  const auto blend = [&](Tensor& running, const Tensor& batch, double share) {
    Tensor wide = running.to(batch.dtype());  // `running` itself, unless that has 16 bits
    wide.mul_(1 - momentum).add_(batch.reshape({options.num_features}), share);
    if (wide.impl() != running.impl()) running.copy_(wide);
  };
  blend(running_mean, mean, momentum);
  blend(running_var, variance, momentum * unbiased);
}

}  // namespace vox::nn
