#include <voxgrad/nn/conv_parameters.h>
#include <voxgrad/nn/conv_transpose2d.h>
#include <voxgrad/ops/conv3d_recorded.h>

namespace vox::nn {

ConvTranspose2d::ConvTranspose2d(const Options& o) : options(o) {
  detail::check_channels("nn::ConvTranspose2d", o.in_channels, o.out_channels, o.groups);
  vox::detail::check_options("nn::ConvTranspose2d", o.kernel_size,
                             detail::conv_transpose_options<ConvTranspose2dOptions>(o));
  const Shape shape = {o.in_channels, o.out_channels / o.groups, o.kernel_size.h, o.kernel_size.w};
  weight = register_parameter("weight", detail::conv_weight("nn::ConvTranspose2d", shape, o.tensor));
  if (o.bias) bias = register_parameter("bias", detail::conv_bias(o.out_channels, weight));
}

Tensor ConvTranspose2d::forward(const Tensor& input) {
  return conv_transpose2d(input, weight, bias,
                          detail::conv_transpose_options<ConvTranspose2dOptions>(options));
}

Tensor ConvTranspose2d::forward(const Tensor& input, Pair output_size) {
  ConvTranspose2dOptions o = detail::conv_transpose_options<ConvTranspose2dOptions>(options);
  o.output_padding = 0;
  o.output_size = output_size;
  return conv_transpose2d(input, weight, bias, o);
}

}  // namespace vox::nn
