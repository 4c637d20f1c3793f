#pragma once

#include <voxgrad/voxgrad.h>

#include <utility>

// Ops that voxgrad does not have yet, composed of those that it has. Each goes as soon as voxgrad has it.

namespace bench::missing {

using vox::Shape;
using vox::Tensor;

/// x, in f32 if it has 16 bits.
inline Tensor wide(const Tensor& x) { return x.to(x.dtype() == vox::f64 ? vox::f64 : vox::f32); }

/// (x - mean) / sqrt(variance + eps), with the statistics over the last dimension.
inline Tensor standardize(const Tensor& x, double eps) {
  const Tensor centred = x - vox::mean(x, {-1}, true);
  return centred * vox::rsqrt(vox::mean(centred * centred, {-1}, true) + eps);
}

/// Statistics over the last dimension; weight and bias have its size.
inline Tensor layer_norm(const Tensor& x, const Tensor& weight, const Tensor& bias, double eps = 1e-5) {
  return (standardize(wide(x), eps) * wide(weight) + wide(bias)).to(x.dtype());
}

/// Statistics over each of `groups` groups of the channels of (N, C, D, H, W); weight and bias have C
/// elements.
inline Tensor group_norm(const Tensor& x, int64_t groups, const Tensor& weight, const Tensor& bias,
                         double eps = 1e-5) {
  const Shape per_channel{x.size(1), 1, 1, 1};
  const Tensor standard = standardize(wide(x).reshape({x.size(0), groups, -1}), eps).reshape(x.shape());
  return (standard * wide(weight).reshape(per_channel) + wide(bias).reshape(per_channel)).to(x.dtype());
}

inline Tensor instance_norm(const Tensor& x, const Tensor& weight, const Tensor& bias, double eps = 1e-5) {
  return group_norm(x, x.size(1), weight, bias, eps);
}

inline Tensor hardswish(const Tensor& x) { return x * vox::clamp(x + 3, 0, 6) / 6; }

inline Tensor logsumexp(const Tensor& x, int64_t dim) {
  const Tensor largest = vox::max(x, {dim}, true).detach();
  return vox::log(vox::sum(vox::exp(x - largest), {dim}, true)) + largest;
}

class InstanceNorm3d final : public vox::nn::Module {
 public:
  explicit InstanceNorm3d(int64_t channels)
      : weight(register_parameter("weight", vox::ones({channels}))),
        bias(register_parameter("bias", vox::zeros({channels}))) {}
  Tensor forward(const Tensor& x) override { return instance_norm(x, weight, bias); }

  Tensor weight, bias;
};

}  // namespace bench::missing
