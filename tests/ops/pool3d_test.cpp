#include "tests/support/test.h"

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

struct Arguments {
  Shape shape;
  Triple kernel, stride, padding, dilation;
  bool ceil_mode, count_include_pad;
};

/// Counts windows along one axis one by one. Floor mode: those that end within input and padding. Ceil mode:
/// all that begin within input and left padding, up to the first that reaches the end.
int64_t count_windows(const Arguments& a, int64_t axis) {
  const int64_t in = a.shape[a.shape.rank() - 3 + axis], pad = a.padding[axis], stride = a.stride[axis];
  const int64_t extent = a.dilation[axis] * (a.kernel[axis] - 1) + 1, room = in + 2 * pad;
  int64_t n = 0;
  if (!a.ceil_mode) {
    while (n * stride + extent <= room) ++n;
  } else {
    while (n * stride + extent < room + stride && n * stride < in + pad) ++n;
  }
  return n;
}

struct Pooled {
  Shape shape;
  Doubles max, avg, max_grad, avg_grad;  // gradients for gradient() of the outputs

  /// 1, 2, 3, ...
  Doubles gradient() const {
    Doubles v(max.size());
    std::iota(v.begin(), v.end(), 1);
    return v;
  }
};

/// The cells of an axis in window `o`. However long the window is, each cell is asked once.
Ints covered_cells(const Arguments& a, int64_t axis, int64_t o) {
  const int64_t begin = o * a.stride[axis] - a.padding[axis], step = a.dilation[axis];
  Ints cells;
  for (int64_t i = std::max<int64_t>(begin, 0); i < a.shape[a.shape.rank() - 3 + axis]; ++i)
    if ((i - begin) % step == 0 && (i - begin) / step < a.kernel[axis]) cells.push_back(i);
  return cells;
}

/// The gradients of the outputs are 1, 2, 3, ..., or all 1.
Pooled pool_by_definition(const Arguments& a, const Doubles& x, bool ramp = true) {
  const int64_t first = a.shape.rank() - 3;
  const Triple in{a.shape[first], a.shape[first + 1], a.shape[first + 2]};
  const Triple out{count_windows(a, 0), count_windows(a, 1), count_windows(a, 2)};
  Pooled p;
  p.shape = a.shape;
  for (int64_t i = 0; i < 3; ++i) p.shape[first + i] = out[i];
  p.max_grad.resize(x.size());
  p.avg_grad.resize(x.size());
  for (int64_t i = 0; i < checked_numel("test", p.shape); ++i) {
    const int64_t n = i / (out.d * out.h * out.w);
    const Triple o{i / (out.h * out.w) % out.d, i / out.w % out.h, i % out.w};
    double best = -inf, sum = 0, within_padding = 1;
    std::optional<size_t> arg;
    std::vector<size_t> covered;
    for (const int64_t id : covered_cells(a, 0, o.d))
      for (const int64_t ih : covered_cells(a, 1, o.h))
        for (const int64_t iw : covered_cells(a, 2, o.w)) {
          const auto at = static_cast<size_t>(((n * in.d + id) * in.h + ih) * in.w + iw);
          covered.push_back(at);
          sum += x[at];
          if (x[at] > best) best = x[at], arg = at;
        }
    for (const int64_t axis : {0, 1, 2}) {  // of a mean, which has no dilation
      const int64_t begin = o[axis] * a.stride[axis] - a.padding[axis];
      within_padding *= static_cast<double>(std::min(a.kernel[axis], in[axis] + a.padding[axis] - begin));
    }
    const double divisor = a.count_include_pad ? within_padding : static_cast<double>(covered.size());
    const double g = ramp ? static_cast<double>(i + 1) : 1;
    p.max.push_back(best);
    p.avg.push_back(sum / divisor);
    if (arg) p.max_grad[*arg] += g;
    for (const size_t at : covered) p.avg_grad[at] += g / divisor;
  }
  return p;
}

MaxPool3dOptions max_options(const Arguments& a) {
  return {.kernel_size = a.kernel,
          .stride = a.stride,
          .padding = a.padding,
          .dilation = a.dilation,
          .ceil_mode = a.ceil_mode};
}
AvgPool3dOptions avg_options(const Arguments& a) {
  return {.kernel_size = a.kernel,
          .stride = a.stride,
          .padding = a.padding,
          .ceil_mode = a.ceil_mode,
          .count_include_pad = a.count_include_pad};
}

/// Whole numbers from -4 to 4: their sums are exact.
Doubles ties(const Shape& shape) {
  std::mt19937 random(7);
  Doubles v(static_cast<size_t>(checked_numel("test", shape)));
  for (double& value : v) value = static_cast<double>(random() % 9) - 4;
  return v;
}

/// In 16 bits without means; and the gradients of maxima are 1, since a ramp is not exact.
void expect_definition(const Arguments& a, const Tensor& input) {
  const DType dtype = input.dtype();
  SCOPED_TRACE(str(a.shape, a.kernel, a.stride, a.padding, a.dilation, a.ceil_mode, ' ', dtype));
  const bool of_16_bits = dtype != f32 && dtype != f64;
  const Pooled expected = pool_by_definition(a, values(input));
  Tensor x = input.detach().set_requires_grad();
  const Tensor max = max_pool3d(x, max_options(a));
  ASSERT_EQ(max.shape(), expected.shape);
  EXPECT_EQ(values(max), expected.max);
  EXPECT_EQ(values(max_pool3d(input, max_options(a))), expected.max);
  if (of_16_bits) {  // is each cell's gradient its number of windows?
    const Doubles ones = values(vox::grad({max.sum()}, {x})[0]);
    double sum = 0;
    for (size_t i = 0; i < ones.size(); ++i) {
      EXPECT_EQ(ones[i] == 0, expected.max_grad[i] == 0) << i;
      sum += ones[i];
    }
    EXPECT_EQ(sum, static_cast<double>(expected.max.size()));
    return;
  }
  const Tensor g = from_vector(expected.gradient(), expected.shape).to(dtype).to(input.device());
  EXPECT_EQ(values(vox::grad({max}, {x}, {.grad_outputs = {g}})[0]), expected.max_grad);
  if (a.dilation != Triple(1)) return;
  const auto fits = [&](int64_t i) { return a.kernel[i] <= x.size(x.rank() - 3 + i) + 2 * a.padding[i]; };
  if (!fits(0) || !fits(1) || !fits(2)) {
    EXPECT_THROW(avg_pool3d(x, avg_options(a)), ShapeError);
    return;
  }
  const Tensor avg = avg_pool3d(x, avg_options(a));
  ASSERT_EQ(avg.shape(), expected.shape);
  const double tolerance = dtype == f64 ? 1e-12 : 1e-5;
  expect_near(avg, expected.avg, tolerance);
  expect_near(vox::grad({avg}, {x}, {.grad_outputs = {g}})[0], expected.avg_grad, tolerance);
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

// A thread of a GPU owns a packet of cells along W if whole packets fill the rows, and several threads share
// a wide window.
TEST_P(Pool3d, PacketsOfCellsAndWideWindows) {
  const std::vector<Arguments> cases{
      {{2, 1, 7, 6, 16}, 3, 2, 1, 1, false, true},
      {{1, 2, 6, 9, 24}, {3, 3, 4}, {2, 1, 3}, {1, 1, 2}, 1, true, false},
      {{1, 1, 7, 8, 32}, {2, 3, 3}, {1, 2, 2}, {1, 1, 1}, {3, 2, 2}, false, true},
      {{1, 2, 5, 5, 8}, 5, 1, 2, 1, false, true},
      {{1, 1, 3, 5, 66}, 3, 2, 0, 1, false, true},
      {{1, 1, 4, 5, 48}, {2, 2, 7}, {1, 2, 3}, {1, 0, 3}, 1, true, true},
      {{1, 1, 3, 4, 64}, {3, 4, 22}, {1, 1, 21}, {1, 2, 0}, 1, false, false},
      {{2, 1, 1, 2, 133}, {1, 2, 120}, {1, 1, 4}, {0, 1, 9}, 1, true, false},
      {{1, 1, 1, 3, 260}, {1, 1, 250}, {1, 1, 5}, 0, 1, false, true}};
  for (const Arguments& a : cases)
    for (const DType dtype : {f32, f64, bf16, f16}) expect_definition(a, make(ties(a.shape), a.shape, dtype));
}

// A thread of a GPU owns several windows or cells along D if there are many.
TEST_P(Pool3d, ManyPlanesGiveWhatOneGives) {
  Tensor x = randn({8, 1, 33, 80, 128}, {.device = device()}).set_requires_grad();
  const auto check = [&](const auto& pool) {
    const Tensor y = pool(x), g = randn(y.shape(), {.device = device()});
    const Tensor gx = vox::grad({y}, {x}, {.grad_outputs = {g}})[0];
    for (const int64_t n : {0, 7}) {
      Tensor one = x.detach().slice(0, n, n + 1).set_requires_grad();
      const Tensor one_y = pool(one);
      EXPECT_EQ(values(one_y), values(y.slice(0, n, n + 1)));
      EXPECT_EQ(values(vox::grad({one_y}, {one}, {.grad_outputs = {g.slice(0, n, n + 1)}})[0]),
                values(gx.slice(0, n, n + 1)));
    }
  };
  check([](const Tensor& t) { return max_pool3d(t, {.kernel_size = 3, .stride = 1, .padding = 1}); });
  check([](const Tensor& t) { return avg_pool3d(t, {.kernel_size = 3, .stride = 1, .padding = 1}); });
  check([](const Tensor& t) { return max_pool3d(t, {.kernel_size = 3, .stride = 2, .padding = 1}); });
  check([](const Tensor& t) { return adaptive_max_pool3d(t, {7, 77, 100}); });
  check([](const Tensor& t) { return adaptive_avg_pool3d(t, {7, 77, 100}); });
}

// Windows of which a GPU moves several at a time, or that it reads cell by cell: odd sizes, unaligned memory.
TEST_P(Pool3d, BlocksOfTwo) {
  for (const Shape& shape : {Shape{2, 1, 4, 4, 32}, Shape{1, 2, 5, 6, 16}, Shape{1, 1, 4, 7, 10},
                             Shape{2, 2, 2, 2, 9}, Shape{3, 3, 4, 8}}) {
    for (const int64_t depth : {1, 2}) {
      const Triple kernel{depth, 2, 2};
      const Doubles v = ties(shape);
      const Pooled expected = pool_by_definition({shape, kernel, kernel, 0, 1, false, true}, v);
      for (const DType dtype : {f32, f64, bf16, f16}) {
        const Tensor aligned = make(v, shape, dtype), g = make(expected.gradient(), expected.shape, dtype);
        Doubles after_one = v;
        after_one.insert(after_one.begin(), 0);
        const Tensor unaligned =
            make(after_one, {std::ssize(after_one)}, dtype).slice(0, 1, std::ssize(after_one)).reshape(shape);
        for (const Tensor& t : {aligned, unaligned}) {
          Tensor x = t.detach().set_requires_grad();
          const Tensor max = max_pool3d(x, {.kernel_size = kernel});
          EXPECT_EQ(values(max), expected.max) << dtype << shape;
          EXPECT_EQ(values(max_pool3d(t, {.kernel_size = kernel})), expected.max) << dtype << shape;
          EXPECT_EQ(values(vox::grad({max}, {x}, {.grad_outputs = {g}})[0]), expected.max_grad)
              << dtype << shape;
          const Tensor avg = avg_pool3d(x, {.kernel_size = kernel});
          EXPECT_EQ(values(avg), expected.avg) << dtype << shape;
          EXPECT_EQ(values(vox::grad({avg}, {x}, {.grad_outputs = {g}})[0]), expected.avg_grad)
              << dtype << shape;
        }
      }
    }
  }
}

// Each window is pooled alone, as the one window of a slice.
TEST_P(Pool3d, AdaptiveWindowsAreSlices) {
  for (const Shape& shape : {Shape{2, 3, 5, 7, 6}, Shape{1, 2, 3, 4, 48}}) {
    const Doubles v = ties(shape);
    for (const Triple& out : {Triple{2, 3, 4}, Triple{5, 4, 3}, Triple{7, 9, 8}, Triple{1, 2, 6}}) {
      for (const DType dtype : {f32, f64, bf16, f16}) {
        const Tensor dense = make(v, shape, dtype);
        for (const Tensor& x :
             {dense, dense.permute({0, 2, 3, 4, 1}).contiguous().permute({0, 4, 1, 2, 3})}) {
          Tensor leaf = x.detach().set_requires_grad();
          const Tensor max = adaptive_max_pool3d(leaf, out), mean = adaptive_avg_pool3d(x, out);
          EXPECT_EQ(values(adaptive_max_pool3d(x, out)), values(max));
          ASSERT_EQ(max.shape(), (Shape{shape[0], shape[1], out.d, out.h, out.w}));
          Tensor ones = zeros_like(x);  // the number of windows whose maximum a cell is
          for (int64_t d = 0; d < out.d; ++d)
            for (int64_t h = 0; h < out.h; ++h)
              for (int64_t w = 0; w < out.w; ++w) {
                const Triple o{d, h, w};
                Tensor window = x, is_max = ones;
                for (int64_t i = 0; i < 3; ++i) {
                  const int64_t in = shape[2 + i], begin = o[i] * in / out[i];
                  const int64_t end = ((o[i] + 1) * in + out[i] - 1) / out[i];
                  window = window.slice(2 + i, begin, end), is_max = is_max.slice(2 + i, begin, end);
                }
                const auto at = [&](const Tensor& t) {
                  return values(t.slice(2, d, d + 1).slice(3, h, h + 1).slice(4, w, w + 1));
                };
                const Triple size{window.size(2), window.size(3), window.size(4)};
                Tensor part = window.detach().contiguous().set_requires_grad();
                const Tensor part_max = max_pool3d(part, {.kernel_size = size});
                EXPECT_EQ(at(max), values(part_max)) << out << o;
                EXPECT_EQ(at(mean), values(avg_pool3d(part, {.kernel_size = size}))) << out << o;
                is_max.copy_(is_max + vox::grad({part_max.sum()}, {part})[0]);
              }
          EXPECT_EQ(values(vox::grad({max.sum()}, {leaf})[0]), values(ones)) << out << dtype;
        }
      }
    }
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
  EXPECT_ERRORS(DTypeError, max_pool3d(x.to(i64), {.kernel_size = 2}),
                avg_pool3d(x.to(u8), {.kernel_size = 2}), adaptive_avg_pool3d(x.to(i64), 1));
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

// Other algorithms, with the same results: windows and strides far longer than the tensor, maxima without
// indices.

// With one window, or one cell of a window, strides and dilations are never used, however long they are.
TEST_P(Pool3d, StepsThatNobodyTakesMayBeAsLongAsTheyLike) {
  const Tensor x = randn({1, 17, 2, 2, 2}, {.device = device()});
  for (int axis = 0; axis < 3; ++axis) {
    Triple far = 1, two = 1;
    far[axis] = 1085102592571150095;  // times 17 it is -1
    two[axis] = 2;
    const auto max_at = [&](const Triple& stride, const Triple& dilation) {
      return max_pool3d(x, {.kernel_size = 1, .stride = stride, .dilation = dilation});
    };
    EXPECT_EQ(values(max_at(far, far)), values(max_at(two, 1))) << axis;
    const auto mean_at = [&](const Triple& stride) {
      return avg_pool3d(x, {.kernel_size = 1, .stride = stride});
    };
    EXPECT_EQ(values(mean_at(far)), values(mean_at(two))) << axis;
    const auto grad_at = [&](const Triple& stride) {
      Tensor leaf = x.detach().set_requires_grad();
      const Tensor y = max_pool3d(leaf, {.kernel_size = 1, .stride = stride});
      return values(vox::grad({vox::sum(y)}, {leaf})[0]);
    };
    EXPECT_EQ(grad_at(far), grad_at(two)) << axis;
  }
}

/// (kernel, stride, padding, dilation) for which the taps of a window begin, end and advance near the ends of
/// an axis.
std::set<std::array<int64_t, 4>> long_windows(int64_t in) {
  std::set<std::array<int64_t, 4>> found;
  for (const int64_t kernel :
       {int64_t{2}, int64_t{6}, int64_t{13}, int64_t{10'000'001}, int64_t{1} << 32, (int64_t{1} << 50) + 1}) {
    for (const int64_t padding : {kernel / 2, kernel / 2 - 1, kernel / 2 - 3, int64_t{0}}) {
      for (const int64_t dilation :
           {int64_t{1}, int64_t{2}, in, padding - 1, padding, padding + 1, padding + 3, int64_t{1} << 40}) {
        if (padding < 0 || dilation < 1 || dilation > (int64_t{1} << 58) / kernel) continue;
        for (const int64_t stride : {int64_t{1}, int64_t{3}, padding, padding + 1, padding + 4, kernel,
                                     (kernel - 1) * dilation - 2 * padding})
          if (stride >= 1) found.insert({kernel, stride, padding, dilation});
      }
    }
  }
  return found;
}

// Windows with far more taps than there are cells: each cell is tested for membership in window o. Neither
// time nor memory may grow with the kernel's length.
TEST_P(Pool3d, WindowsFarLongerThanTheTensor) {
  constexpr int64_t planes = 9;
  const auto check_axis = [](int axis, int64_t in, int64_t kernel, int64_t stride, int64_t padding,
                             int64_t dilation, bool ceil_mode) {
    Arguments a{{planes, 1, 1, 1}, 1, 1, 0, 1, ceil_mode, false};
    a.shape[1 + axis] = in, a.kernel[axis] = kernel, a.stride[axis] = stride;
    a.padding[axis] = padding, a.dilation[axis] = dilation;
    if (count_windows(a, axis) < 1) return;
    SCOPED_TRACE(str(axis, ": ", in, " ", a.kernel, a.stride, a.padding, a.dilation, ceil_mode));

    Doubles v;  // with ties
    for (int64_t i = 0; i < planes * in; ++i) v.push_back(static_cast<double>(i * 7 % 5 - 2));
    Tensor x = make(v, a.shape).set_requires_grad();
    Pooled expected = pool_by_definition(a, v, false);
    EXPECT_EQ(values(max_pool3d(x.detach(), max_options(a))), expected.max);
    const Tensor y = max_pool3d(x, max_options(a));
    EXPECT_EQ(values(y), expected.max);
    EXPECT_EQ(values(vox::grad({vox::sum(y)}, {x})[0]), expected.max_grad);
    for (const bool count_padding : {false, true}) {
      if (dilation != 1) continue;
      a.count_include_pad = count_padding;
      if (kernel > in + 2 * padding) {
        EXPECT_THROW(avg_pool3d(x, avg_options(a)), ShapeError);
        continue;
      }
      expected = pool_by_definition(a, v, false);
      const Tensor z = avg_pool3d(x, avg_options(a));
      EXPECT_EQ(values(z), expected.avg);
      const Doubles grad = values(vox::grad({vox::sum(z)}, {x})[0]);
      for (size_t i = 0; i < grad.size(); ++i) EXPECT_DOUBLE_EQ(grad[i], expected.avg_grad[i]);
    }
  };
  for (int axis = 0; axis < 3; ++axis)
    for (const int64_t in : {1, 2, 5})
      for (const auto& [kernel, stride, padding, dilation] : long_windows(in))
        for (const bool ceil_mode : {false, true})
          check_axis(axis, in, kernel, stride, padding, dilation, ceil_mode);
}

// The same on all axes at once, where products of their lengths do not fit 64 bits.
TEST_P(Pool3d, WindowsFarLongerThanTheTensorOnAllAxes) {
  const Tensor x = make({1, 2, 3, 4, 5, 6, 7, 8}, {1, 1, 2, 2, 2}).set_requires_grad();
  const int64_t kernel = int64_t{1} << 40;
  const Tensor y = max_pool3d(x, {.kernel_size = kernel, .stride = Triple(3), .padding = kernel / 2});
  EXPECT_EQ(values(y), (Doubles{8}));
  EXPECT_EQ(values(vox::grad({y}, {x})[0]), (Doubles{0, 0, 0, 0, 0, 0, 0, 1}));
  const AvgPool3dOptions mean{
      .kernel_size = kernel, .stride = Triple(3), .padding = kernel / 2, .count_include_pad = false};
  EXPECT_EQ(values(avg_pool3d(x, mean)), (Doubles{4.5}));
  EXPECT_EQ(values(vox::grad({avg_pool3d(x, mean)}, {x})[0]), Doubles(8, 0.125));
}

// Without a gradient the maximum is found by another algorithm than with one.
TEST_P(Pool3d, MaximaWithoutIndicesAreThoseWithIndices) {
  const auto same = [](const Tensor& a, const Tensor& b) {
    const Doubles x = values(a), y = values(b);
    ASSERT_EQ(x.size(), y.size());
    for (size_t i = 0; i < x.size(); ++i)
      ASSERT_TRUE(x[i] == y[i] || (std::isnan(x[i]) && std::isnan(y[i]))) << a.shape() << " at " << i;
  };
  const int threads = get_num_threads();
  for (const Shape& shape :
       {Shape{2, 9, 5, 6, 7}, Shape{1, 17, 9, 8, 64}, Shape{3, 11, 12, 33, 31}, Shape{2, 1, 4, 5, 70}}) {
    for (const DType dtype : {f32, f64, f16}) {
      std::mt19937 random(7);
      Doubles v(static_cast<size_t>(checked_numel("test", shape)));
      for (double& value : v) {
        const auto k = static_cast<double>(random() % 100);
        value = k < 2 ? nan : k < 20 ? -inf : k < 22 ? inf : k;
      }
      const Tensor x = make(v, shape, dtype);
      for (const MaxPool3dOptions& options :
           {MaxPool3dOptions{.kernel_size = 2}, MaxPool3dOptions{.kernel_size = 3, .stride = 2, .padding = 1},
            MaxPool3dOptions{.kernel_size = 3, .stride = 2, .padding = 1, .ceil_mode = true},
            MaxPool3dOptions{.kernel_size = {1, 2, 3}, .stride = {1, 1, 2}, .padding = {0, 0, 1}},
            MaxPool3dOptions{.kernel_size = {4, 5, 3}, .stride = 2, .padding = {2, 1, 1}},
            MaxPool3dOptions{.kernel_size = 2, .stride = {1, 2, 1}, .padding = 1, .dilation = {2, 3, 4}}}) {
        const Tensor expected = max_pool3d(x.detach().set_requires_grad(), options);
        for (const int n : {1, 2, 8, 16}) {
          set_num_threads(n);
          same(max_pool3d(x, options), expected);
        }
        set_num_threads(threads);
      }
    }
  }
}

// A thread of a GPU computes several results along D if there are many, one if there are few, and cuts D
// between threads. Away from the ends, a part of the input gives the same bits alone.
TEST_P(Pool3d, ManyCellsGiveWhatFewGive) {
  Tensor x = randn({1, 1, 130, 96, 130}, {.device = device()}).set_requires_grad();
  const Tensor g = randn(x.shape(), {.device = device()});
  const auto part = [](const Tensor& t, int64_t d, int64_t h, int64_t size) {
    return t.detach().slice(2, d, d + size).slice(3, h, h + size);
  };
  for (const bool is_max : {true, false}) {
    const auto pool = [&](const Tensor& t) {
      return is_max ? max_pool3d(t, {.kernel_size = 3, .stride = 1, .padding = 1})
                    : avg_pool3d(t, {.kernel_size = 3, .stride = 1, .padding = 1});
    };
    const Tensor y = pool(x), grad = vox::grad({y}, {x}, {.grad_outputs = {g}})[0];
    for (const int64_t begin : {0, 31, 62, 124}) {
      Tensor few = part(x, begin, 10, 6).set_requires_grad();
      const Tensor few_y = pool(few);
      const Tensor few_grad = vox::grad({few_y}, {few}, {.grad_outputs = {part(g, begin, 10, 6)}})[0];
      EXPECT_EQ(values(part(few_y, 1, 1, 4)), values(part(y, begin + 1, 11, 4)));
      EXPECT_EQ(values(part(few_grad, 2, 2, 2)), values(part(grad, begin + 2, 12, 2)));
    }
  }
}

}  // namespace
}  // namespace vox
