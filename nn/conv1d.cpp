#include <voxgrad/nn/conv1d.h>
#include <voxgrad/nn/conv_parameters.h>
#include <voxgrad/ops/conv3d_recorded.h>

namespace vox::nn {

Conv1d::Conv1d(const Options& o) : options(o) {
  detail::check_channels("nn::Conv1d", o.in_channels, o.out_channels, o.groups);
  vox::detail::check_options("nn::Conv1d", o.kernel_size, detail::conv_options<Conv1dOptions>(o));
  const Shape shape = {o.out_channels, o.in_channels / o.groups, o.kernel_size};
  weight = register_parameter("weight", detail::conv_weight("nn::Conv1d", shape, o.tensor));
  if (o.bias) bias = register_parameter("bias", detail::conv_bias(o.out_channels, weight));
}

Tensor Conv1d::forward(const Tensor& input) {
  return conv1d(input, weight, bias, detail::conv_options<Conv1dOptions>(options));
}

}  // namespace vox::nn
