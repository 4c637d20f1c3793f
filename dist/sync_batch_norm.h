#pragma once

#include <voxgrad/nn/norm.h>

namespace vox::dist {

/// nn::BatchNorm whose statistics in training are those of all ranks' batches together, which may differ in
/// size. Parameters, buffers and options are those of nn::BatchNorm, so a file of one loads into the other.
/// It is composed of ops and needs more memory than nn::BatchNorm. Use it if the batch of one rank is too
/// small for statistics of its own.
template <int dims>
class SyncBatchNorm final : public nn::TrackingNorm {
 public:
  using Options = typename nn::BatchNorm<dims>::Options;
  explicit SyncBatchNorm(const Options& options);
  /// Throws as nn::BatchNorm, and DistError.
  Tensor normalize(const Tensor& input, Activation activation) override;

  const Options options;
};

using SyncBatchNorm1d = SyncBatchNorm<1>;
using SyncBatchNorm2d = SyncBatchNorm<2>;
using SyncBatchNorm3d = SyncBatchNorm<3>;

}  // namespace vox::dist
