#include <voxgrad/core/new_tensor.h>
#include <voxgrad/nn/layer.h>
#include <voxgrad/nn/layers.h>

namespace vox::nn {

namespace {

template <class Options>
std::string describe_pool(const char* layer, const Options& o, const std::string& dilation) {
  using detail::option;
  return str(layer, "(kernel_size=", o.kernel_size,
             option("stride", o.stride.value_or(o.kernel_size), o.kernel_size),
             option("padding", o.padding, 0), dilation, option("ceil_mode", o.ceil_mode, false), ")");
}

}  // namespace

PReLU::PReLU(const Options& o) : options(o) {
  check<ValueError>(o.num_parameters > 0, "nn::PReLU: num_parameters must be positive, got ",
                    o.num_parameters);
  detail::check_dtype("nn::PReLU", o.tensor.dtype);
  weight = register_parameter("weight", full(o.num_parameters, o.init, o.tensor));
}

Tensor PReLU::forward(const Tensor& input) {
  vox::detail::check_defined("nn::PReLU", "input", input);
  detail::check_input("nn::PReLU", input, weight);
  return prelu(input, weight);
}

std::string MaxPool3d::describe() const {
  return describe_pool("MaxPool3d", options, detail::option("dilation", options.dilation, 1));
}

std::string AvgPool3d::describe() const { return describe_pool("AvgPool3d", options, ""); }

std::string Upsample::describe() const {
  const auto scale = options.scale_factor.value_or(std::array<double, 3>{});
  return str("Upsample(",
             options.size ? str("size=", *options.size)
                          : str("scale_factor=(", scale[0], ",", scale[1], ",", scale[2], ")"),
             options.mode == InterpolateOptions::Mode::nearest ? ", nearest" : ", trilinear",
             detail::option("align_corners", options.align_corners, false), ")");
}

}  // namespace vox::nn
