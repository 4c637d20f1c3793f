#pragma once

#include <voxgrad/core/tensor.h>
#include <voxgrad/ops/triple.h>

// The conv3d family. Tensors are (N, C, D, H, W), or (C, D, H, W) without a batch; floating dtypes; weight
// and bias have the input's dtype and device. An undefined bias means none. On each axis, tap k connects cell
// i of the coarse grid to cell o = i * stride - padding + k * dilation of the fine grid. bf16 and f16 tensors
// are multiplied and summed in f32, and every output is rounded once.

namespace vox {

struct Conv3dOptions {
  detail::ByName by_name{};
  Triple stride = 1, padding = 0, dilation = 1;
  int64_t groups = 1;
};

struct ConvTranspose3dOptions {
  detail::ByName by_name{};
  Triple stride = 1, padding = 0, output_padding = 0;
  int64_t groups = 1;
  Triple dilation = 1;
  OptionalTriple output_size = {};  ///< instead of output_padding: the (D,H,W) of the result
};

/// Cross-correlation: weight (C_out, C_in/groups, kD, kH, kW), like torch.nn.functional.conv3d. Output size
/// per axis: floor((in + 2*padding - dilation*(k-1) - 1) / stride) + 1.
Tensor conv3d(const Tensor& input, const Tensor& weight, const Tensor& bias = {},
              const Conv3dOptions& options = {});

/// The adjoint of conv3d: weight (C_in, C_out/groups, kD, kH, kW), like torch.nn.functional.conv_transpose3d.
/// Output size per axis: (in-1)*stride - 2*padding + dilation*(k-1) + output_padding + 1.
Tensor conv_transpose3d(const Tensor& input, const Tensor& weight, const Tensor& bias = {},
                        const ConvTranspose3dOptions& options = {});

/// Gradient of conv3d's weight: `big` is conv3d's input (N, C_big, ...), `small` has its output's shape
/// (N, C_small, ...); the result is (C_small, C_big/groups, kernel_size). Batched only.
Tensor conv3d_weight_grad(const Tensor& big, const Tensor& small, Triple kernel_size,
                          const Conv3dOptions& options = {});

}  // namespace vox
