#include <voxgrad/nn/conv2d.h>
#include <voxgrad/nn/conv_parameters.h>
#include <voxgrad/ops/conv3d_recorded.h>

namespace vox::nn {

Conv2d::Conv2d(const Options& o) : options(o) {
  detail::check_channels("nn::Conv2d", o.in_channels, o.out_channels, o.groups);
  vox::detail::check_options("nn::Conv2d", o.kernel_size, detail::conv_options<Conv2dOptions>(o));
  const Shape shape = {o.out_channels, o.in_channels / o.groups, o.kernel_size.h, o.kernel_size.w};
  weight = register_parameter("weight", detail::conv_weight("nn::Conv2d", shape, o.tensor));
  if (o.bias) bias = register_parameter("bias", detail::conv_bias(o.out_channels, weight));
}

Tensor Conv2d::forward(const Tensor& input) {
  return conv2d(input, weight, bias, detail::conv_options<Conv2dOptions>(options));
}

}  // namespace vox::nn
