#include <voxgrad/nn/conv.h>
#include <voxgrad/nn/init.h>
#include <voxgrad/nn/layer.h>
#include <voxgrad/ops/conv3d_recorded.h>

namespace vox::nn {

namespace {

/// The ops that the layers call, and the layers' names in messages.
template <int dims>
struct Ops;

template <>
struct Ops<1> {
  static constexpr auto conv = conv1d;
  static constexpr auto conv_transpose = conv_transpose1d;
  using Options = Conv1dOptions;
  using TransposeOptions = ConvTranspose1dOptions;
  static constexpr const char* layer = "nn::Conv1d";
  static constexpr const char* transpose_layer = "nn::ConvTranspose1d";
};

template <>
struct Ops<2> {
  static constexpr auto conv = conv2d;
  static constexpr auto conv_transpose = conv_transpose2d;
  using Options = Conv2dOptions;
  using TransposeOptions = ConvTranspose2dOptions;
  static constexpr const char* layer = "nn::Conv2d";
  static constexpr const char* transpose_layer = "nn::ConvTranspose2d";
};

template <>
struct Ops<3> {
  static constexpr auto conv = conv3d;
  static constexpr auto conv_transpose = conv_transpose3d;
  using Options = Conv3dOptions;
  using TransposeOptions = ConvTranspose3dOptions;
  static constexpr const char* layer = "nn::Conv3d";
  static constexpr const char* transpose_layer = "nn::ConvTranspose3d";
};

/// The part of the layer's options that the op takes.
template <int dims>
auto op_options(const typename Conv<dims>::Options& o) {
  return typename Ops<dims>::Options{
      .stride = o.stride, .padding = o.padding, .dilation = o.dilation, .groups = o.groups};
}
template <int dims>
auto op_options(const typename ConvTranspose<dims>::Options& o) {
  return typename Ops<dims>::TransposeOptions{.stride = o.stride,
                                              .padding = o.padding,
                                              .output_padding = o.output_padding,
                                              .groups = o.groups,
                                              .dilation = o.dilation};
}

void check_channels(const char* layer, int64_t in_channels, int64_t out_channels, int64_t groups) {
  check<ValueError>(groups > 0 && in_channels > 0 && out_channels > 0, layer,
                    ": in_channels, out_channels and groups must be positive, got ", in_channels, ", ",
                    out_channels, " and ", groups);
  check<ValueError>(in_channels % groups == 0 && out_channels % groups == 0, layer, ": groups = ", groups,
                    " must divide in_channels = ", in_channels, " and out_channels = ", out_channels);
}

Shape weight_shape(int64_t from, int64_t to, int64_t k) { return {from, to, k}; }
Shape weight_shape(int64_t from, int64_t to, const Pair& k) { return {from, to, k.h, k.w}; }
Shape weight_shape(int64_t from, int64_t to, const Triple& k) { return {from, to, k.d, k.h, k.w}; }

/// A weight with PyTorch's initial distribution.
Tensor make_weight(const char* layer, const Shape& shape, const TensorOptions& options) {
  for (int64_t size : shape)
    check<ValueError>(size > 0, layer, ": the weight's sizes must be positive, got ", shape);
  detail::check_dtype(layer, options.dtype);
  Tensor weight = vox::detail::empty_for(layer, shape, options);
  return init::default_uniform_(weight, init::fan_in(weight));
}

/// A bias with the same bound as `weight`.
Tensor make_bias(const char* layer, int64_t out_channels, const Tensor& weight) {
  Tensor bias = vox::detail::empty_for(layer, {out_channels}, weight.options());
  return init::default_uniform_(bias, init::fan_in(weight));
}

/// Throws, naming `layer`, unless it fits `input`.
template <int dims>
void check_input(const char* layer, const Tensor& input, int64_t channels, const Tensor& weight) {
  vox::detail::check_defined(layer, "input", input);
  constexpr const char* axes = dims == 1 ? "L)" : dims == 2 ? "H, W)" : "D, H, W)";
  const int64_t channel_dim = input.rank() - dims - 1;
  check<ShapeError>((channel_dim == 0 || channel_dim == 1) && input.size(channel_dim) == channels, layer,
                    ": the input must be (N, ", channels, ", ", axes, " or (", channels, ", ", axes, ", got ",
                    input.shape());
  detail::check_input(layer, input, weight);
}

}  // namespace

template <int dims>
Conv<dims>::Conv(const Options& o) : options(o) {
  constexpr const char* layer = Ops<dims>::layer;
  check_channels(layer, o.in_channels, o.out_channels, o.groups);
  vox::detail::check_options(layer, o.kernel_size, op_options<dims>(o));
  const Shape shape = weight_shape(o.out_channels, o.in_channels / o.groups, o.kernel_size);
  weight = register_parameter("weight", make_weight(layer, shape, o.tensor));
  if (o.bias) bias = register_parameter("bias", make_bias(layer, o.out_channels, weight));
}

template <int dims>
Tensor Conv<dims>::forward(const Tensor& input) {
  check_input<dims>(Ops<dims>::layer, input, options.in_channels, weight);
  return Ops<dims>::conv(input, weight, bias, op_options<dims>(options));
}

template <int dims>
ConvTranspose<dims>::ConvTranspose(const Options& o) : options(o) {
  constexpr const char* layer = Ops<dims>::transpose_layer;
  check_channels(layer, o.in_channels, o.out_channels, o.groups);
  vox::detail::check_options(layer, o.kernel_size, op_options<dims>(o));
  const Shape shape = weight_shape(o.in_channels, o.out_channels / o.groups, o.kernel_size);
  weight = register_parameter("weight", make_weight(layer, shape, o.tensor));
  if (o.bias) bias = register_parameter("bias", make_bias(layer, o.out_channels, weight));
}

template <int dims>
Tensor ConvTranspose<dims>::forward(const Tensor& input) {
  check_input<dims>(Ops<dims>::transpose_layer, input, options.in_channels, weight);
  return Ops<dims>::conv_transpose(input, weight, bias, op_options<dims>(options));
}

template <int dims>
Tensor ConvTranspose<dims>::forward(const Tensor& input, Spatial<dims> output_size) {
  check_input<dims>(Ops<dims>::transpose_layer, input, options.in_channels, weight);
  auto o = op_options<dims>(options);
  o.output_padding = 0;
  o.output_size = output_size;
  return Ops<dims>::conv_transpose(input, weight, bias, o);
}

// ---- Descriptions -----------------------------------------------------------------------------------------

namespace {

template <class Options>
std::string describe_conv(const char* layer, const Options& o, const std::string& output_padding) {
  using detail::option;
  return str(layer + std::string_view("nn::").size(), "(", o.in_channels, ", ", o.out_channels,
             ", kernel_size=", o.kernel_size, option("stride", o.stride, 1), option("padding", o.padding, 0),
             output_padding, option("dilation", o.dilation, 1), option("groups", o.groups, 1),
             o.bias ? "" : ", bias=false", ")");
}

}  // namespace

template <int dims>
std::string Conv<dims>::describe() const {
  return describe_conv(Ops<dims>::layer, options, "");
}

template <int dims>
std::string ConvTranspose<dims>::describe() const {
  return describe_conv(Ops<dims>::transpose_layer, options,
                       detail::option("output_padding", options.output_padding, 0));
}

template class Conv<1>;
template class Conv<2>;
template class Conv<3>;
template class ConvTranspose<1>;
template class ConvTranspose<2>;
template class ConvTranspose<3>;

}  // namespace vox::nn
