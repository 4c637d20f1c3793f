#pragma once

#include <voxgrad/core/tensor.h>

namespace vox::cpu {

/// How N and C of (N, C, D, H, W) lie in memory. For each cell there are `groups` rows, and a row holds that
/// cell of `side` planes, side by side. With 32 channels, side is 32 for (N, D, H, W, C), and 32 N with all
/// dimensions reversed.
struct InterleavedPlanes {
  int64_t side = 1, groups = 1;
  bool has_batch = false, has_channels = false;  ///< whether a row spans N, and C

  explicit InterleavedPlanes(const Tensor& x) {
    for (int i = 0; i < 2; ++i) {
      if (!has_batch && x.strides()[0] == side && x.shape()[0] > 1) side *= x.shape()[0], has_batch = true;
      if (!has_channels && x.strides()[1] == side && x.shape()[1] > 1)
        side *= x.shape()[1], has_channels = true;
    }
    if (x.numel() > 0) groups = x.shape()[0] * x.shape()[1] / side;
  }
};

/// Whether enough planes lie side by side to read them as vectors.
inline bool has_interleaved_planes(const Tensor& x) { return InterleavedPlanes(x).side >= 8; }

}  // namespace vox::cpu
