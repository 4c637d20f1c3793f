#include <voxgrad/nn/conv_parameters.h>
#include <voxgrad/nn/conv_transpose1d.h>
#include <voxgrad/ops/conv3d_recorded.h>

namespace vox::nn {

ConvTranspose1d::ConvTranspose1d(const Options& o) : options(o) {
  detail::check_channels("nn::ConvTranspose1d", o.in_channels, o.out_channels, o.groups);
  vox::detail::check_options("nn::ConvTranspose1d", o.kernel_size,
                             detail::conv_transpose_options<ConvTranspose1dOptions>(o));
  const Shape shape = {o.in_channels, o.out_channels / o.groups, o.kernel_size};
  weight = register_parameter("weight", detail::conv_weight("nn::ConvTranspose1d", shape, o.tensor));
  if (o.bias) bias = register_parameter("bias", detail::conv_bias(o.out_channels, weight));
}

Tensor ConvTranspose1d::forward(const Tensor& input) {
  return conv_transpose1d(input, weight, bias,
                          detail::conv_transpose_options<ConvTranspose1dOptions>(options));
}

Tensor ConvTranspose1d::forward(const Tensor& input, int64_t output_size) {
  ConvTranspose1dOptions o = detail::conv_transpose_options<ConvTranspose1dOptions>(options);
  o.output_padding = 0;
  o.output_size = output_size;
  return conv_transpose1d(input, weight, bias, o);
}

}  // namespace vox::nn
