#include <voxgrad/nn/conv_parameters.h>
#include <voxgrad/nn/conv_transpose3d.h>

namespace vox::nn {

ConvTranspose3d::ConvTranspose3d(const Options& o) : options(o) {
  detail::check_channels("nn::ConvTranspose3d", o.in_channels, o.out_channels, o.groups);
  const Shape shape = {o.in_channels, o.out_channels / o.groups, o.kernel_size.d, o.kernel_size.h,
                       o.kernel_size.w};
  weight = register_parameter("weight", detail::conv_weight("nn::ConvTranspose3d", shape, o.tensor));
  if (o.bias) bias = register_parameter("bias", detail::conv_bias(o.out_channels, weight));
}

Tensor ConvTranspose3d::forward(const Tensor& input) {
  return conv_transpose3d(input, weight, bias,
                          {.stride = options.stride,
                           .padding = options.padding,
                           .output_padding = options.output_padding,
                           .groups = options.groups,
                           .dilation = options.dilation});
}

Tensor ConvTranspose3d::forward(const Tensor& input, Triple output_size) {
  return conv_transpose3d(input, weight, bias,
                          {.stride = options.stride,
                           .padding = options.padding,
                           .groups = options.groups,
                           .dilation = options.dilation,
                           .output_size = output_size});
}

}  // namespace vox::nn
