#pragma once

#include <voxgrad/core/tensor.h>
#include <voxgrad/ops/norm_geometry.h>

// Norms of (N, C, spatial axes...), as in torch.nn.functional:
//
//     y = activation((x - mean) / sqrt(variance + eps) * weight + bias)
//
// with the mean and the (biased) variance of x over some dimensions. Floating dtypes. Weight and bias have
// x's dtype, or f32 beside an x of 16 bits, and may be undefined (1 and 0). y has x's shape and dtype; 16-bit
// elements are computed in f32 and rounded once. The activation costs no pass over memory, and backward keeps
// x alone. The gradients of all norms can be differentiated again.
//
// All throw ShapeError or DTypeError for operands that do not fit. Statistics of a single element turn every
// x into 0. batch_norm and instance_norm refuse them with a ShapeError; group_norm does so only for a batch
// of one sample, and layer_norm never does, as in PyTorch. An x without elements gives an empty y, and
// updates no statistics.

namespace vox {

/// By the statistics of each channel over N and the spatial axes (Ioffe & Szegedy, arXiv 1502.03167). x has 2
/// to 5 dimensions; all other operands have C elements.
///
/// In training the statistics are those of x, and running_mean and running_var, if they are defined, are
/// updated in place, with an unbiased estimate of the variance:
///
///     running = (1 - momentum) * running + momentum * batch
///
/// Otherwise they are the running ones, as constants. Running statistics have the dtype of the weights.
struct BatchNormOptions {
  detail::ByName by_name{};
  bool training = false;
  double momentum = 0.1;
  double eps = 1e-5;
  Activation activation = {};
};
Tensor batch_norm(const Tensor& x, const Tensor& running_mean, const Tensor& running_var,
                  const Tensor& weight = {}, const Tensor& bias = {}, const BatchNormOptions& options = {});

/// By the statistics of each channel of each sample over the spatial axes (Ulyanov et al., arXiv 1607.08022).
/// x has 3 to 5 dimensions; all other operands have C elements. The running statistics, if they are defined,
/// are updated by the mean over the samples. If use_input_stats is false, it is batch_norm in evaluation.
struct InstanceNormOptions {
  detail::ByName by_name{};
  bool use_input_stats = true;
  double momentum = 0.1;
  double eps = 1e-5;
  Activation activation = {};
};
Tensor instance_norm(const Tensor& x, const Tensor& running_mean = {}, const Tensor& running_var = {},
                     const Tensor& weight = {}, const Tensor& bias = {},
                     const InstanceNormOptions& options = {});

/// By the statistics of each group of C / num_groups neighbouring channels of each sample, over them and the
/// spatial axes (Wu & He, arXiv 1803.08494). x has at least 2 dimensions; weight and bias have C elements.
Tensor group_norm(const Tensor& x, Int num_groups, const Tensor& weight = {}, const Tensor& bias = {},
                  Real eps = 1e-5, Activation activation = {});

/// By the statistics over the last dimensions, whose sizes are normalized_shape (Ba et al., arXiv
/// 1607.06450). Weight and bias have that shape.
Tensor layer_norm(const Tensor& x, const Shape& normalized_shape, const Tensor& weight = {},
                  const Tensor& bias = {}, Real eps = 1e-5, Activation activation = {});

namespace detail {
// The same, with errors that name `function`.
Tensor batch_norm(const char* function, const Tensor& x, const Tensor& running_mean,
                  const Tensor& running_var, const Tensor& weight, const Tensor& bias,
                  const BatchNormOptions& options);
Tensor instance_norm(const char* function, const Tensor& x, const Tensor& running_mean,
                     const Tensor& running_var, const Tensor& weight, const Tensor& bias,
                     const InstanceNormOptions& options);
Tensor group_norm(const char* function, const Tensor& x, int64_t num_groups, const Tensor& weight,
                  const Tensor& bias, double eps, Activation activation);
Tensor layer_norm(const char* function, const Tensor& x, const Shape& normalized_shape, const Tensor& weight,
                  const Tensor& bias, double eps, Activation activation);
}  // namespace detail

}  // namespace vox
