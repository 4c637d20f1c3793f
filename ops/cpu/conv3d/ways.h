#pragma once

// The two methods on tiles, for conv3d.cpp.

#include <voxgrad/ops/conv3d_geometry.h>
#include <voxgrad/ops/conv3d_lattice.h>

namespace vox::cpu {

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
  std::array<std::vector<Lattice>, 3> phases;  ///< along D, H, W; outputs in no phase are the bias alone

  /// Computes all outputs. Returns false if even the smallest tile is too large or a weight is not finite.
  /// Then the outputs are undefined.
  bool run() const;
};

/// Computes dweight = sum over n, i of small * big, in arithmetic of type T. Returns false if the tiles are
/// too large or a sum is not finite. Then dweight is undefined: infinity times a zero of the padding is NaN,
/// but the definition has no such product.
template <class S, class T>
bool weight_grad_by_tiles(const S* big, const S* small, S* dweight, const Conv3dGeometry& g);

}  // namespace vox::cpu
