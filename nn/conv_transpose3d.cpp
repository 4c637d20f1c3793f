#include <voxgrad/nn/conv_parameters.h>
#include <voxgrad/nn/conv_transpose3d.h>
#include <voxgrad/ops/conv3d_recorded.h>

namespace vox::nn {

ConvTranspose3d::ConvTranspose3d(const Options& o) : options(o) {
  detail::check_channels("nn::ConvTranspose3d", o.in_channels, o.out_channels, o.groups);
  vox::detail::check_options("nn::ConvTranspose3d", o.kernel_size,
                             detail::conv_transpose_options<ConvTranspose3dOptions>(o));
  const Shape shape = {o.in_channels, o.out_channels / o.groups, o.kernel_size.d, o.kernel_size.h,
                       o.kernel_size.w};
  weight = register_parameter("weight", detail::conv_weight("nn::ConvTranspose3d", shape, o.tensor));
  if (o.bias) bias = register_parameter("bias", detail::conv_bias(o.out_channels, weight));
}

Tensor ConvTranspose3d::forward(const Tensor& input) {
  return conv_transpose3d(input, weight, bias,
                          detail::conv_transpose_options<ConvTranspose3dOptions>(options));
}

Tensor ConvTranspose3d::forward(const Tensor& input, Triple output_size) {
  ConvTranspose3dOptions o = detail::conv_transpose_options<ConvTranspose3dOptions>(options);
  o.output_padding = 0;
  o.output_size = output_size;
  return conv_transpose3d(input, weight, bias, o);
}

}  // namespace vox::nn
