#include <voxgrad/nn/conv_parameters.h>
#include <voxgrad/nn/init.h>

namespace vox::nn::detail {

void check_channels(const char* layer, int64_t in_channels, int64_t out_channels, int64_t groups) {
  check<ValueError>(groups > 0 && in_channels > 0 && out_channels > 0, layer,
                    ": in_channels, out_channels and groups must be positive, got ", in_channels, ", ",
                    out_channels, " and ", groups);
  check<ValueError>(in_channels % groups == 0 && out_channels % groups == 0, layer, ": groups = ", groups,
                    " must divide in_channels = ", in_channels, " and out_channels = ", out_channels);
}

Tensor conv_weight(const char* layer, const Shape& shape, TensorOptions options) {
  for (int64_t size : shape)
    check<ValueError>(size > 0, layer, ": the weight's sizes must be positive, got ", shape);
  Tensor weight = vox::detail::empty_for(layer, shape, options);
  return init::default_uniform_(weight, init::fan_in(weight));
}

Tensor conv_bias(int64_t out_channels, const Tensor& weight) {
  Tensor bias = empty({out_channels}, weight.options());
  return init::default_uniform_(bias, init::fan_in(weight));
}

}  // namespace vox::nn::detail
