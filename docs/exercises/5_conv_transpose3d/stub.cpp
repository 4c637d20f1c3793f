#include <voxgrad/autograd/engine.h>
#include <voxgrad/autograd/grad_mode.h>
#include <voxgrad/core/factories.h>

#include "docs/exercises/5_conv_transpose3d/exercise.h"

namespace exercise {

vox::Shape output_shape(const vox::Tensor& input, const vox::Tensor& weight,
                        const vox::ConvTranspose3dOptions& options) {
  // To do. weight has shape (C_in, C_out / groups, kD, kH, kW).
  return input.shape();
}

vox::Tensor conv_transpose3d(const vox::Tensor& input, const vox::Tensor& weight,
                             const vox::ConvTranspose3dOptions& options) {
  // To do, with vox::conv3d and vox::grad.
  return vox::zeros(output_shape(input, weight, options), input.options());
}

}  // namespace exercise
