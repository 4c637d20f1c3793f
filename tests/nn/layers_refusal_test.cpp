#include "tests/nn/layers.h"

// Layers refuse impossible options at construction, with the messages of their ops, and inputs that do not
// fit.

namespace vox {
namespace {

constexpr int64_t huge = std::numeric_limits<int64_t>::max();

TEST(LayersRefusalTest, ImpossibleOptions) {
  EXPECT_REFUSED(DTypeError, nn::InstanceNorm2d({.num_features = 1, .tensor = {.dtype = i64}}),
                 "nn::InstanceNorm2d: needs a floating dtype, got i64");
  const char* const positive = ": in_channels, out_channels and groups must be positive, got ";
  EXPECT_REFUSED(ValueError, nn::Conv3d(conv<nn::Conv3d>(0, 1, 1)),
                 str("nn::Conv3d", positive, "0, 1 and 1"));
  EXPECT_REFUSED(ValueError, nn::Conv3d(conv<nn::Conv3d>(1, -1, 1)),
                 str("nn::Conv3d", positive, "1, -1 and 1"));
  EXPECT_REFUSED(ValueError,
                 nn::ConvTranspose2d({.in_channels = 2, .out_channels = 2, .kernel_size = 1, .groups = 0}),
                 str("nn::ConvTranspose2d", positive, "2, 2 and 0"));
  EXPECT_REFUSED(ValueError, nn::Conv3d({.in_channels = 3, .out_channels = 2, .kernel_size = 1, .groups = 2}),
                 "nn::Conv3d: groups = 2 must divide in_channels = 3 and out_channels = 2");
  EXPECT_REFUSED(ValueError,
                 nn::ConvTranspose3d({.in_channels = 2, .out_channels = 3, .kernel_size = 1, .groups = 2}),
                 "nn::ConvTranspose3d: groups = 2 must divide in_channels = 2 and out_channels = 3");
  EXPECT_REFUSED(ValueError, nn::Conv3d(conv<nn::Conv3d>(1, 1, {1, 0, 1})),
                 "nn::Conv3d: kernel_size must be >= 1 on every axis");
  EXPECT_REFUSED(ValueError, nn::Conv1d(conv<nn::Conv1d>(1, 1, -3)), "nn::Conv1d: kernel_size must be >= 1");
  EXPECT_REFUSED(ValueError, nn::Linear({.in_features = -1, .out_features = 1}),
                 "nn::Linear: in_features and out_features must be >= 0, got -1 and 1");
  EXPECT_REFUSED(ValueError, nn::Linear({.in_features = 1, .out_features = -1}),
                 "nn::Linear: in_features and out_features must be >= 0, got 1 and -1");

  EXPECT_REFUSED(ValueError, nn::GroupNorm({.num_groups = 3, .num_channels = 4}),
                 "nn::GroupNorm: num_groups and num_channels must be positive");
  EXPECT_REFUSED(ValueError, nn::GroupNorm({.num_groups = 0, .num_channels = 4}),
                 "divisible by num_groups, got 0 and 4");
  EXPECT_REFUSED(ShapeError, nn::LayerNorm({.normalized_shape = Shape{}}),
                 "nn::LayerNorm: normalized_shape must name at least one");
  EXPECT_REFUSED(ValueError, nn::LayerNorm({.normalized_shape = {2}, .eps = -1}),
                 "nn::LayerNorm: eps must be >= 0, got -1");
  EXPECT_REFUSED(ValueError, nn::InstanceNorm2d({.num_features = 0}),
                 "nn::InstanceNorm2d: num_features must be positive, got 0");
  EXPECT_REFUSED(ValueError, nn::BatchNorm3d({.num_features = 0}),
                 "nn::BatchNorm3d: num_features must be positive, got 0");
  EXPECT_REFUSED(ValueError, nn::BatchNorm3d({.num_features = 1, .eps = -1}),
                 "nn::BatchNorm3d: eps must be >= 0, got -1");
  EXPECT_REFUSED(ValueError, nn::BatchNorm3d({.num_features = 1, .momentum = NAN}),
                 "nn::BatchNorm3d: momentum must be finite, got nan");
  EXPECT_REFUSED(ValueError, nn::BatchNorm3d({.num_features = 1, .momentum = INFINITY}),
                 "nn::BatchNorm3d: momentum must be finite, got inf");
  for (const double p : {-0.1, 1.1, nan})
    EXPECT_REFUSED(ValueError, nn::Dropout({.p = p}), "nn::Dropout: p must be in [0, 1], got ");
}

/// The type of the error that f throws, and its message after the function's name.
template <class F>
std::pair<std::string, std::string> refusal(const std::string& function, F f) {
  try {
    f();
  } catch (const Error& error) {
    const std::string message = error.what();
    EXPECT_EQ(message.substr(0, message.find(": ")), function) << message;
    return {typeid(error).name(), message.substr(message.find(": "))};
  }
  ADD_FAILURE() << function << " threw nothing";
  return {};
}

/// The constructor throws the same error as the op, each with its own name.
template <class L, class Options, class Op>
void expect_same_refusal(const std::string& layer, const Options& options, const std::string& op, Op call) {
  EXPECT_EQ(refusal(layer, [&] { L l(options); }), refusal(op, call));
}

/// `value` on the axis `at` (counted cyclically), `others` on the others.
template <int dims>
nn::Spatial<dims> on_axis(int at, int64_t value, int64_t others) {
  if constexpr (dims == 1) return value;
  if constexpr (dims == 2) return at % 2 == 0 ? Pair(value, others) : Pair(others, value);
  if constexpr (dims == 3) {
    Triple t = others;
    t[at % 3] = value;
    return t;
  }
}

template <int dims>
void check_convolutions() {
  using Conv = nn::Conv<dims>;
  using Transposed = nn::ConvTranspose<dims>;
  using Numbers = nn::Spatial<dims>;
  Shape nines{1, 1}, twos{1, 1};
  for (int axis = 0; axis < dims; ++axis) nines.push_back(9), twos.push_back(2);
  const Tensor x = zeros(nines), w = zeros(twos);
  const std::string axes = std::to_string(dims) + "d";
  const auto check_transposed = [&](const typename Transposed::Options& o) {
    expect_same_refusal<Transposed>("nn::ConvTranspose" + axes, o, "conv_transpose" + axes,
                                    [&] { op_of<dims>(o, x, w, {}); });
  };
  const auto check_both = [&](const Numbers& stride, const Numbers& padding, const Numbers& dilation) {
    const auto o = conv<Conv>(1, 1, 2, stride, padding, dilation);
    expect_same_refusal<Conv>("nn::Conv" + axes, o, "conv" + axes, [&] { op_of<dims>(o, x, w, {}); });
    check_transposed(transposed<Transposed>(1, 1, 2, stride, padding, 0, dilation));
  };
  for (int at = 0; at < dims; ++at) {
    for (const int64_t stride : {0, -2}) check_both(on_axis<dims>(at, stride, 1), 0, 1);
    for (const int64_t padding : {int64_t{-1}, huge, huge / 2 + 1})
      check_both(1, on_axis<dims>(at, padding, 0), 1);
    for (const int64_t dilation : {0, -1}) check_both(1, 0, on_axis<dims>(at, dilation, 1));
    for (const int64_t padding : {int64_t{-1}, int64_t{3}, huge})
      check_transposed(
          transposed<Transposed>(1, 1, 2, on_axis<dims>(at, 3, 2), 0, on_axis<dims>(at, padding, 0)));
  }
}

TEST(LayersRefusalTest, ConvolutionsRefuseOptionsAsTheirOpsDo) {
  check_convolutions<1>();
  check_convolutions<2>();
  check_convolutions<3>();
  EXPECT_THROW(nn::Conv3d({.in_channels = 1, .out_channels = 1, .kernel_size = 3, .dilation = huge}),
               ShapeError);  // so large that no tap can be addressed
  EXPECT_NO_THROW(
      nn::Conv3d({.in_channels = 1, .out_channels = 1, .kernel_size = 1, .stride = huge, .dilation = huge}));
  EXPECT_NO_THROW(nn::ConvTranspose3d(
      {.in_channels = 1, .out_channels = 1, .kernel_size = 2, .output_padding = 2, .dilation = 3}));
}

TEST(LayersRefusalTest, PoolingAndUpsamplingRefuseOptionsAsTheirOpsDo) {
  const Tensor x = zeros({1, 1, 9, 9, 9});
  using Max = MaxPool3dOptions;
  using Avg = AvgPool3dOptions;
  const auto check_avg = [&](const Avg& o) {
    expect_same_refusal<nn::AvgPool3d>("nn::AvgPool3d", o, "avg_pool3d", [&] { avg_pool3d(x, o); });
  };
  for (const Max& o :
       {Max{.kernel_size = {2, 0, 2}}, Max{.kernel_size = 2, .stride = {1, 0, 1}},
        Max{.kernel_size = 2, .dilation = 0}, Max{.kernel_size = 3, .padding = {0, 2, 0}},
        Max{.kernel_size = 3, .padding = -1}, Max{.kernel_size = huge, .padding = huge / 2},
        Max{.kernel_size = 3, .dilation = huge / 2}, Max{.kernel_size = 2, .stride = Triple(huge)}}) {
    expect_same_refusal<nn::MaxPool3d>("nn::MaxPool3d", o, "max_pool3d", [&] { max_pool3d(x, o); });
    if (o.dilation == Triple(1))
      check_avg({.kernel_size = o.kernel_size, .stride = o.stride, .padding = o.padding});
  }
  check_avg({.kernel_size = 2, .divisor_override = 0});
  for (const Triple& size : {Triple(0), Triple(1, -1, 1)}) {
    expect_same_refusal<nn::AdaptiveAvgPool3d>("nn::AdaptiveAvgPool3d", size, "adaptive_avg_pool3d",
                                               [&] { adaptive_avg_pool3d(x, size); });
    expect_same_refusal<nn::AdaptiveMaxPool3d>("nn::AdaptiveMaxPool3d", size, "adaptive_max_pool3d",
                                               [&] { adaptive_max_pool3d(x, size); });
  }
  using Size = InterpolateOptions;
  for (const Size& o :
       {Size{}, Size{.size = 3, .scale_factor = 2}, Size{.scale_factor = {1, -1, 1}},
        Size{.scale_factor = nan}, Size{.size = {1, 0, 1}}, Size{.size = 3, .align_corners = true}})
    expect_same_refusal<nn::Upsample>("nn::Upsample", o, "interpolate", [&] { interpolate(x, o); });
}

TEST(LayersRefusalTest, InputsThatDoNotFitTheLayer) {
  nn::Conv3d conv({.in_channels = 2, .out_channels = 4, .kernel_size = 1});
  nn::ConvTranspose1d transposed({.in_channels = 2, .out_channels = 1, .kernel_size = 2});
  nn::Linear linear({.in_features = 2, .out_features = 1});
  nn::BatchNorm1d batch1({.num_features = 2});
  nn::BatchNorm2d batch2({.num_features = 2});
  nn::BatchNorm3d batch3({.num_features = 2});
  nn::InstanceNorm2d instance({.num_features = 2});
  nn::GroupNorm group({.num_groups = 1, .num_channels = 2});
  nn::LayerNorm layer({.normalized_shape = {2}});
  const auto refuses = [](auto& module, const Shape& input, const std::string& message) {
    EXPECT_REFUSED(ShapeError, module(ones(input)), message);
  };
  const std::string rule = "nn::Conv3d: the input must be (N, 2, D, H, W) or (2, D, H, W), got ";
  refuses(conv, {5, 5, 5}, rule + "(5,5,5)");
  refuses(conv, {1, 5, 5, 5}, rule + "(1,5,5,5)");
  refuses(conv, {1, 3, 5, 5, 5}, rule + "(1,3,5,5,5)");
  refuses(conv, {2}, rule + "(2,)");
  refuses(transposed, {5}, "nn::ConvTranspose1d: the input must be (N, 2, L) or (2, L), got (5,)");
  const std::string last = "nn::Linear: the input's last size must be in_features = 2, got shape ";
  refuses(linear, {4}, last + "(4,)");
  refuses(linear, {}, last + "()");

  refuses(batch1, {2, 2, 2, 2}, "nn::BatchNorm1d: the input must be (N, 2, L) or without L, got (2,2,2,2)");
  refuses(batch2, {2, 2}, "nn::BatchNorm2d: the input must be (N, 2, H, W), got (2,2)");
  refuses(batch3, {2, 2, 2, 2}, "nn::BatchNorm3d: the input must be (N, 2, D, H, W), got ");
  refuses(batch3, {2, 3, 2, 2, 2}, "nn::BatchNorm3d: the input must be (N, 2, D, H, W), got ");
  refuses(batch3, {1, 2, 1, 1, 1}, "nn::BatchNorm3d: ");
  EXPECT_EQ(batch3.num_batches_tracked.item<int64_t>(), 0);
  batch3.eval();
  EXPECT_EQ(batch3(ones({1, 2, 1, 1, 1})).numel(), 2);
  refuses(instance, {2, 3, 4, 4},
          "nn::InstanceNorm2d: the input must be (N, 2, H, W), or without N, got (2,3,4,4)");
  refuses(instance, {2, 2}, "nn::InstanceNorm2d: the input must be (N, 2, H, W)");
  refuses(instance, {1, 2, 1, 1}, "nn::InstanceNorm2d: ");
  refuses(group, {2, 3, 4}, "nn::GroupNorm: the input must be (N, 2, ...), got (2,3,4)");
  refuses(layer, {2, 3}, "nn::LayerNorm: ");
}

// LayersTest.RefuseOtherDtypesAndUndefinedInputs has all layers with parameters.
TEST(LayersRefusalTest, InputsOfAnotherDtype) {
  nn::Conv3d conv({.in_channels = 2, .out_channels = 4, .kernel_size = 1});
  nn::Dropout dropout;
  EXPECT_MESSAGE(DTypeError, conv(ones({1, 2, 5, 5, 5}, {f64})),
                 "nn::Conv3d: the input has dtype f64, the layer's parameters have f32; cast one: "
                 "input.to(f32) or layer.to(f64)");
  EXPECT_MESSAGE(DTypeError, conv(ones({1, 2, 5, 5, 5}, {i64})),
                 "nn::Conv3d: the input has dtype i64, the layer's parameters have f32; cast it: "
                 "input.to(f32)");
  EXPECT_REFUSED(DTypeError, dropout(ones({2}, {i64})), "nn::Dropout: ");
  EXPECT_REFUSED(ValueError, dropout(Tensor()), "nn::Dropout: argument 'input' is an undefined tensor");
}

TEST(LayersRefusalTest, ALayerThatWasMovedFrom) {
  nn::Linear linear({.in_features = 2, .out_features = 1});
  nn::Conv3d conv({.in_channels = 2, .out_channels = 1, .kernel_size = 1});
  const nn::Linear other_linear = std::move(linear);
  const nn::Conv3d other_conv = std::move(conv);
  const std::string reason = "argument 'weight' is an undefined tensor (default-constructed or moved from)";
  EXPECT_REFUSED(ValueError, linear.forward(ones({2})), "nn::Linear: " + reason);
  EXPECT_REFUSED(ValueError, conv.forward(ones({2, 1, 1, 1})), "nn::Conv3d: " + reason);
}

TEST(LayersRefusalTest, BatchNormRefusesAResultThatIsTooLargeBeforeItComputesStatistics) {
  nn::BatchNorm3d layer({.num_features = 1});
  const Tensor x = zeros({1, 1, 1, 1, 1}).expand({int64_t{1} << 45, 1, 1, 1, 1});
  EXPECT_REFUSED(OutOfMemoryError, layer.forward(x), "nn::BatchNorm3d: ");
  EXPECT_EQ(layer.num_batches_tracked.item<int64_t>(), 0);
}

}  // namespace
}  // namespace vox
