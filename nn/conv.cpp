#include <voxgrad/nn/conv.h>
#include <voxgrad/nn/init.h>
#include <voxgrad/nn/layer.h>
#include <voxgrad/ops/conv3d_recorded.h>

#include <array>
#include <tuple>

namespace vox::nn {

namespace {

/// The ops that the layers call, and the layers' names in messages.
template <int dims>
struct Ops {
  static constexpr auto conv = std::get<dims - 1>(std::tuple(&conv1d, &conv2d, &conv3d));
  static constexpr auto conv_transpose =
      std::get<dims - 1>(std::tuple(&conv_transpose1d, &conv_transpose2d, &conv_transpose3d));
  template <class... Each>
  using Select = std::tuple_element_t<dims - 1, std::tuple<Each...>>;
  using Options = Select<Conv1dOptions, Conv2dOptions, Conv3dOptions>;
  using TransposeOptions = Select<ConvTranspose1dOptions, ConvTranspose2dOptions, ConvTranspose3dOptions>;
  static constexpr const char* layer = std::array{"nn::Conv1d", "nn::Conv2d", "nn::Conv3d"}[dims - 1];
  static constexpr const char* transpose_layer =
      std::array{"nn::ConvTranspose1d", "nn::ConvTranspose2d", "nn::ConvTranspose3d"}[dims - 1];
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

Shape weight_shape(int64_t from, int64_t to, int64_t k) { return {from, to, k}; }
Shape weight_shape(int64_t from, int64_t to, const Pair& k) { return {from, to, k.h, k.w}; }
Shape weight_shape(int64_t from, int64_t to, const Triple& k) { return {from, to, k.d, k.h, k.w}; }

/// Checks the options of a layer, and makes its weight and bias with PyTorch's initial distribution.
/// `transposed` says whether the first size of the weight counts inputs.
template <class Options, class OpOptions>
std::pair<Tensor, Tensor> make_parameters(const char* layer, const Options& o, const OpOptions& of_op,
                                          bool transposed) {
  check<ValueError>(o.groups > 0 && o.in_channels > 0 && o.out_channels > 0, layer,
                    ": in_channels, out_channels and groups must be positive, got ", o.in_channels, ", ",
                    o.out_channels, " and ", o.groups);
  check<ValueError>(o.in_channels % o.groups == 0 && o.out_channels % o.groups == 0, layer,
                    ": groups = ", o.groups, " must divide in_channels = ", o.in_channels,
                    " and out_channels = ", o.out_channels);
  vox::detail::check_options(layer, o.kernel_size, of_op);
  const Shape shape = transposed ? weight_shape(o.in_channels, o.out_channels / o.groups, o.kernel_size)
                                 : weight_shape(o.out_channels, o.in_channels / o.groups, o.kernel_size);
  detail::check_dtype(layer, o.tensor.dtype);
  Tensor weight = vox::detail::empty_for(layer, shape, o.tensor);
  init::default_uniform_(weight, init::fan_in(weight));
  if (!o.bias) return {weight, Tensor()};
  Tensor bias = vox::detail::empty_for(layer, {o.out_channels}, o.tensor);
  return {weight, init::default_uniform_(bias, init::fan_in(weight))};
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
  const auto [w, b] = make_parameters(Ops<dims>::layer, o, op_options<dims>(o), false);
  weight = register_parameter("weight", w);
  bias = register_parameter("bias", b);
}

template <int dims>
Tensor Conv<dims>::forward(const Tensor& input) {
  check_input<dims>(Ops<dims>::layer, input, options.in_channels, weight);
  return Ops<dims>::conv(input, weight, bias, op_options<dims>(options));
}

template <int dims>
ConvTranspose<dims>::ConvTranspose(const Options& o) : options(o) {
  const auto [w, b] = make_parameters(Ops<dims>::transpose_layer, o, op_options<dims>(o), true);
  weight = register_parameter("weight", w);
  bias = register_parameter("bias", b);
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
