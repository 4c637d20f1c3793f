#pragma once

#include <cstdint>

#include <voxgrad/core/host_device.h>
#include <voxgrad/core/tensor.h>

// What batch, instance, group and layer norm share. Each of them cuts a dense tensor into rows and normalises
// each row by its own mean and variance:
//
//   z = (x - mean) / sqrt(variance + eps) * weight + bias,   y = activation(z)

namespace vox {

/// An activation that a norm applies without a further pass over memory: z for z > 0, else negative_slope *
/// z. A slope of 1 means none, 0 means relu, any other leaky_relu.
struct Activation {
  double negative_slope = 1;

  static constexpr Activation none() { return {1}; }
  static constexpr Activation relu() { return {0}; }
  static constexpr Activation leaky_relu(Real negative_slope = 0.01) { return {negative_slope}; }
  bool operator==(const Activation&) const = default;
};

namespace detail {

/// x is (pieces, rows, length). Row r is x[:, r, :], of pieces * length elements. Its element l of any piece
/// has the weight and bias number r % groups * (length / inner) + l / inner.
///
///                 pieces   rows          length         groups     inner
///   batch norm    N        C             D H W          C          D H W
///   instance norm 1        N C           D H W          C          D H W
///   group norm    1        N groups      C/groups D H W groups     D H W
///   layer norm    1        outer dims    inner dims     1          1
struct NormGeometry {
  int64_t pieces, rows, length, groups, inner;

  VOX_HOST_DEVICE int64_t row_size() const { return pieces * length; }
  /// The number of weights.
  VOX_HOST_DEVICE int64_t channels() const { return groups * (length / inner); }
  VOX_HOST_DEVICE int64_t channel(int64_t row, int64_t l) const {
    return row % groups * (length / inner) + l / inner;
  }
};

/// The statistics of each row: dense, of `rows` elements and dtype opmath(x). rstd is 1 / sqrt(variance +
/// eps) of the biased variance.
struct NormStatistics {
  Tensor mean, rstd;
};

/// The running statistics that a norm updates with those of its rows, by (1 - momentum) * running + momentum
/// * batch, where the batch's variance is the unbiased one; undefined tensors mean none. Dense, of `rows`
/// elements and one dtype: the weights' dtype or, without weights, the dtype of x or its opmath.
struct RunningStatistics {
  Tensor mean, variance;
  double momentum = 0;
};

}  // namespace detail
}  // namespace vox
