#pragma once

// The two ways of computing by tiles that conv3d.cpp chooses from.

#include <voxgrad/ops/conv3d_geometry.h>
#include <voxgrad/ops/cpu/conv3d/lattice.h>

namespace vox::cpu {

/// Either forward op, seen from its output: S is the storage, T the arithmetic.
///
///   output[n, out, o] = bias[out] + sum over in, taps of weight[..] * input[n, in, cell(o, tap)]
template <class S, class T>
struct Correlation {
  const S *input, *weight, *bias;  // no bias: null
  S* output;
  int64_t batch, groups;
  int64_t in_channels, out_channels;                        // per group
  int64_t weight_per_in, weight_per_out, weight_per_group;  // steps in the weight
  Triple kernel, out_size;
  std::array<std::vector<Lattice>, 3> phases;  ///< along D, H, W; outputs in no phase are the bias alone

  /// All outputs. False, and nothing done, if even the smallest tile is too large for this way.
  bool run() const;
};

/// dweight = sum over n, i of small * big, in arithmetic of type T. False, and nothing done, if it cannot be
/// had by tiles: they would be too large, or an operand is not finite (a zero of the padding times infinity
/// would be NaN where the definition has no product at all; dweight may then have been written).
template <class S, class T>
bool weight_grad_by_tiles(const S* big, const S* small, S* dweight, const Conv3dGeometry& g);

}  // namespace vox::cpu
