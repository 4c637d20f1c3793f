#pragma once

// What the CPU's kernels of the conv3d family compute, for conv3d.cpp.

#include <voxgrad/ops/conv3d_geometry.h>
#include <voxgrad/ops/conv3d_lattice.h>

namespace vox::cpu {

/// How a kernel on tiles ended. It supports a problem if its smallest tile fits and, with Winograd's factors,
/// if they pay. Where it met a number that is not finite, the output is undefined: infinity times a zero of
/// the padding is NaN, but the definition has no such product; or see Note [Winograd].
enum class Outcome { done, unsupported, not_finite };

/// conv3d or conv_transpose3d, seen from its output. S is the type of storage, T that of arithmetic.
///
///   output[n, out, o] = bias[out] + sum over in, taps of weight[..] * input[n, in, cell(o, tap)]
template <class S, class T>
struct Correlation {
  const S *input, *weight, *bias;  // bias may be null
  S* output;
  int64_t batch, groups;
  int64_t in_channels, out_channels;                        // per group
  int64_t weight_per_in, weight_per_out, weight_per_group;  // strides of the weight
  Triple kernel, out_size;
  std::array<std::vector<Lattice>, 3> phases = {};  ///< along D, H, W; outputs in no phase are the bias alone

  Outcome by_tiles(bool winograd) const;  // correlate.cpp
  void by_definition() const;             // direct.cpp
  void fill_with_bias() const;            // correlate.cpp
};

/// dweight = sum over n, i of small * big.
template <class S, class T>
struct WeightGrad {
  const S *big, *small;
  S* dweight;
  const Conv3dGeometry& g;

  Outcome by_tiles(bool winograd) const;  // weight_grad.cpp
  void by_definition() const;             // direct.cpp
};

}  // namespace vox::cpu
