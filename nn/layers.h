#pragma once

#include <voxgrad/nn/module.h>
#include <voxgrad/ops/elementwise.h>
#include <voxgrad/ops/interpolate.h>
#include <voxgrad/ops/norm_geometry.h>
#include <voxgrad/ops/pool3d.h>
#include <voxgrad/ops/reduce.h>

// Layers without parameters (except PReLU), each an op with its options: activations, pooling, upsampling and
// changes of shape. Sizes and factors that no input fits throw in the constructor, other options at the first
// call.

namespace vox::nn {

// ---- Activations (ops/elementwise.h) --------------------------------------------------------------------

/// An activation that a norm in front of it can apply at no further cost. Sequential makes it do so.
struct Rectifier : Module {
  virtual Activation activation() const = 0;
};

struct ReLU final : Rectifier {
  VOXGRAD_MODULE()
  Tensor forward(const Tensor& input) { return relu(input); }
  Activation activation() const override { return Activation::relu(); }
};

struct LeakyReLU final : Rectifier {
  explicit LeakyReLU(Real slope = 0.01) : negative_slope(slope) {}
  VOXGRAD_MODULE()
  Tensor forward(const Tensor& input) { return leaky_relu(input, negative_slope); }
  std::string describe() const override { return str("LeakyReLU(", negative_slope, ")"); }
  Activation activation() const override { return Activation::leaky_relu(negative_slope); }
  double negative_slope;
};

/// Activations without options.
#define VOXGRAD_ACTIVATION(Layer, op)                         \
  struct Layer final : Module {                               \
    VOXGRAD_MODULE()                                          \
    Tensor forward(const Tensor& input) { return op(input); } \
  };
VOXGRAD_ACTIVATION(GELU, gelu)
VOXGRAD_ACTIVATION(SiLU, silu)
VOXGRAD_ACTIVATION(Sigmoid, sigmoid)
VOXGRAD_ACTIVATION(Tanh, tanh)
VOXGRAD_ACTIVATION(Mish, mish)
VOXGRAD_ACTIVATION(ReLU6, relu6)
VOXGRAD_ACTIVATION(Hardsigmoid, hardsigmoid)
VOXGRAD_ACTIVATION(Hardswish, hardswish)
#undef VOXGRAD_ACTIVATION

struct ELU final : Module {
  explicit ELU(Real alpha = 1) : alpha(alpha) {}
  VOXGRAD_MODULE()
  Tensor forward(const Tensor& input) { return elu(input, alpha); }
  std::string describe() const override { return str("ELU(", alpha, ")"); }
  double alpha;
};

/// prelu with a trained weight (num_parameters), which starts at `init`: one slope, or one for each channel.
class PReLU final : public Module {
 public:
  struct Options {
    vox::detail::ByName by_name{};
    int64_t num_parameters = 1;
    double init = 0.25;
    TensorOptions tensor = {};  ///< dtype and device of the weight
  };
  explicit PReLU(const Options& options);
  PReLU() : PReLU(Options{}) {}
  VOXGRAD_MODULE()
  Tensor forward(const Tensor& input);
  std::string describe() const override { return str("PReLU(", options.num_parameters, ")"); }

  Options options;
  Tensor weight;
};

struct Softplus final : Module {
  explicit Softplus(Real beta = 1, Real threshold = 20) : beta(beta), threshold(threshold) {}
  VOXGRAD_MODULE()
  Tensor forward(const Tensor& input) { return softplus(input, beta, threshold); }
  std::string describe() const override { return str("Softplus(", beta, ", ", threshold, ")"); }
  double beta, threshold;
};

struct Hardtanh final : Module {
  explicit Hardtanh(Real min_val = -1, Real max_val = 1) : min_val(min_val), max_val(max_val) {}
  VOXGRAD_MODULE()
  Tensor forward(const Tensor& input) { return hardtanh(input, min_val, max_val); }
  std::string describe() const override { return str("Hardtanh(", min_val, ", ", max_val, ")"); }
  double min_val, max_val;
};

/// Softmax along `dim` (ops/reduce.h).
struct Softmax final : Module {
  explicit Softmax(Int dim) : dim(dim) {}
  VOXGRAD_MODULE()
  Tensor forward(const Tensor& input) { return softmax(input, dim); }
  std::string describe() const override { return str("Softmax(", dim, ")"); }
  int64_t dim;
};

// ---- Pooling (ops/pool3d.h) -----------------------------------------------------------------------------

/// `MaxPool3d({.kernel_size = 2})`
struct MaxPool3d final : Module {
  explicit MaxPool3d(const MaxPool3dOptions& o) : options(o) {
    vox::detail::check_options("nn::MaxPool3d", o);
  }
  VOXGRAD_MODULE()
  Tensor forward(const Tensor& input) { return max_pool3d(input, options); }
  std::string describe() const override;
  MaxPool3dOptions options;
};

struct AvgPool3d final : Module {
  explicit AvgPool3d(const AvgPool3dOptions& o) : options(o) {
    vox::detail::check_options("nn::AvgPool3d", o);
  }
  VOXGRAD_MODULE()
  Tensor forward(const Tensor& input) { return avg_pool3d(input, options); }
  std::string describe() const override;
  AvgPool3dOptions options;
};

/// `AdaptiveAvgPool3d(1)` is the mean of each channel.
struct AdaptiveAvgPool3d final : Module {
  explicit AdaptiveAvgPool3d(const Triple& size) : output_size(size) {
    vox::detail::check_output_size("nn::AdaptiveAvgPool3d", size);
  }
  VOXGRAD_MODULE()
  Tensor forward(const Tensor& input) { return adaptive_avg_pool3d(input, output_size); }
  std::string describe() const override { return str("AdaptiveAvgPool3d(", output_size, ")"); }
  Triple output_size;
};

struct AdaptiveMaxPool3d final : Module {
  explicit AdaptiveMaxPool3d(const Triple& size) : output_size(size) {
    vox::detail::check_output_size("nn::AdaptiveMaxPool3d", size);
  }
  VOXGRAD_MODULE()
  Tensor forward(const Tensor& input) { return adaptive_max_pool3d(input, output_size); }
  std::string describe() const override { return str("AdaptiveMaxPool3d(", output_size, ")"); }
  Triple output_size;
};

// ---- Upsampling (ops/interpolate.h) ---------------------------------------------------------------------

/// `Upsample({.scale_factor = 2, .mode = InterpolateOptions::Mode::trilinear})`
struct Upsample final : Module {
  explicit Upsample(const InterpolateOptions& o) : options(o) {
    vox::detail::check_options("nn::Upsample", o);
  }
  VOXGRAD_MODULE()
  Tensor forward(const Tensor& input) { return interpolate(input, options); }
  std::string describe() const override;
  InterpolateOptions options;
};

// ---- Shapes ---------------------------------------------------------------------------------------------

/// Returns its input, where a layer is expected.
struct Identity final : Module {
  VOXGRAD_MODULE()
  Tensor forward(const Tensor& input) { return input; }
};

/// Joins the dimensions start_dim to end_dim into one: by default (N, C, D, H, W) -> (N, C*D*H*W).
struct Flatten final : Module {
  explicit Flatten(Int start_dim = 1, Int end_dim = -1) : start_dim(start_dim), end_dim(end_dim) {}
  VOXGRAD_MODULE()
  Tensor forward(const Tensor& input) { return input.flatten(start_dim, end_dim); }
  std::string describe() const override { return str("Flatten(", start_dim, ", ", end_dim, ")"); }
  int64_t start_dim, end_dim;
};

}  // namespace vox::nn
