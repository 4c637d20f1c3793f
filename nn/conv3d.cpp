#include <voxgrad/nn/conv3d.h>
#include <voxgrad/nn/conv_parameters.h>
#include <voxgrad/ops/conv3d_recorded.h>

namespace vox::nn {

Conv3d::Conv3d(const Options& o) : options(o) {
  detail::check_channels("nn::Conv3d", o.in_channels, o.out_channels, o.groups);
  vox::detail::check_options("nn::Conv3d", o.kernel_size, detail::conv_options<Conv3dOptions>(o));
  const Shape shape = {o.out_channels, o.in_channels / o.groups, o.kernel_size.d, o.kernel_size.h,
                       o.kernel_size.w};
  weight = register_parameter("weight", detail::conv_weight("nn::Conv3d", shape, o.tensor));
  if (o.bias) bias = register_parameter("bias", detail::conv_bias(o.out_channels, weight));
}

Tensor Conv3d::forward(const Tensor& input) {
  return conv3d(input, weight, bias, detail::conv_options<Conv3dOptions>(options));
}

}  // namespace vox::nn
