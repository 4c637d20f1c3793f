#include <voxgrad/autograd/engine.h>
#include <voxgrad/autograd/grad_mode.h>
#include <voxgrad/core/factories.h>

#include "docs/exercises/5_conv_transpose3d/exercise.h"

namespace exercise {

vox::Shape output_shape(const vox::Tensor& input, const vox::Tensor& weight,
                        const vox::ConvTranspose3dOptions& options) {
  vox::Shape shape = {input.size(0), weight.size(1) * options.groups};
  for (int64_t axis = 0; axis < 3; ++axis) {
    const int64_t in = input.size(2 + axis), kernel = weight.size(2 + axis);
    shape.push_back((in - 1) * options.stride[axis] - 2 * options.padding[axis] +
                    options.dilation[axis] * (kernel - 1) + options.output_padding[axis] + 1);
  }
  return shape;
}

vox::Tensor conv_transpose3d(const vox::Tensor& input, const vox::Tensor& weight,
                             const vox::ConvTranspose3dOptions& options) {
  const bool record = vox::grad_enabled();
  const auto guard = vox::enable_grad();  // conv3d needs a tape even if the caller wants none
  // conv3d is linear in its input, so its gradient is the same at every point, 0 included.
  const vox::Tensor big =
      vox::zeros(output_shape(input, weight, options), input.options()).set_requires_grad();
  const vox::Tensor small = vox::conv3d(big, weight, {},
                                        {.stride = options.stride,
                                         .padding = options.padding,
                                         .dilation = options.dilation,
                                         .groups = options.groups});
  return vox::grad({small}, {big}, {.grad_outputs = {input}, .create_graph = record})[0];
}

}  // namespace exercise
