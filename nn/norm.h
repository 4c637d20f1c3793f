#pragma once

#include <optional>

#include <voxgrad/nn/module.h>
#include <voxgrad/ops/norm_geometry.h>

// The norms of ops/norm.h as layers with their own weight (ones) and bias (zeros), and an activation that
// costs no further pass over memory: `BatchNorm3d({.num_features = 8, .activation = Activation::relu()})`.
// The dtype of the parameters is the input's, or f32 for an input of 16 bits. The output has shape and dtype
// of the input. The constructor refuses options that no input fits.

namespace vox::nn {

/// What all norms share.
class Norm : public Module {
 public:
  VOXGRAD_MODULE()
  Tensor forward(const Tensor& input) { return normalize(input, activation); }
  /// forward() with `activation` instead of the layer's own.
  virtual Tensor normalize(const Tensor& input, Activation activation) = 0;

  Activation activation;
  Tensor weight, bias;

 protected:
  Norm(const char* layer, double eps, Activation activation, TensorOptions tensor);
  void register_affine(const Shape& shape, bool has_bias = true);
  std::string describe_as(const std::string& sizes, double eps, bool usually_affine = true) const;

  const char* layer_;
  TensorOptions tensor_;
};

/// Running statistics: the buffers running_mean (zeros), running_var (ones) and num_batches_tracked (i64,
/// scalar), all undefined if there are none.
class TrackingNorm : public Norm {
 public:
  Tensor running_mean, running_var, num_batches_tracked;

 protected:
  TrackingNorm(const char* layer, int64_t num_features, double eps, double momentum, bool affine,
               bool track_running_stats, Activation activation, TensorOptions tensor);
  bool uses_batch() const { return is_training() || !running_mean.defined(); }
  /// Throws ShapeError unless the input is (N, num_features, `dims` spatial axes); if dims is 1, that axis
  /// may be missing.
  void check_shape(const Tensor& input, int64_t num_features, int dims) const;
};

/// BatchNorm::Options. It is not nested because GCC 12 would crash on a member `BatchNorm3d n{{.eps = 1}};`.
struct BatchNormOptions {
  vox::detail::ByName by_name{};
  int64_t num_features;
  double eps = 1e-5;
  std::optional<double> momentum = 0.1;  ///< finite; std::nullopt: the plain average over all batches
  bool affine = true;                    ///< whether there are weight and bias
  bool track_running_stats = true;       ///< if false, evaluation uses the batch's statistics too
  Activation activation = {};
  TensorOptions tensor = {};  ///< dtype and device of parameters and buffers
};

/// batch_norm, like torch.nn.BatchNorm1d, 2d and 3d. In training it uses the batch's statistics and updates
/// the running ones, with an unbiased estimate of the variance; in evaluation it uses the running ones:
///
///     running = (1 - momentum) * running + momentum * batch
///
/// Shapes: (N, num_features, spatial axes), with as many axes as the name says; BatchNorm1d also takes
/// (N, num_features).
template <int dims>
class BatchNorm final : public TrackingNorm {
 public:
  using Options = BatchNormOptions;
  explicit BatchNorm(const Options& options);
  /// Throws ShapeError for other ranks and numbers of channels, and if it needs the batch's statistics but a
  /// channel has one element. A batch without elements gives an empty result and updates no statistics, but
  /// counts.
  Tensor normalize(const Tensor& input, Activation activation) override;
  std::string describe() const override { return describe_as(str(options.num_features), options.eps); }

  Options options;
};

/// instance_norm, like torch.nn.InstanceNorm1d, 2d and 3d: by default without parameters and running
/// statistics. Running statistics are used in evaluation; num_batches_tracked stays 0, as in PyTorch.
/// (N, num_features, spatial axes); the same without N.
template <int dims>
class InstanceNorm final : public TrackingNorm {
 public:
  struct Options {
    vox::detail::ByName by_name{};
    int64_t num_features;
    double eps = 1e-5;
    double momentum = 0.1;  ///< finite
    bool affine = false;
    bool track_running_stats = false;
    Activation activation = {};
    TensorOptions tensor = {};
  };
  explicit InstanceNorm(const Options& options);
  /// Throws ShapeError for other ranks and numbers of channels, and if it needs the input's statistics but a
  /// channel has one cell.
  Tensor normalize(const Tensor& input, Activation activation) override;
  std::string describe() const override { return describe_as(str(options.num_features), options.eps, false); }

  Options options;
};

/// group_norm, like torch.nn.GroupNorm. (N, num_channels, spatial axes).
class GroupNorm final : public Norm {
 public:
  struct Options {
    vox::detail::ByName by_name{};
    int64_t num_groups, num_channels;  ///< num_channels is divisible by num_groups
    double eps = 1e-5;
    bool affine = true;
    Activation activation = {};
    TensorOptions tensor = {};
  };
  explicit GroupNorm(const Options& options);
  Tensor normalize(const Tensor& input, Activation activation) override;
  std::string describe() const override {
    return describe_as(str(options.num_groups, ", ", options.num_channels), options.eps);
  }

  Options options;
};

/// layer_norm, like torch.nn.LayerNorm. (..., normalized_shape).
class LayerNorm final : public Norm {
 public:
  struct Options {
    vox::detail::ByName by_name{};
    Shape normalized_shape;
    double eps = 1e-5;
    bool elementwise_affine = true;  ///< whether there are weight and bias
    bool bias = true;
    Activation activation = {};
    TensorOptions tensor = {};
  };
  explicit LayerNorm(const Options& options);
  Tensor normalize(const Tensor& input, Activation activation) override;
  std::string describe() const override { return describe_as(str(options.normalized_shape), options.eps); }

  Options options;
};

using BatchNorm1d = BatchNorm<1>;
using BatchNorm2d = BatchNorm<2>;
using BatchNorm3d = BatchNorm<3>;
using InstanceNorm1d = InstanceNorm<1>;
using InstanceNorm2d = InstanceNorm<2>;
using InstanceNorm3d = InstanceNorm<3>;

}  // namespace vox::nn
