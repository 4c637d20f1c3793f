#include <voxgrad/core/factories.h>
#include <voxgrad/nn/conv.h>
#include <voxgrad/nn/layers.h>
#include <voxgrad/nn/linear.h>
#include <voxgrad/nn/norm.h>

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <string>
#include <typeinfo>
#include <utility>

#include "tests/support/errors.h"

// Layers refuse impossible options at construction, with the messages of their ops.

namespace vox {
namespace {

TEST(LayersRefusalTest, ImpossibleOptions) {
  using nn::Conv3d, nn::ConvTranspose3d, nn::Conv1d, nn::ConvTranspose2d, nn::Linear;
  EXPECT_THROW(Conv3d({.in_channels = 0, .out_channels = 1, .kernel_size = 1}), ValueError);
  EXPECT_THROW(Conv3d({.in_channels = 1, .out_channels = -1, .kernel_size = 1}), ValueError);
  EXPECT_THROW(Conv3d({.in_channels = 1, .out_channels = 1, .kernel_size = {1, 0, 1}}), ValueError);
  EXPECT_THROW(Conv3d({.in_channels = 3, .out_channels = 2, .kernel_size = 1, .groups = 2}), ValueError);
  EXPECT_THROW(ConvTranspose3d({.in_channels = 2, .out_channels = 3, .kernel_size = 1, .groups = 2}),
               ValueError);
  EXPECT_THROW(ConvTranspose2d({.in_channels = 2, .out_channels = 2, .kernel_size = 1, .groups = 0}),
               ValueError);
  EXPECT_THROW(Conv1d({.in_channels = 1, .out_channels = 1, .kernel_size = -3}), ValueError);
  EXPECT_THROW(Conv1d({.in_channels = 1, .out_channels = 1, .kernel_size = 1, .tensor = {.dtype = i64}}),
               DTypeError);
  EXPECT_THROW(Linear({.in_features = -1, .out_features = 1}), ValueError);
  EXPECT_THROW(Linear({.in_features = 1, .out_features = -1}), ValueError);
  EXPECT_THROW(Linear({.in_features = 1, .out_features = 1, .tensor = {.dtype = u8}}), DTypeError);
  const std::string rule = ": needs a floating dtype, got i64; allowed are f32, f64, bf16 and f16";
  EXPECT_EQ(
      testing::message_of([] { Linear({.in_features = 1, .out_features = 1, .tensor = {.dtype = i64}}); }),
      "nn::Linear" + rule);
  EXPECT_EQ(testing::message_of([] {
              Conv3d({.in_channels = 1, .out_channels = 1, .kernel_size = 1, .tensor = {.dtype = i64}});
            }),
            "nn::Conv3d" + rule);
}

TEST(LayersRefusalTest, ALayerThatWasMovedFrom) {
  nn::Linear linear({.in_features = 2, .out_features = 1});
  nn::Conv3d conv({.in_channels = 2, .out_channels = 1, .kernel_size = 1});
  const nn::Linear other_linear = std::move(linear);
  const nn::Conv3d other_conv = std::move(conv);
  const std::string reason = "argument 'weight' is an undefined tensor (default-constructed or moved from)";
  EXPECT_EQ(testing::message_of([&] { linear.forward(ones({2})); }), "nn::Linear: " + reason);
  EXPECT_EQ(testing::message_of([&] { conv.forward(ones({2, 1, 1, 1})); }), "nn::Conv3d: " + reason);
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
template <class Layer, class Op>
void expect_same_refusal(const char* layer, Layer construct, const char* op, Op call) {
  EXPECT_EQ(refusal(layer, construct), refusal(op, call));
}

constexpr int64_t huge = std::numeric_limits<int64_t>::max();

TEST(LayersRefusalTest, ConvolutionsRefuseStepsAsTheirOpsDo) {
  const Tensor x1 = zeros({1, 1, 9}), x2 = zeros({1, 1, 9, 9}), x3 = zeros({1, 1, 9, 9, 9});
  const Tensor w1 = zeros({1, 1, 2}), w2 = zeros({1, 1, 2, 2}), w3 = zeros({1, 1, 2, 2, 2});
  struct Steps {
    int64_t stride = 1, padding = 0, dilation = 1;
  };
  for (const auto& [s, p, d] :
       {Steps{.stride = 0}, Steps{.stride = -2}, Steps{.padding = -1}, Steps{.dilation = 0},
        Steps{.dilation = -1}, Steps{.padding = huge}, Steps{.padding = huge / 2 + 1}}) {
    expect_same_refusal(
        "nn::Conv1d",
        [&] {
          nn::Conv1d({1, 1, 2, s, p, d});
        },  //
        "conv1d",
        [&] {
          conv1d(x1, w1, {}, {s, p, d});
        });
    expect_same_refusal(
        "nn::Conv2d",
        [&] {
          nn::Conv2d({1, 1, 2, {s, 1}, {p, 0}, {1, d}});
        },  //
        "conv2d",
        [&] {
          conv2d(x2, w2, {}, {{s, 1}, {p, 0}, {1, d}});
        });
    expect_same_refusal(
        "nn::Conv3d",
        [&] {
          nn::Conv3d({1, 1, 2, {1, s, 1}, {0, 0, p}, {d, 1, 1}});
        },  //
        "conv3d",
        [&] {
          conv3d(x3, w3, {}, {{1, s, 1}, {0, 0, p}, {d, 1, 1}});
        });
    expect_same_refusal(
        "nn::ConvTranspose1d",
        [&] {
          nn::ConvTranspose1d({.in_channels = 1,
                               .out_channels = 1,
                               .kernel_size = 2,
                               .stride = s,
                               .padding = p,
                               .dilation = d});
        },
        "conv_transpose1d",
        [&] { conv_transpose1d(x1, w1, {}, {.stride = s, .padding = p, .dilation = d}); });
    expect_same_refusal(
        "nn::ConvTranspose2d",
        [&] {
          nn::ConvTranspose2d({.in_channels = 1,
                               .out_channels = 1,
                               .kernel_size = 2,
                               .stride = {1, s},
                               .padding = {0, p},
                               .dilation = {d, 1}});
        },
        "conv_transpose2d",
        [&] {
          conv_transpose2d(x2, w2, {}, {.stride = {1, s}, .padding = {0, p}, .dilation = {d, 1}});
        });
    expect_same_refusal(
        "nn::ConvTranspose3d",
        [&] {
          nn::ConvTranspose3d({.in_channels = 1,
                               .out_channels = 1,
                               .kernel_size = 2,
                               .stride = s,
                               .padding = p,
                               .dilation = d});
        },
        "conv_transpose3d",
        [&] { conv_transpose3d(x3, w3, {}, {.stride = s, .padding = p, .dilation = d}); });
  }
  EXPECT_THROW(nn::Conv3d({.in_channels = 1, .out_channels = 1, .kernel_size = 3, .dilation = huge}),
               ShapeError);  // so large that no tap can be addressed
  EXPECT_NO_THROW(
      nn::Conv3d({.in_channels = 1, .out_channels = 1, .kernel_size = 1, .stride = huge, .dilation = huge}));
}

TEST(LayersRefusalTest, TransposedConvolutionsRefuseOutputPaddingAsTheirOpsDo) {
  const Tensor x1 = zeros({1, 1, 9}), x2 = zeros({1, 1, 9, 9}), x3 = zeros({1, 1, 9, 9, 9});
  const Tensor w1 = zeros({1, 1, 2}), w2 = zeros({1, 1, 2, 2}), w3 = zeros({1, 1, 2, 2, 2});
  for (const int64_t p : {int64_t{-1}, int64_t{3}, huge}) {
    expect_same_refusal(
        "nn::ConvTranspose1d",
        [&] {
          nn::ConvTranspose1d(
              {.in_channels = 1, .out_channels = 1, .kernel_size = 2, .stride = 3, .output_padding = p});
        },
        "conv_transpose1d", [&] { conv_transpose1d(x1, w1, {}, {.stride = 3, .output_padding = p}); });
    expect_same_refusal(
        "nn::ConvTranspose2d",
        [&] {
          nn::ConvTranspose2d(
              {.in_channels = 1, .out_channels = 1, .kernel_size = 2, .stride = 3, .output_padding = {0, p}});
        },  //
        "conv_transpose2d",
        [&] {
          conv_transpose2d(x2, w2, {}, {.stride = 3, .output_padding = {0, p}});
        });
    expect_same_refusal(
        "nn::ConvTranspose3d",
        [&] {
          nn::ConvTranspose3d({.in_channels = 1,
                               .out_channels = 1,
                               .kernel_size = 2,
                               .stride = {3, 1, 2},
                               .output_padding = {p, 0, 0}});
        },
        "conv_transpose3d",
        [&] {
          conv_transpose3d(x3, w3, {}, {.stride = {3, 1, 2}, .output_padding = {p, 0, 0}});
        });
  }
  EXPECT_NO_THROW(nn::ConvTranspose3d(
      {.in_channels = 1, .out_channels = 1, .kernel_size = 2, .output_padding = 2, .dilation = 3}));
}

TEST(LayersRefusalTest, PoolingAndUpsamplingRefuseOptionsAsTheirOpsDo) {
  const Tensor x = zeros({1, 1, 9, 9, 9});
  using Max = MaxPool3dOptions;
  for (const Max& o :
       {Max{.kernel_size = {2, 0, 2}}, Max{.kernel_size = 2, .stride = {1, 0, 1}},
        Max{.kernel_size = 2, .dilation = 0}, Max{.kernel_size = 3, .padding = {0, 2, 0}},
        Max{.kernel_size = 3, .padding = -1}, Max{.kernel_size = huge, .padding = huge / 2},
        Max{.kernel_size = 3, .dilation = huge / 2}, Max{.kernel_size = 2, .stride = Triple(huge)}}) {
    expect_same_refusal(
        "nn::MaxPool3d", [&] { nn::MaxPool3d{o}; }, "max_pool3d", [&] { max_pool3d(x, o); });
    if (o.dilation != Triple(1)) continue;
    const AvgPool3dOptions avg{o.kernel_size, o.stride, o.padding};
    expect_same_refusal(
        "nn::AvgPool3d", [&] { nn::AvgPool3d{avg}; }, "avg_pool3d", [&] { avg_pool3d(x, avg); });
  }
  const AvgPool3dOptions avg{.kernel_size = 2, .divisor_override = 0};
  expect_same_refusal(
      "nn::AvgPool3d", [&] { nn::AvgPool3d{avg}; }, "avg_pool3d", [&] { avg_pool3d(x, avg); });
  for (const Triple& size : {Triple(0), Triple(1, -1, 1)}) {
    expect_same_refusal(
        "nn::AdaptiveAvgPool3d", [&] { nn::AdaptiveAvgPool3d{size}; }, "adaptive_avg_pool3d",
        [&] { adaptive_avg_pool3d(x, size); });
    expect_same_refusal(
        "nn::AdaptiveMaxPool3d", [&] { nn::AdaptiveMaxPool3d{size}; }, "adaptive_max_pool3d",
        [&] { adaptive_max_pool3d(x, size); });
  }
  using Size = InterpolateOptions;
  for (const Size& o : {Size{}, Size{.size = 3, .scale_factor = 2}, Size{.scale_factor = {1, -1, 1}},
                        Size{.scale_factor = std::nan("")}, Size{.size = {1, 0, 1}},
                        Size{.size = 3, .align_corners = true}}) {
    expect_same_refusal(
        "nn::Upsample", [&] { nn::Upsample{o}; }, "interpolate", [&] { interpolate(x, o); });
  }
}

TEST(LayersRefusalTest, InputsThatDoNotFitTheLayer) {
  const auto message = [](auto&& layer, const Tensor& input) -> std::string {
    try {
      layer(input);
    } catch (const Error& error) {
      return error.what();
    }
    return "nothing was thrown";
  };
  nn::Conv3d conv({.in_channels = 2, .out_channels = 4, .kernel_size = 1});
  const std::string rule = "nn::Conv3d: the input must be (N, 2, D, H, W) or (2, D, H, W), got ";
  EXPECT_EQ(message(conv, ones({5, 5, 5})), rule + "(5,5,5)");
  EXPECT_EQ(message(conv, ones({1, 5, 5, 5})), rule + "(1,5,5,5)");
  EXPECT_EQ(message(conv, ones({1, 3, 5, 5, 5})), rule + "(1,3,5,5,5)");
  EXPECT_EQ(message(conv, ones({2})), rule + "(2,)");
  EXPECT_EQ(
      message(conv, ones({1, 2, 5, 5, 5}, {.dtype = f64})),
      "nn::Conv3d: the input has dtype f64, the layer's parameters have f32; cast one: input.to(f32) or "
      "layer.to(f64)");
  EXPECT_EQ(message(conv, ones({1, 2, 5, 5, 5}, {.dtype = i64})),
            "nn::Conv3d: the input has dtype i64, the layer's parameters have f32; cast it: input.to(f32)");
  EXPECT_EQ(message(nn::ConvTranspose1d({.in_channels = 2, .out_channels = 1, .kernel_size = 2}), ones({5})),
            "nn::ConvTranspose1d: the input must be (N, 2, L) or (2, L), got (5,)");
  EXPECT_EQ(
      message(nn::Linear({.in_features = 2, .out_features = 1}), ones({2}, {.dtype = f64})),
      "nn::Linear: the input has dtype f64, the layer's parameters have f32; cast one: input.to(f32) or "
      "layer.to(f64)");
}

TEST(LayersRefusalTest, BatchNormRefusesAResultThatIsTooLargeBeforeItComputesStatistics) {
  nn::BatchNorm3d layer({.num_features = 1});
  const Tensor x = zeros({1, 1, 1, 1, 1}).expand({int64_t{1} << 45, 1, 1, 1, 1});
  try {
    layer.forward(x);
    FAIL() << "nothing was thrown";
  } catch (const OutOfMemoryError& error) {
    EXPECT_EQ(std::string(error.what()).find("nn::BatchNorm3d: "), 0u) << error.what();
  }
  EXPECT_EQ(layer.num_batches_tracked.item<int64_t>(), 0);
}

}  // namespace
}  // namespace vox
