#pragma once

#include <voxgrad/nn/module.h>
#include <voxgrad/ops/elementwise.h>
#include <voxgrad/ops/interpolate.h>
#include <voxgrad/ops/norm_geometry.h>
#include <voxgrad/ops/pool3d.h>
#include <voxgrad/ops/reduce.h>

// Layers without parameters, each an op with its options: activations, pooling and upsampling. The
// constructor refuses options that no input fits.

namespace vox::nn {

// ---- Activations (ops/elementwise.h) --------------------------------------------------------------------

/// An activation that a norm before it can apply; Sequential leaves it to the norm.
struct Rectifier : Module {
  virtual Activation activation() const = 0;
};

struct ReLU final : Rectifier {
  Tensor forward(const Tensor& input) override { return relu(input); }
  Activation activation() const override { return Activation::relu(); }
};

struct LeakyReLU final : Rectifier {
  explicit LeakyReLU(double slope = 0.01) : negative_slope(slope) {}
  Tensor forward(const Tensor& input) override { return leaky_relu(input, negative_slope); }
  Activation activation() const override { return Activation::leaky_relu(negative_slope); }
  double negative_slope;
};

struct GELU final : Module {
  Tensor forward(const Tensor& input) override { return gelu(input); }
};

struct SiLU final : Module {
  Tensor forward(const Tensor& input) override { return silu(input); }
};

struct Sigmoid final : Module {
  Tensor forward(const Tensor& input) override { return sigmoid(input); }
};

struct Tanh final : Module {
  Tensor forward(const Tensor& input) override { return tanh(input); }
};

struct Mish final : Module {
  Tensor forward(const Tensor& input) override { return mish(input); }
};

struct ELU final : Module {
  explicit ELU(double alpha = 1) : alpha(alpha) {}
  Tensor forward(const Tensor& input) override { return elu(input, alpha); }
  double alpha;
};

struct Softplus final : Module {
  explicit Softplus(double beta = 1, double threshold = 20) : beta(beta), threshold(threshold) {}
  Tensor forward(const Tensor& input) override { return softplus(input, beta, threshold); }
  double beta, threshold;
};

struct Hardtanh final : Module {
  explicit Hardtanh(double min_val = -1, double max_val = 1) : min_val(min_val), max_val(max_val) {}
  Tensor forward(const Tensor& input) override { return hardtanh(input, min_val, max_val); }
  double min_val, max_val;
};

struct ReLU6 final : Module {
  Tensor forward(const Tensor& input) override { return relu6(input); }
};

struct Hardsigmoid final : Module {
  Tensor forward(const Tensor& input) override { return hardsigmoid(input); }
};

struct Hardswish final : Module {
  Tensor forward(const Tensor& input) override { return hardswish(input); }
};

/// Softmax along `dim` (ops/reduce.h).
struct Softmax final : Module {
  explicit Softmax(int64_t dim) : dim(dim) {}
  Tensor forward(const Tensor& input) override { return softmax(input, dim); }
  int64_t dim;
};

// ---- Pooling (ops/pool3d.h) -----------------------------------------------------------------------------

/// `MaxPool3d({.kernel_size = 2})`
struct MaxPool3d final : Module {
  explicit MaxPool3d(const MaxPool3dOptions& o) : options(o) {
    vox::detail::check_options("nn::MaxPool3d", o);
  }
  Tensor forward(const Tensor& input) override { return max_pool3d(input, options); }
  const MaxPool3dOptions options;
};

struct AvgPool3d final : Module {
  explicit AvgPool3d(const AvgPool3dOptions& o) : options(o) {
    vox::detail::check_options("nn::AvgPool3d", o);
  }
  Tensor forward(const Tensor& input) override { return avg_pool3d(input, options); }
  const AvgPool3dOptions options;
};

/// `AdaptiveAvgPool3d(1)` is the mean of each channel.
struct AdaptiveAvgPool3d final : Module {
  explicit AdaptiveAvgPool3d(const Triple& size) : output_size(size) {
    vox::detail::check_output_size("nn::AdaptiveAvgPool3d", size);
  }
  Tensor forward(const Tensor& input) override { return adaptive_avg_pool3d(input, output_size); }
  const Triple output_size;
};

struct AdaptiveMaxPool3d final : Module {
  explicit AdaptiveMaxPool3d(const Triple& size) : output_size(size) {
    vox::detail::check_output_size("nn::AdaptiveMaxPool3d", size);
  }
  Tensor forward(const Tensor& input) override { return adaptive_max_pool3d(input, output_size); }
  const Triple output_size;
};

// ---- Upsampling (ops/interpolate.h) ---------------------------------------------------------------------

/// `Upsample({.scale_factor = 2, .mode = InterpolateOptions::Mode::trilinear})`
struct Upsample final : Module {
  explicit Upsample(const InterpolateOptions& o) : options(o) {
    vox::detail::check_options("nn::Upsample", o);
  }
  Tensor forward(const Tensor& input) override { return interpolate(input, options); }
  const InterpolateOptions options;
};

}  // namespace vox::nn
