#include "tests/ops/pool3d.h"

// The values and gradients of pooling, by hand and by the definition.

namespace vox {
namespace {

class Pool3d : public DeviceTest {
 protected:
  /// One row of cells.
  static Tensor row(const Doubles& v, DType dtype = f64) {
    return make(v, {1, 1, 1, 1, static_cast<int64_t>(v.size())}, dtype);
  }
  static Doubles max(const Doubles& v, const MaxPool3dOptions& options) {
    return values(max_pool3d(row(v), options));
  }
  static Doubles avg(const Doubles& v, const AvgPool3dOptions& options) {
    return values(avg_pool3d(row(v), options));
  }
};
INSTANTIATE_TEST_SUITE_P(, Pool3d, devices(), device_name);

constexpr Triple w(int64_t k) { return {1, 1, k}; }  // a kernel or stride along W
constexpr Triple w_pad(int64_t p) { return {0, 0, p}; }

TEST_P(Pool3d, MaxByHand) {
  EXPECT_EQ(max({1, 3, 2, 5, 4}, {.kernel_size = w(2)}), (Doubles{3, 5}));
  EXPECT_EQ(max({1, 3, 2, 5, 4}, {.kernel_size = w(2), .ceil_mode = true}), (Doubles{3, 5, 4}));
  EXPECT_EQ(max({1, 3, 2, 5, 4}, {.kernel_size = w(2), .stride = w(1)}), (Doubles{3, 3, 5, 5}));
  EXPECT_EQ(max({-1, -3, -2, -5, -4}, {.kernel_size = w(2), .padding = w_pad(1)}), (Doubles{-1, -2, -4}));
  EXPECT_EQ(max({1, 3, 2, 5, 4}, {.kernel_size = w(2), .stride = w(1), .dilation = w(2)}),
            (Doubles{2, 5, 4}));
  // A fourth window would begin at cell 5, in the right padding: dropped.
  EXPECT_EQ(max({1, 3, 2, 5, 4}, {.kernel_size = w(2), .padding = w_pad(1), .ceil_mode = true}),
            (Doubles{1, 3, 5}));
  // One window, smaller than its kernel.
  EXPECT_EQ(max({1, 3}, {.kernel_size = w(3), .stride = w(2), .ceil_mode = true}), (Doubles{3}));
}

TEST_P(Pool3d, AvgByHand) {
  EXPECT_EQ(avg({1, 3, 2, 5, 4}, {.kernel_size = w(2)}), (Doubles{2, 3.5}));
  EXPECT_EQ(avg({1, 3, 2, 5, 4}, {.kernel_size = w(2), .ceil_mode = true}), (Doubles{2, 3.5, 4}));
  EXPECT_EQ(avg({1, 3, 2, 5, 4}, {.kernel_size = w(2), .padding = w_pad(1)}), (Doubles{0.5, 2.5, 4.5}));
  EXPECT_EQ(avg({1, 3, 2, 5, 4}, {.kernel_size = w(2), .padding = w_pad(1), .count_include_pad = false}),
            (Doubles{1, 2.5, 4.5}));
  // The last window covers cell 5, one cell of padding, and one beyond: divided by 2, or by 1.
  AvgPool3dOptions options{.kernel_size = w(3), .stride = w(2), .padding = w_pad(1), .ceil_mode = true};
  EXPECT_EQ(avg({1, 2, 3, 4, 5, 6}, options), (Doubles{1, 3, 5, 3}));
  options.count_include_pad = false;
  EXPECT_EQ(avg({1, 2, 3, 4, 5, 6}, options), (Doubles{1.5, 3, 5, 6}));
}

TEST_P(Pool3d, DivisorOverrideReplacesTheNumberOfCells) {
  AvgPool3dOptions options{.kernel_size = w(2), .padding = w_pad(1), .divisor_override = 4};
  EXPECT_EQ(avg({1, 3, 2, 5, 4}, options), (Doubles{0.25, 1.25, 2.25}));
  options.divisor_override = -1;
  EXPECT_EQ(avg({1, 3, 2, 5, 4}, options), (Doubles{-1, -5, -9}));
  Tensor x = make(Doubles(32, 1), {1, 1, 2, 4, 4}).set_requires_grad();
  const Tensor y = avg_pool3d(x, {.kernel_size = 2, .divisor_override = 2});
  EXPECT_EQ(values(y), Doubles(4, 4));
  EXPECT_EQ(values(vox::grad({y.sum()}, {x})[0]), Doubles(32, 0.5));
  const Tensor interleaved = ones({1, 2, 2, 2, 9}, {f64, device()}).permute({0, 4, 1, 2, 3});
  EXPECT_EQ(values(avg_pool3d(interleaved, {.kernel_size = 2, .divisor_override = 2})), Doubles(9, 4));
}

TEST_P(Pool3d, PaddingMakesTheSumOfNegativeZerosPositive) {
  for (const auto& [kernel, stride, padding] : {std::array{4, 4, 2}, {4, 5, 2}, {6, 7, 3}}) {
    const Doubles mean =
        avg({-0.0, -0.0, -0.0}, {.kernel_size = w(kernel), .stride = w(stride), .padding = w_pad(padding)});
    ASSERT_EQ(mean.size(), 1u);
    EXPECT_FALSE(std::signbit(mean[0])) << kernel << stride;
  }
}

TEST_P(Pool3d, AdaptiveByHand) {
  const auto max = [](const Doubles& v, int64_t out) { return values(adaptive_max_pool3d(row(v), w(out))); };
  const auto avg = [](const Doubles& v, int64_t out) { return values(adaptive_avg_pool3d(row(v), w(out))); };
  // Windows of 5 cells: 0 to 1, 1 to 3, 3 to 4.
  EXPECT_EQ(max({1, 3, 2, 5, 4}, 3), (Doubles{3, 5, 5}));
  EXPECT_EQ(avg({1, 4, 2, 6, 4}, 3), (Doubles{2.5, 4, 5}));
  EXPECT_EQ(avg({1, 3, 2, 6}, 2), (Doubles{2, 4}));
  EXPECT_EQ(max({1, 3, 2, 6}, 1), (Doubles{6}));
  EXPECT_EQ(avg({1, 3, 2, 6}, 1), (Doubles{3}));
  EXPECT_EQ(avg({1, 3}, 4), (Doubles{1, 1, 3, 3}));
  EXPECT_EQ(max({1, 3}, 3), (Doubles{1, 3, 3}));

  Tensor x = row({1, 3, 2, 5, 5}).set_requires_grad();
  adaptive_max_pool3d(x, w(3)).backward(row({1, 2, 4}));
  EXPECT_EQ(values(x.grad()), (Doubles{0, 1, 0, 6, 0}));
  x.zero_grad();
  adaptive_avg_pool3d(x, w(3)).backward(row({2, 3, 4}));
  EXPECT_EQ(values(x.grad()), (Doubles{1, 2, 1, 3, 2}));
  x.zero_grad();
  adaptive_max_pool3d(x, 1).backward(row({7}));
  EXPECT_EQ(values(x.grad()), (Doubles{0, 0, 0, 7, 0}));
}

TEST_P(Pool3d, FewerAxes) {
  const Tensor x = make({1, 3, 2, 5, 4, 6, 9, 8, 7}, {1, 3, 3});
  EXPECT_EQ(values(max_pool1d(x, {.kernel_size = 2, .stride = 1})), (Doubles{3, 3, 5, 6, 9, 8}));
  EXPECT_EQ(values(max_pool2d(x, {.kernel_size = {2, 3}, .stride = 1})), (Doubles{6, 9}));
  EXPECT_EQ(values(avg_pool1d(x, {.kernel_size = 3})), (Doubles{2, 5, 8}));
  EXPECT_EQ(values(avg_pool2d(x, {.kernel_size = {3, 1}, .padding = {1, 0}, .count_include_pad = false})),
            (Doubles{3, 3.5, 4}));
  EXPECT_EQ(values(adaptive_max_pool1d(x, 2)), (Doubles{3, 3, 5, 6, 9, 8}));
  EXPECT_EQ(values(adaptive_avg_pool1d(x, 1)), (Doubles{2, 5, 8}));
  EXPECT_EQ(values(adaptive_max_pool2d(x, {1, 3})), (Doubles{9, 8, 7}));
  EXPECT_EQ(values(adaptive_avg_pool2d(x, 1)), (Doubles{5}));
  EXPECT_EQ(adaptive_avg_pool2d(x.unsqueeze(0), {2, 1}).shape(), (Shape{1, 1, 2, 1}));
  EXPECT_ERRORS(ShapeError, max_pool1d(x.unsqueeze(0), {.kernel_size = 2}),
                adaptive_avg_pool2d(x.select(0, 0), 1));
  EXPECT_MESSAGE_BEGINS(ShapeError, max_pool2d(x, {.kernel_size = 4}), "max_pool2d: no window fits");
}

TEST_P(Pool3d, TheFirstMaximumOrLastNaNOfABlock) {
  Tensor x = make({nan, 1, 2, 2, nan, 3, 2, 1}, {1, 1, 1, 2, 4}, f32).set_requires_grad();
  const Tensor y = max_pool3d(x, {.kernel_size = {1, 2, 2}});
  EXPECT_TRUE(std::isnan(values(y)[0]));
  EXPECT_EQ(values(y)[1], 2);
  Tensor g = make({3, 5}, {1, 1, 1, 1, 2}, f32).set_requires_grad();
  const Tensor gx = vox::grad({y}, {x}, {.grad_outputs = {g}, .create_graph = true})[0];
  EXPECT_EQ(values(gx), (Doubles{0, 0, 5, 0, 3, 0, 0, 0}));
  const Tensor v = make({1, 2, 3, 4, 5, 6, 7, 8}, x.shape(), f32);
  EXPECT_EQ(values(vox::grad({gx}, {g}, {.grad_outputs = {v}})[0]), (Doubles{5, 3}));
}

TEST_P(Pool3d, TheFirstMaximumOrLastNaNTakesTheGradient) {
  for (const DType dtype : {f32, f64}) {
    Tensor x = row({2, 2, 1, nan, nan, 7, -inf, -inf}, dtype).set_requires_grad();
    Tensor y = max_pool3d(x, {.kernel_size = w(2)});
    const Doubles v = values(y);
    EXPECT_EQ(v[0], 2);
    EXPECT_TRUE(std::isnan(v[1]) && std::isnan(v[2]));
    EXPECT_EQ(v[3], -inf);
    y.backward(row({10, 20, 30, 40}, dtype));
    EXPECT_EQ(values(x.grad()), (Doubles{10, 0, 0, 20, 30, 0, 40, 0}));
    x.zero_grad();
    max_pool3d(x.slice(4, 3, 6), {.kernel_size = w(3)}).backward(row({5}, dtype));
    EXPECT_EQ(values(x.grad()), (Doubles{0, 0, 0, 0, 5, 0, 0, 0}));
  }
}

TEST_P(Pool3d, AWindowOverNoCell) {
  // Taps at -1 and 2 of two cells.
  Tensor x = row({1, 2}).set_requires_grad();
  Tensor y = max_pool3d(x, {.kernel_size = w(2), .padding = w_pad(1), .dilation = w(3)});
  EXPECT_EQ(values(y), (Doubles{-inf}));
  Tensor g = row({1}).set_requires_grad();
  const Tensor gx = vox::grad({y}, {x}, {.grad_outputs = {g}, .create_graph = true})[0];
  EXPECT_EQ(values(gx), (Doubles{0, 0}));
  EXPECT_EQ(values(vox::grad({gx}, {g}, {.grad_outputs = {row({3, 4})}})[0]), (Doubles{0}));
}

TEST_P(Pool3d, MatchesItsDefinitionOnRandomArguments) {
  std::mt19937 random(11);
  const auto pick = [&](int64_t low, int64_t high) {
    return low + static_cast<int64_t>(random() % static_cast<uint32_t>(high - low + 1));
  };
  int done = 0;
  while (done < 300) {
    Arguments a;
    a.shape = {pick(1, 2), pick(1, 2), pick(1, 7), pick(1, 7), pick(1, 7)};
    if (done % 5 == 0) a.shape.erase(0);
    for (int64_t i = 0; i < 3; ++i) {
      a.kernel[i] = pick(1, 4);
      a.stride[i] = pick(1, 3);
      a.padding[i] = pick(0, a.kernel[i] / 2);
      a.dilation[i] = done % 2 ? 1 : pick(1, 3);
    }
    a.ceil_mode = pick(0, 1) == 1;
    a.count_include_pad = pick(0, 1) == 1;
    if (count_windows(a, 0) == 0 || count_windows(a, 1) == 0 || count_windows(a, 2) == 0) {
      const Tensor x = zeros(a.shape, {f32, device()});
      EXPECT_THROW(max_pool3d(x, max_options(a)), ShapeError);
      continue;
    }
    SCOPED_TRACE(++done);
    const DType dtype = done % 3 ? f64 : f32;
    Doubles v(static_cast<size_t>(checked_numel("test", a.shape)));
    for (double& value : v) value = static_cast<double>(pick(-4, 4));  // many ties
    expect_definition(a, make(v, a.shape, dtype));
  }
}

TEST_P(Pool3d, AnEmptyBatchStaysEmpty) {
  Tensor x = zeros({0, 2, 4, 4, 4}, {f32, device()}).set_requires_grad();
  Tensor y = max_pool3d(x, {.kernel_size = 2}) + avg_pool3d(x, {.kernel_size = 2}) +
             adaptive_avg_pool3d(x, 2) + adaptive_max_pool3d(x, 1) + adaptive_avg_pool3d(x, 1);
  EXPECT_EQ(y.shape(), (Shape{0, 2, 2, 2, 2}));
  y.backward(zeros_like(y));
  EXPECT_EQ(x.grad().shape(), x.shape());
}

TEST_P(Pool3d, RefusesBadArguments) {
  const Tensor x = zeros({1, 1, 4, 4, 4}, {f32, device()});
  const int64_t huge = std::numeric_limits<int64_t>::max();
  EXPECT_ERRORS(
      ValueError, max_pool3d({}, {.kernel_size = 2}), max_pool3d(x, {.kernel_size = {2, 0, 2}}),
      max_pool3d(x, {.kernel_size = 2, .stride = Triple(0)}),
      max_pool3d(x, {.kernel_size = 2, .dilation = 0}), max_pool3d(x, {.kernel_size = 3, .padding = 2}),
      max_pool3d(x, {.kernel_size = 3, .padding = -1}), avg_pool3d(x, {.kernel_size = 3, .padding = 2}),
      avg_pool3d(x, {.kernel_size = 2, .divisor_override = 0}), adaptive_avg_pool3d({}, 1));
  EXPECT_ERRORS(ShapeError, max_pool3d(x.select(0, 0).select(0, 0), {.kernel_size = 2}),
                max_pool3d(x.slice(3, 0, 0), {.kernel_size = 1}), max_pool3d(x, {.kernel_size = 5}),
                max_pool3d(x, {.kernel_size = 3, .dilation = 2}), avg_pool3d(x, {.kernel_size = 5}),
                adaptive_avg_pool3d(x, {2, 0, 2}), adaptive_avg_pool3d(x, {2, 2, 0}),
                adaptive_max_pool3d(x, -1), adaptive_max_pool3d(x, {1, 1, huge}),
                adaptive_max_pool3d(x.slice(3, 0, 0), 1));
  EXPECT_ERRORS(Error, max_pool3d(x, {.kernel_size = huge}),
                max_pool3d(x, {.kernel_size = huge, .padding = huge / 2}),
                max_pool3d(x, {.kernel_size = 2, .dilation = huge}),
                max_pool3d(x, {.kernel_size = 3, .dilation = huge, .ceil_mode = true}),
                max_pool3d(x, {.kernel_size = 2, .stride = Triple(huge)}));
  // As in PyTorch, ceil_mode makes no room for the mean of a window larger than the padded input.
  EXPECT_THROW(avg({1, 3}, {.kernel_size = w(3), .stride = w(2), .ceil_mode = true}), ShapeError);
  EXPECT_EQ(avg({1}, {.kernel_size = w(3), .stride = w(2), .padding = w_pad(1), .ceil_mode = true}),
            (Doubles{1. / 3}));
}

}  // namespace
}  // namespace vox
