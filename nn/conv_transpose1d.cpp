#include <voxgrad/nn/conv_parameters.h>
#include <voxgrad/nn/conv_transpose1d.h>

namespace vox::nn {

ConvTranspose1d::ConvTranspose1d(const Options& o) : options(o) {
  detail::check_channels("nn::ConvTranspose1d", o.in_channels, o.out_channels, o.groups);
  const Shape shape = {o.in_channels, o.out_channels / o.groups, o.kernel_size};
  weight = register_parameter("weight", detail::conv_weight("nn::ConvTranspose1d", shape, o.tensor));
  if (o.bias) bias = register_parameter("bias", detail::conv_bias(o.out_channels, weight));
}

Tensor ConvTranspose1d::forward(const Tensor& input) {
  return conv_transpose1d(input, weight, bias,
                          {.stride = options.stride,
                           .padding = options.padding,
                           .output_padding = options.output_padding,
                           .groups = options.groups,
                           .dilation = options.dilation});
}

Tensor ConvTranspose1d::forward(const Tensor& input, int64_t output_size) {
  return conv_transpose1d(input, weight, bias,
                          {.stride = options.stride,
                           .padding = options.padding,
                           .groups = options.groups,
                           .dilation = options.dilation,
                           .output_size = output_size});
}

}  // namespace vox::nn
