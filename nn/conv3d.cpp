#include <voxgrad/nn/conv3d.h>
#include <voxgrad/nn/conv_parameters.h>

namespace vox::nn {

Conv3d::Conv3d(const Options& o) : options(o) {
  detail::check_channels("nn::Conv3d", o.in_channels, o.out_channels, o.groups);
  const Shape shape = {o.out_channels, o.in_channels / o.groups, o.kernel_size.d, o.kernel_size.h,
                       o.kernel_size.w};
  weight = register_parameter("weight", detail::conv_weight("nn::Conv3d", shape, o.tensor));
  if (o.bias) bias = register_parameter("bias", detail::conv_bias(o.out_channels, weight));
}

Tensor Conv3d::forward(const Tensor& input) {
  return conv3d(input, weight, bias,
                {.stride = options.stride,
                 .padding = options.padding,
                 .dilation = options.dilation,
                 .groups = options.groups});
}

}  // namespace vox::nn
