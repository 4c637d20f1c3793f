#include <voxgrad/nn/conv_parameters.h>
#include <voxgrad/nn/conv_transpose2d.h>

namespace vox::nn {

ConvTranspose2d::ConvTranspose2d(const Options& o) : options(o) {
  detail::check_channels("nn::ConvTranspose2d", o.in_channels, o.out_channels, o.groups);
  const Shape shape = {o.in_channels, o.out_channels / o.groups, o.kernel_size.h, o.kernel_size.w};
  weight = register_parameter("weight", detail::conv_weight("nn::ConvTranspose2d", shape, o.tensor));
  if (o.bias) bias = register_parameter("bias", detail::conv_bias(o.out_channels, weight));
}

Tensor ConvTranspose2d::forward(const Tensor& input) {
  return conv_transpose2d(input, weight, bias,
                          {.stride = options.stride,
                           .padding = options.padding,
                           .output_padding = options.output_padding,
                           .groups = options.groups,
                           .dilation = options.dilation});
}

Tensor ConvTranspose2d::forward(const Tensor& input, Pair output_size) {
  return conv_transpose2d(input, weight, bias,
                          {.stride = options.stride,
                           .padding = options.padding,
                           .groups = options.groups,
                           .dilation = options.dilation,
                           .output_size = output_size});
}

}  // namespace vox::nn
