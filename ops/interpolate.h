#pragma once

#include <array>
#include <optional>

#include <voxgrad/core/tensor.h>
#include <voxgrad/ops/triple.h>

namespace vox {

struct InterpolateOptions {
  enum class Mode { nearest, trilinear };
  std::optional<Triple> size = {};                         ///< (D,H,W) of the output; or:
  std::optional<std::array<double, 3>> scale_factor = {};  ///< size = floor(input size * scale)
  Mode mode = Mode::nearest;
  bool align_corners = false;  ///< trilinear only
};

/// Resizes (N, C, D, H, W), with the index rules of torch.nn.functional.interpolate. Floating dtypes. The
/// backward is the exact adjoint, in gather form: no atomics, the same bits every time.
Tensor interpolate(const Tensor& input, const InterpolateOptions& options);

}  // namespace vox
