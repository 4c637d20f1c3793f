#pragma once

#include <optional>

#include <voxgrad/core/tensor.h>
#include <voxgrad/ops/triple.h>

namespace vox {

struct MaxPool3dOptions {
  Triple kernel_size = 1;
  std::optional<Triple> stride = {};  ///< kernel_size if not given
  Triple padding = 0, dilation = 1;
  bool ceil_mode = false;
};
struct AvgPool3dOptions {
  Triple kernel_size = 1;
  std::optional<Triple> stride = {};  ///< kernel_size if not given
  Triple padding = 0;
  bool ceil_mode = false, count_include_pad = true;
};

/// Maximum over windows of (N, C, D, H, W) or (C, D, H, W), PyTorch's arguments and sizes. The first maximum
/// of a window takes the gradient; NaN wins.
Tensor max_pool3d(const Tensor& input, const MaxPool3dOptions& options);
/// Mean over windows, likewise.
Tensor avg_pool3d(const Tensor& input, const AvgPool3dOptions& options);

}  // namespace vox
