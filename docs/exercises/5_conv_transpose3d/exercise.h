#pragma once

#include <voxgrad/ops/conv3d.h>

namespace exercise {

/// The shape of conv_transpose3d's result: (N, C_out, D, H, W).
vox::Shape output_shape(const vox::Tensor& input, const vox::Tensor& weight,
                        const vox::ConvTranspose3dOptions& options);

/// What vox::conv_transpose3d computes, without a bias, for a batched input and options without output_size.
/// Differentiable with respect to input and weight.
vox::Tensor conv_transpose3d(const vox::Tensor& input, const vox::Tensor& weight,
                             const vox::ConvTranspose3dOptions& options = {});

}  // namespace exercise
