#pragma once

#include <voxgrad/core/tensor.h>
#include <voxgrad/ops/conv3d_geometry.h>

/// The recorded ops behind the public calls of ops/conv3d.h. They take operands and a geometry that is
/// already checked. Every gradient of the family consists of these and passes the same geometry on (see Note
/// [The conv3d family] in conv3d.cpp).
namespace vox::detail {

// `function` names the public call in errors.
Tensor conv3d(const Tensor& big, const Tensor& weight, const Tensor& bias, const Conv3dGeometry& geometry,
              const char* function = "conv3d");
Tensor conv_transpose3d(const Tensor& small, const Tensor& weight, const Tensor& bias,
                        const Conv3dGeometry& geometry, const char* function = "conv_transpose3d");
Tensor conv3d_weight_grad(const Tensor& big, const Tensor& small, const Conv3dGeometry& geometry);

struct WeightBiasGrad {
  Tensor weight, bias;
};
/// conv3d_weight_grad, and the sum over batch and cells of the operand on the grid `bias_of`, in one pass.
WeightBiasGrad weight_bias_grad(const Tensor& big, const Tensor& small, const Conv3dGeometry& geometry,
                                Grid bias_of);

// What the public calls check before and after they build the geometry.
void check_operands(const char* function, const char* first_name, const Tensor& first,
                    const char* second_name, const Tensor& second);
void check_bias(const char* function, const Tensor& input, const Tensor& bias, int64_t channels);

// The public calls.
Tensor conv3d(const Caller& function, const Tensor& input, const Tensor& weight, const Tensor& bias,
              const Conv3dOptions& options);
Tensor conv_transpose3d(const Caller& function, const Tensor& input, const Tensor& weight, const Tensor& bias,
                        const ConvTranspose3dOptions& options);

}  // namespace vox::detail
