#pragma once

#include "tests/support/test.h"

// Pooling by its definition, window by window, for the tests of values and of kernels.

namespace vox {

/// Of max_pool3d and avg_pool3d.
struct Arguments {
  Shape shape;
  Triple kernel, stride, padding, dilation;
  bool ceil_mode, count_include_pad;
};

/// Counts windows along one axis one by one. Floor mode: those that end within input and padding. Ceil mode:
/// all that begin within input and left padding, up to the first that reaches the end.
inline int64_t count_windows(const Arguments& a, int64_t axis) {
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
inline Ints covered_cells(const Arguments& a, int64_t axis, int64_t o) {
  const int64_t begin = o * a.stride[axis] - a.padding[axis], step = a.dilation[axis];
  Ints cells;
  for (int64_t i = std::max<int64_t>(begin, 0); i < a.shape[a.shape.rank() - 3 + axis]; ++i)
    if ((i - begin) % step == 0 && (i - begin) / step < a.kernel[axis]) cells.push_back(i);
  return cells;
}

inline Pooled pool_by_definition(const Arguments& a, const Doubles& x) {
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
    const double g = static_cast<double>(i + 1);
    p.max.push_back(best);
    p.avg.push_back(sum / divisor);
    if (arg) p.max_grad[*arg] += g;
    for (const size_t at : covered) p.avg_grad[at] += g / divisor;
  }
  return p;
}

inline MaxPool3dOptions max_options(const Arguments& a) {
  return {.kernel_size = a.kernel,
          .stride = a.stride,
          .padding = a.padding,
          .dilation = a.dilation,
          .ceil_mode = a.ceil_mode};
}
inline AvgPool3dOptions avg_options(const Arguments& a) {
  return {.kernel_size = a.kernel,
          .stride = a.stride,
          .padding = a.padding,
          .ceil_mode = a.ceil_mode,
          .count_include_pad = a.count_include_pad};
}

/// Whole numbers from -4 to 4: their sums are exact.
inline Doubles ties(const Shape& shape) {
  std::mt19937 random(7);
  Doubles v(static_cast<size_t>(checked_numel("test", shape)));
  for (double& value : v) value = static_cast<double>(random() % 9) - 4;
  return v;
}

/// In 16 bits without means, and the gradients of maxima are 1, since a ramp is not exact; but all of it, and
/// exactly, in every dtype if the windows are `disjoint` and their numbers of cells powers of 2.
inline void expect_definition(const Arguments& a, const Tensor& input, bool disjoint = false) {
  const DType dtype = input.dtype();
  SCOPED_TRACE(str(a.shape, a.kernel, a.stride, a.padding, a.dilation, a.ceil_mode, ' ', dtype));
  const Pooled expected = pool_by_definition(a, values(input));
  Tensor x = input.detach().set_requires_grad();
  const Tensor max = max_pool3d(x, max_options(a));
  ASSERT_EQ(max.shape(), expected.shape);
  EXPECT_EQ(values(max), expected.max);
  EXPECT_EQ(values(max_pool3d(input, max_options(a))), expected.max);
  if (is_16_bit(dtype) && !disjoint) {  // is each cell's gradient its number of windows?
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
  const double tolerance = disjoint ? 0 : dtype == f64 ? 1e-14 : 1e-5;
  expect_near(avg, expected.avg, tolerance);
  expect_near(vox::grad({avg}, {x}, {.grad_outputs = {g}})[0], expected.avg_grad, tolerance);
}

}  // namespace vox
