#pragma once

#include <voxgrad/core/tensor.h>

namespace vox::cpu {

/// How N and C of (N, C, D, H, W) lie in memory: `side` planes have each cell side by side, as one row, and
/// there are `groups` of such rows for each cell. With 32 channels: side 32 as (N, D, H, W, C); 32 N with all
/// dimensions reversed.
struct InterleavedPlanes {
  int64_t side = 1, groups = 1;
  bool has_batch = false, has_channels = false;  ///< in a row

  explicit InterleavedPlanes(const Tensor& x) {
    for (int i = 0; i < 2; ++i) {
      if (!has_batch && x.strides()[0] == side && x.shape()[0] > 1) side *= x.shape()[0], has_batch = true;
      if (!has_channels && x.strides()[1] == side && x.shape()[1] > 1)
        side *= x.shape()[1], has_channels = true;
    }
    if (x.numel() > 0) groups = x.shape()[0] * x.shape()[1] / side;
  }
};

/// Whether they are worth reading as vectors.
inline bool has_interleaved_planes(const Tensor& x) { return InterleavedPlanes(x).side >= 8; }

}  // namespace vox::cpu
