#pragma once

#include <optional>

#include <voxgrad/nn/module.h>

namespace vox::nn {

/// Normalises each channel (Ioffe & Szegedy, arXiv 1502.03167) like torch.nn.BatchNorm3d:
///
///     (input - mean) / sqrt(variance + eps) * weight + bias
///
/// In training, mean and (biased) variance are those of the batch, over N, D, H, W; in evaluation, the
/// running ones. Each call in training also updates the running ones, with an unbiased estimate of the
/// variance:
///
///     running = (1 - momentum) * running + momentum * batch
///
/// The parameters are weight (ones) and bias (zeros); the buffers are running_mean (zeros), running_var
/// (ones) and num_batches_tracked (i64, scalar). (N, num_features, D, H, W) -> the same.
class BatchNorm3d final : public Module {
 public:
  struct Options {
    int64_t num_features;
    double eps = 1e-5;
    std::optional<double> momentum = 0.1;  ///< finite; std::nullopt: the plain average over all batches
    bool affine = true;                    ///< whether there are weight and bias
    bool track_running_stats = true;       ///< if false, evaluation uses the batch's statistics too
    TensorOptions tensor = {};             ///< dtype and device of parameters and buffers
  };
  explicit BatchNorm3d(const Options& options);
  /// Throws ShapeError for other ranks and numbers of channels, and if it needs the batch's statistics but a
  /// channel has one element. A batch without elements gives an empty result and updates no statistics.
  Tensor forward(const Tensor& input) override;

  const Options options;
  Tensor weight, bias;
  Tensor running_mean, running_var, num_batches_tracked;

 private:
  void count_batch();
  void track(const Tensor& mean, const Tensor& variance, int64_t count);
};

}  // namespace vox::nn
