#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <functional>
#include <limits>
#include <optional>
#include <random>
#include <set>

#include <voxgrad/autograd/engine.h>
#include <voxgrad/autograd/gradcheck.h>
#include <voxgrad/core/factories.h>
#include <voxgrad/core/parallel.h>
#include <voxgrad/ops/elementwise.h>
#include <voxgrad/ops/pool3d.h>
#include <voxgrad/ops/reduce.h>
#include "tests/support/devices.h"

namespace {

using vox::AvgPool3dOptions;
using vox::DType;
using vox::MaxPool3dOptions;
using vox::Shape;
using vox::Tensor;
using vox::Triple;
using Values = std::vector<double>;
constexpr double inf = std::numeric_limits<double>::infinity();

Values values(const Tensor& t) { return t.detach().to(vox::f64).to_vector<double>(); }

class Pool3d : public vox::testing::DeviceTest {
 protected:
  static Tensor make(const Values& v, const Shape& shape, DType dtype = vox::f64) {
    return vox::from_vector<double>(v, shape).to(dtype).to(device());
  }
  /// One row of cells.
  static Tensor row(const Values& v, DType dtype = vox::f64) {
    return make(v, {1, 1, 1, 1, static_cast<int64_t>(v.size())}, dtype);
  }
  static Values max(const Values& v, const MaxPool3dOptions& options) {
    return values(vox::max_pool3d(row(v), options));
  }
  static Values avg(const Values& v, const AvgPool3dOptions& options) {
    return values(vox::avg_pool3d(row(v), options));
  }
};
INSTANTIATE_TEST_SUITE_P(, Pool3d, vox::testing::devices(), vox::testing::device_name);

constexpr Triple w(int64_t k) { return {1, 1, k}; }  // a kernel or stride along W
constexpr Triple w_pad(int64_t p) { return {0, 0, p}; }

TEST_P(Pool3d, MaxByHand) {
  EXPECT_EQ(max({1, 3, 2, 5, 4}, {.kernel_size = w(2)}), (Values{3, 5}));
  EXPECT_EQ(max({1, 3, 2, 5, 4}, {.kernel_size = w(2), .ceil_mode = true}), (Values{3, 5, 4}));
  EXPECT_EQ(max({1, 3, 2, 5, 4}, {.kernel_size = w(2), .stride = w(1)}), (Values{3, 3, 5, 5}));
  EXPECT_EQ(max({-1, -3, -2, -5, -4}, {.kernel_size = w(2), .padding = w_pad(1)}), (Values{-1, -2, -4}));
  EXPECT_EQ(max({1, 3, 2, 5, 4}, {.kernel_size = w(2), .stride = w(1), .dilation = w(2)}), (Values{2, 5, 4}));
  // A fourth window would begin at cell 5, in the right padding: dropped.
  EXPECT_EQ(max({1, 3, 2, 5, 4}, {.kernel_size = w(2), .padding = w_pad(1), .ceil_mode = true}),
            (Values{1, 3, 5}));
  // One window, smaller than its kernel.
  EXPECT_EQ(max({1, 3}, {.kernel_size = w(3), .stride = w(2), .ceil_mode = true}), (Values{3}));
}

TEST_P(Pool3d, AvgByHand) {
  EXPECT_EQ(avg({1, 3, 2, 5, 4}, {.kernel_size = w(2)}), (Values{2, 3.5}));
  EXPECT_EQ(avg({1, 3, 2, 5, 4}, {.kernel_size = w(2), .ceil_mode = true}), (Values{2, 3.5, 4}));
  EXPECT_EQ(avg({1, 3, 2, 5, 4}, {.kernel_size = w(2), .padding = w_pad(1)}), (Values{0.5, 2.5, 4.5}));
  EXPECT_EQ(avg({1, 3, 2, 5, 4}, {.kernel_size = w(2), .padding = w_pad(1), .count_include_pad = false}),
            (Values{1, 2.5, 4.5}));
  // The last window covers cell 5, one cell of padding, and one beyond: divided by 2, or by 1.
  AvgPool3dOptions options{.kernel_size = w(3), .stride = w(2), .padding = w_pad(1), .ceil_mode = true};
  EXPECT_EQ(avg({1, 2, 3, 4, 5, 6}, options), (Values{1, 3, 5, 3}));
  options.count_include_pad = false;
  EXPECT_EQ(avg({1, 2, 3, 4, 5, 6}, options), (Values{1.5, 3, 5, 6}));
}

TEST_P(Pool3d, TheFirstMaximumTakesTheGradientAndNaNWins) {
  for (const DType dtype : {vox::f32, vox::f64}) {
    const double nan = std::nan("");
    Tensor x = row({2, 2, 1, nan, nan, 7, -inf, -inf}, dtype).set_requires_grad();
    Tensor y = vox::max_pool3d(x, {.kernel_size = w(2)});
    const Values v = values(y);
    EXPECT_EQ(v[0], 2);
    EXPECT_TRUE(std::isnan(v[1]) && std::isnan(v[2]));
    EXPECT_EQ(v[3], -inf);
    y.backward(row({10, 20, 30, 40}, dtype));
    EXPECT_EQ(values(x.grad()), (Values{10, 0, 0, 20, 30, 0, 40, 0}));
    x.zero_grad();
    vox::max_pool3d(x.slice(4, 3, 6), {.kernel_size = w(3)}).backward(row({5}, dtype));
    EXPECT_EQ(values(x.grad()), (Values{0, 0, 0, 5, 0, 0, 0, 0}));
  }
}

TEST_P(Pool3d, AWindowOverNoCell) {
  // Taps at -1 and 2 of two cells.
  Tensor x = row({1, 2}).set_requires_grad();
  Tensor y = vox::max_pool3d(x, {.kernel_size = w(2), .padding = w_pad(1), .dilation = w(3)});
  EXPECT_EQ(values(y), (Values{-inf}));
  Tensor g = row({1}).set_requires_grad();
  const Tensor gx = vox::grad({y}, {x}, {.grad_outputs = {g}, .create_graph = true})[0];
  EXPECT_EQ(values(gx), (Values{0, 0}));
  EXPECT_EQ(values(vox::grad({gx}, {g}, {.grad_outputs = {row({3, 4})}})[0]), (Values{0}));
}

// ---- The definition, loop by loop -------------------------------------------------------------------------

struct Arguments {
  Shape shape;
  Triple kernel, stride, padding, dilation;
  bool ceil_mode, count_include_pad;
};

/// Windows along one axis, counted one at a time: in floor mode those that end within input and padding; in
/// ceil mode all that begin within input and left padding, up to the first that reaches the end.
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
  Values max, avg, max_grad, avg_grad;  // gradients for the gradients 1, 2, 3, ... of the outputs
};

Pooled pool_by_definition(const Arguments& a, const Values& x) {
  const int64_t first = a.shape.rank() - 3;
  const Triple in{a.shape[first], a.shape[first + 1], a.shape[first + 2]};
  const Triple out{count_windows(a, 0), count_windows(a, 1), count_windows(a, 2)};
  Pooled p;
  p.shape = a.shape;
  for (int64_t i = 0; i < 3; ++i) p.shape[first + i] = out[i];
  p.max_grad.resize(x.size());
  p.avg_grad.resize(x.size());
  const int64_t planes = static_cast<int64_t>(x.size()) / (in.d * in.h * in.w);
  for (int64_t n = 0; n < planes; ++n) {
    for (int64_t od = 0; od < out.d; ++od)
      for (int64_t oh = 0; oh < out.h; ++oh)
        for (int64_t ow = 0; ow < out.w; ++ow) {
          const Triple o{od, oh, ow};
          double best = -inf, sum = 0, cells = 0, within_padding = 0;
          std::optional<size_t> arg;
          std::vector<size_t> covered;
          for (int64_t kd = 0; kd < a.kernel.d; ++kd)
            for (int64_t kh = 0; kh < a.kernel.h; ++kh)
              for (int64_t kw = 0; kw < a.kernel.w; ++kw) {
                const Triple k{kd, kh, kw};
                Triple i;
                bool is_cell = true, is_padding = true;
                for (int64_t axis = 0; axis < 3; ++axis) {
                  i[axis] = o[axis] * a.stride[axis] - a.padding[axis] + k[axis] * a.dilation[axis];
                  is_cell = is_cell && i[axis] >= 0 && i[axis] < in[axis];
                  is_padding = is_padding && i[axis] < in[axis] + a.padding[axis];
                }
                within_padding += is_padding;
                if (!is_cell) continue;
                const auto at = static_cast<size_t>(((n * in.d + i.d) * in.h + i.h) * in.w + i.w);
                covered.push_back(at);
                cells += 1;
                sum += x[at];
                if (x[at] > best) best = x[at], arg = at;
              }
          const double divisor = a.count_include_pad ? within_padding : cells;
          const auto g = static_cast<double>(p.max.size() + 1);
          p.max.push_back(best);
          p.avg.push_back(sum / divisor);
          if (arg) p.max_grad[*arg] += g;
          for (const size_t at : covered) p.avg_grad[at] += g / divisor;
        }
  }
  return p;
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
      const Tensor x = vox::zeros(a.shape, {vox::f32, device()});
      EXPECT_THROW(vox::max_pool3d(x, {a.kernel, a.stride, a.padding, a.dilation, a.ceil_mode}),
                   vox::ShapeError);
      continue;
    }
    ++done;
    const DType dtype = done % 3 ? vox::f64 : vox::f32;
    const double tolerance = dtype == vox::f64 ? 1e-10 : 1e-3;
    Values v(static_cast<size_t>(vox::checked_numel("test", a.shape)));
    for (double& value : v) value = static_cast<double>(pick(-4, 4));  // many ties
    const Pooled expected = pool_by_definition(a, v);
    Values ramp(expected.max.size());
    for (size_t i = 0; i < ramp.size(); ++i) ramp[i] = static_cast<double>(i + 1);
    const Tensor g = make(ramp, expected.shape, dtype);
    Tensor x = make(v, a.shape, dtype).set_requires_grad();

    Tensor y = vox::max_pool3d(x, {a.kernel, a.stride, a.padding, a.dilation, a.ceil_mode});
    ASSERT_EQ(y.shape(), expected.shape) << done;
    EXPECT_EQ(values(y), expected.max) << done;
    EXPECT_EQ(values(vox::max_pool3d(x.detach(), {a.kernel, a.stride, a.padding, a.dilation, a.ceil_mode})),
              expected.max);
    y.backward(g);
    EXPECT_EQ(values(x.grad()), expected.max_grad) << done;

    if (a.dilation != Triple(1)) continue;
    x.zero_grad();
    y = vox::avg_pool3d(x, {a.kernel, a.stride, a.padding, a.ceil_mode, a.count_include_pad});
    ASSERT_EQ(y.shape(), expected.shape) << done;
    y.backward(g);
    const Values means = values(y), grads = values(x.grad());
    for (size_t i = 0; i < means.size(); ++i) EXPECT_NEAR(means[i], expected.avg[i], tolerance) << done;
    for (size_t i = 0; i < grads.size(); ++i) EXPECT_NEAR(grads[i], expected.avg_grad[i], tolerance) << done;
  }
}

// -----------------------------------------------------------------------------------------------------------

TEST_P(Pool3d, ViewsAndThreadsDoNotChangeABit) {
  const Tensor base = vox::randn({6, 5, 4, 3, 2}).to(device());
  const Tensor view = base.permute({4, 3, 2, 1, 0});
  const MaxPool3dOptions max_options{.kernel_size = {2, 3, 2}, .stride = 1, .padding = {1, 1, 0}};
  const AvgPool3dOptions avg_options{.kernel_size = {2, 3, 2}, .stride = 1, .padding = {1, 1, 0}};
  const Values max = values(vox::max_pool3d(view.contiguous(), max_options));
  const Values avg = values(vox::avg_pool3d(view.contiguous(), avg_options));
  const int threads = vox::get_num_threads();
  for (const int n : {1, 3}) {
    vox::set_num_threads(n);
    EXPECT_EQ(values(vox::max_pool3d(view, max_options)), max);
    EXPECT_EQ(values(vox::avg_pool3d(view, avg_options)), avg);
  }
  vox::set_num_threads(threads);
}

// Planes whose cells lie side by side are read as they lie (on the CPU, without gradient).
// One window is no step away from another, nor one cell of a window, however long the steps.
TEST_P(Pool3d, StepsThatNobodyTakesMayBeAsLongAsTheyLike) {
  const Tensor dense = vox::randn({1, 17, 2, 2, 2}, {.device = device()});
  const Tensor last = dense.permute({0, 2, 3, 4, 1}).contiguous().permute({0, 4, 1, 2, 3});
  for (int axis = 0; axis < 3; ++axis) {
    Triple far = 1, two = 1;
    far[axis] = 1085102592571150095;  // times 17 it is -1
    two[axis] = 2;
    for (const Tensor& x : {dense, last}) {
      const auto max_at = [&](const Triple& stride, const Triple& dilation) {
        return vox::max_pool3d(x, {.kernel_size = 1, .stride = stride, .dilation = dilation});
      };
      EXPECT_EQ(values(max_at(far, far)), values(max_at(two, 1))) << axis;
      const auto mean_at = [&](const Triple& stride) {
        return vox::avg_pool3d(x, {.kernel_size = 1, .stride = stride});
      };
      EXPECT_EQ(values(mean_at(far)), values(mean_at(two))) << axis;
    }
    const auto grad_at = [&](const Triple& stride) {
      Tensor x = last.detach().set_requires_grad();
      return values(vox::grad({vox::sum(vox::max_pool3d(x, {.kernel_size = 1, .stride = stride}))}, {x})[0]);
    };
    EXPECT_EQ(grad_at(far), grad_at(two)) << axis;
  }
}

/// (kernel, stride, padding, dilation) of which a window's taps begin, end and step near the ends of an axis.
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

// Windows with far more taps than there are cells: each cell is asked whether it is one of window o's.
// Nothing may take time or memory with the kernel's length.
TEST_P(Pool3d, WindowsFarLongerThanTheTensor) {
  constexpr int64_t planes = 9;
  const auto check_axis = [](int axis, int64_t in, int64_t kernel, int64_t stride, int64_t padding,
                             int64_t dilation, bool ceil_mode) {
    const int64_t room = in + 2 * padding - (kernel - 1) * dilation - 1 + (ceil_mode ? stride - 1 : 0);
    int64_t out = room < 0 ? 0 : room / stride + 1;
    if (ceil_mode && out > 0 && (out - 1) * stride >= in + padding) --out;
    if (out < 1) return;
    const auto on_axis = [&](int64_t size, int64_t others) {
      Triple t = others;
      t[axis] = size;
      return t;
    };
    const Triple k = on_axis(kernel, 1), s = on_axis(stride, 1), p = on_axis(padding, 0),
                 d = on_axis(dilation, 1);
    const std::string what = vox::str(axis, ": ", in, " ", k, s, p, d, ceil_mode);

    Values v;  // (C, D, H, W), with ties
    for (int64_t i = 0; i < planes * in; ++i) v.push_back(static_cast<double>(i * 7 % 5 - 2));
    Shape shape{planes, 1, 1, 1};
    shape[1 + axis] = in;
    Values max, max_grad(v.size()), mean[2], mean_grad[2] = {Values(v.size()), Values(v.size())};
    for (int64_t n = 0; n < planes; ++n) {
      for (int64_t o = 0; o < out; ++o) {
        const int64_t begin = o * stride - padding;
        std::vector<size_t> covered;
        for (int64_t i = std::max<int64_t>(begin, 0); i < in; ++i) {
          if ((i - begin) % dilation == 0 && (i - begin) / dilation < kernel)
            covered.push_back(static_cast<size_t>(n * in + i));
        }
        double best = -inf, sum = 0;
        std::optional<size_t> arg;
        for (const size_t at : covered) {
          if (v[at] > best) best = v[at], arg = at;
          sum += v[at];
        }
        max.push_back(best);
        if (arg) max_grad[*arg] += 1;
        for (const bool count_padding : {false, true}) {
          const int64_t padded = std::min(begin + kernel, in + padding) - begin;
          const double divisor = static_cast<double>(count_padding ? padded : std::ssize(covered));
          mean[count_padding].push_back(sum / divisor);
          for (const size_t at : covered) mean_grad[count_padding][at] += 1 / divisor;
        }
      }
    }
    const Tensor dense = make(v, shape);
    for (const Tensor& view : {dense, dense.permute({1, 2, 3, 0}).contiguous().permute({3, 0, 1, 2})}) {
      EXPECT_EQ(values(vox::max_pool3d(view, {k, s, p, d, ceil_mode})), max) << what;
      Tensor x = view.detach().set_requires_grad();
      const Tensor y = vox::max_pool3d(x, {k, s, p, d, ceil_mode});
      EXPECT_EQ(values(y), max) << what;
      EXPECT_EQ(values(vox::grad({vox::sum(y)}, {x})[0]), max_grad) << what;
      for (const bool count_padding : {false, true}) {
        if (dilation != 1) continue;
        const Tensor z = vox::avg_pool3d(x, {k, s, p, ceil_mode, count_padding});
        EXPECT_EQ(values(z), mean[count_padding]) << what;
        const Values grad = values(vox::grad({vox::sum(z)}, {x})[0]);
        for (size_t i = 0; i < grad.size(); ++i)
          EXPECT_DOUBLE_EQ(grad[i], mean_grad[count_padding][i]) << what;
      }
    }
  };
  for (int axis = 0; axis < 3; ++axis)
    for (const int64_t in : {1, 2, 5})
      for (const auto& [kernel, stride, padding, dilation] : long_windows(in))
        for (const bool ceil_mode : {false, true})
          check_axis(axis, in, kernel, stride, padding, dilation, ceil_mode);
}

// Also on all axes at once, where products of their lengths would not fit 64 bits.
TEST_P(Pool3d, WindowsFarLongerThanTheTensorOnAllAxes) {
  const Tensor x = make({1, 2, 3, 4, 5, 6, 7, 8}, {1, 1, 2, 2, 2}).set_requires_grad();
  const int64_t kernel = int64_t{1} << 40;
  const Tensor y = vox::max_pool3d(x, {.kernel_size = kernel, .stride = Triple(3), .padding = kernel / 2});
  EXPECT_EQ(values(y), (Values{8}));
  EXPECT_EQ(values(vox::grad({y}, {x})[0]), (Values{0, 0, 0, 0, 0, 0, 0, 1}));
  const AvgPool3dOptions mean{
      .kernel_size = kernel, .stride = Triple(3), .padding = kernel / 2, .count_include_pad = false};
  EXPECT_EQ(values(vox::avg_pool3d(x, mean)), (Values{4.5}));
  EXPECT_EQ(values(vox::grad({vox::avg_pool3d(x, mean)}, {x})[0]), Values(8, 0.125));
}

TEST_P(Pool3d, InterleavedPlanesGiveWhatDenseOnesGive) {
  const std::vector<Shape> orders{{0, 2, 3, 4, 1}, {4, 3, 2, 1, 0}, {2, 0, 4, 3, 1},
                                  {3, 4, 2, 0, 1}, {2, 3, 4, 1, 0}, {0, 3, 1, 2, 4}};
  for (const Shape& shape : {Shape{2, 9, 5, 6, 7}, Shape{1, 33, 4, 3, 9}, Shape{17, 1, 3, 5, 4},
                             Shape{3, 16, 1, 7, 1}, Shape{4, 8, 8, 9, 10}}) {
    for (const DType dtype : {vox::f32, vox::f64, vox::bf16}) {
      const Tensor dense = vox::randn(shape, {.dtype = dtype}).to(device());
      for (const Shape& order : orders) {
        Shape back = order;
        for (int64_t i = 0; i < 5; ++i) back[order[i]] = i;
        const Tensor x = dense.permute(order).contiguous().permute(back);
        const Tensor part = x.slice(1, shape[1] / 3, shape[1]).slice(4, shape[4] / 3, shape[4]);
        for (const Tensor& view :
             {x, part, x.slice(0, 0, 1).reshape({shape[1], shape[2], shape[3], shape[4]})}) {
          for (const bool ceil_mode : {false, true}) {
            const auto same = [&](const auto& f) {
              EXPECT_EQ(values(f(view)), values(f(view.contiguous())))
                  << dtype << view.shape() << view.strides();
            };
            same([&](const Tensor& t) {
              return vox::max_pool3d(t, {.kernel_size = 1, .stride = {1, 2, 1}});
            });
            same([&](const Tensor& t) {
              return vox::max_pool3d(t, {{1, 2, 3}, Triple{2, 1, 3}, {0, 1, 1}, {2, 2, 1}, ceil_mode});
            });
            same([&](const Tensor& t) { return vox::max_pool3d(t, {3, Triple{2}, 1, 1, ceil_mode}); });
            for (const bool count_padding : {false, true}) {
              same([&](const Tensor& t) {
                return vox::avg_pool3d(t, {{3, 2, 2}, Triple{2, 1, 2}, {1, 1, 1}, ceil_mode, count_padding});
              });
            }
          }
        }
      }
    }
  }
}

// Without a gradient to come the maximum is found in other ways than with one: axis by axis, or row by row.
TEST_P(Pool3d, MaximaWithoutIndicesAreThoseWithIndices) {
  const auto same = [](const Tensor& a, const Tensor& b, const Shape& strides) {
    const Values x = values(a), y = values(b);
    ASSERT_EQ(x.size(), y.size());
    for (size_t i = 0; i < x.size(); ++i)
      ASSERT_TRUE(x[i] == y[i] || (std::isnan(x[i]) && std::isnan(y[i]))) << strides << " at " << i;
  };
  const int threads = vox::get_num_threads();
  for (const Shape& shape :
       {Shape{2, 9, 5, 6, 7}, Shape{1, 17, 9, 8, 64}, Shape{3, 11, 12, 33, 31}, Shape{2, 1, 4, 5, 70}}) {
    for (const DType dtype : {vox::f32, vox::f64, vox::f16}) {
      std::mt19937 random(7);
      Values v(static_cast<size_t>(vox::checked_numel("test", shape)));
      for (double& value : v) {
        const auto k = static_cast<double>(random() % 100);
        value = k < 2 ? std::nan("") : k < 20 ? -inf : k < 22 ? inf : k;
      }
      const Tensor dense = make(v, shape, dtype);
      for (const Shape& order : {Shape{0, 1, 2, 3, 4}, Shape{0, 2, 3, 4, 1}, Shape{4, 3, 2, 1, 0},
                                 Shape{3, 4, 2, 0, 1}, Shape{0, 3, 2, 4, 1}}) {
        Shape back = order;
        for (int64_t i = 0; i < 5; ++i) back[order[i]] = i;
        const Tensor x = dense.permute(order).contiguous().permute(back);
        for (const MaxPool3dOptions& options :
             {MaxPool3dOptions{.kernel_size = 2},
              MaxPool3dOptions{.kernel_size = 3, .stride = 2, .padding = 1},
              MaxPool3dOptions{.kernel_size = 3, .stride = 2, .padding = 1, .ceil_mode = true},
              MaxPool3dOptions{.kernel_size = {1, 2, 3}, .stride = {1, 1, 2}, .padding = {0, 0, 1}},
              MaxPool3dOptions{.kernel_size = {4, 5, 3}, .stride = 2, .padding = {2, 1, 1}},
              MaxPool3dOptions{.kernel_size = 2, .stride = {1, 2, 1}, .padding = 1, .dilation = {2, 3, 4}}}) {
          const Tensor expected = vox::max_pool3d(x.contiguous().set_requires_grad(), options);
          for (const int n : {1, 2, 8, 16}) {
            vox::set_num_threads(n);
            same(vox::max_pool3d(x, options), expected, x.strides());
          }
          vox::set_num_threads(threads);
        }
      }
    }
  }
}

// Windows of half a long axis, whose cells are too many to list.
TEST_P(Pool3d, LongWindowsOfInterleavedPlanes) {
  const Tensor x = vox::rand({1, 1, 1, 3000, 8}, {.device = GetParam()}).permute({0, 4, 1, 2, 3});
  const MaxPool3dOptions windows{.kernel_size = {1, 1, 1500}, .stride = 1};
  EXPECT_TRUE(values(vox::max_pool3d(x, windows)) == values(vox::max_pool3d(x.contiguous(), windows)));
}

TEST_P(Pool3d, AnEmptyBatchStaysEmpty) {
  Tensor x = vox::zeros({0, 2, 4, 4, 4}, {vox::f32, device()}).set_requires_grad();
  Tensor y = vox::max_pool3d(x, {.kernel_size = 2}) + vox::avg_pool3d(x, {.kernel_size = 2});
  EXPECT_EQ(y.shape(), (Shape{0, 2, 2, 2, 2}));
  y.backward(vox::zeros_like(y));
  EXPECT_EQ(x.grad().shape(), x.shape());
}

TEST_P(Pool3d, RefusesBadArguments) {
  const Tensor x = vox::zeros({1, 1, 4, 4, 4}, {vox::f32, device()});
  const int64_t huge = std::numeric_limits<int64_t>::max();
  EXPECT_THROW(vox::max_pool3d({}, {.kernel_size = 2}), vox::ValueError);
  EXPECT_THROW(vox::max_pool3d(x.select(0, 0).select(0, 0), {.kernel_size = 2}), vox::ShapeError);
  EXPECT_THROW(vox::max_pool3d(x.slice(3, 0, 0), {.kernel_size = 1}), vox::ShapeError);
  EXPECT_THROW(vox::max_pool3d(x.to(vox::i64), {.kernel_size = 2}), vox::DTypeError);
  EXPECT_THROW(vox::max_pool3d(x, {.kernel_size = {2, 0, 2}}), vox::ValueError);
  EXPECT_THROW(vox::max_pool3d(x, {.kernel_size = 2, .stride = Triple(0)}), vox::ValueError);
  EXPECT_THROW(vox::max_pool3d(x, {.kernel_size = 2, .dilation = 0}), vox::ValueError);
  EXPECT_THROW(vox::max_pool3d(x, {.kernel_size = 3, .padding = 2}), vox::ValueError);
  EXPECT_THROW(vox::max_pool3d(x, {.kernel_size = 3, .padding = -1}), vox::ValueError);
  EXPECT_THROW(vox::max_pool3d(x, {.kernel_size = 5}), vox::ShapeError);
  EXPECT_THROW(vox::max_pool3d(x, {.kernel_size = 3, .dilation = 2}), vox::ShapeError);
  EXPECT_THROW(vox::max_pool3d(x, {.kernel_size = huge}), vox::Error);
  EXPECT_THROW(vox::max_pool3d(x, {.kernel_size = huge, .padding = huge / 2}), vox::Error);
  EXPECT_THROW(vox::max_pool3d(x, {.kernel_size = 2, .dilation = huge}), vox::Error);
  EXPECT_THROW(vox::max_pool3d(x, {.kernel_size = 3, .dilation = huge, .ceil_mode = true}), vox::Error);
  EXPECT_THROW(vox::max_pool3d(x, {.kernel_size = 2, .stride = Triple(huge)}), vox::Error);
  EXPECT_THROW(vox::avg_pool3d(x, {.kernel_size = 3, .padding = 2}), vox::ValueError);
  EXPECT_THROW(vox::avg_pool3d(x, {.kernel_size = 5}), vox::ShapeError);
  EXPECT_THROW(vox::avg_pool3d(x.to(vox::u8), {.kernel_size = 2}), vox::DTypeError);
}

TEST_P(Pool3d, GradientsOfFirstAndSecondOrder) {
  // Distinct values, far apart: no ties, no kink within a step.
  Values v(2 * 4 * 3 * 5);
  for (size_t i = 0; i < v.size(); ++i) v[i] = static_cast<double>(i * 37 % v.size()) * 0.1;
  const Tensor x = make(v, {1, 2, 4, 3, 5}).set_requires_grad();
  const auto max = [](const Tensor& t) {
    return vox::max_pool3d(t, {.kernel_size = {2, 3, 2},
                               .stride = {{1, 2, 2}},
                               .padding = {1, 1, 0},
                               .dilation = {2, 1, 2},
                               .ceil_mode = true});
  };
  const auto avg = [](const Tensor& t) {
    return vox::avg_pool3d(t, {.kernel_size = {2, 3, 2},
                               .stride = {{1, 2, 2}},
                               .padding = {1, 1, 0},
                               .ceil_mode = true,
                               .count_include_pad = false});
  };
  using Inputs = std::vector<Tensor>;
  for (const std::function<Tensor(const Tensor&)>& f :
       {std::function<Tensor(const Tensor&)>(max), std::function<Tensor(const Tensor&)>(avg)}) {
    const vox::autograd::TensorFunction dense = [&](const Inputs& in) { return f(in[0]); };
    const auto strided = [&](const Inputs& in) { return f(in[0].permute({0, 1, 4, 3, 2})); };
    const auto expanded = [&](const Inputs& in) { return f(in[0].expand({3, 2, 4, 3, 5})); };
    for (const auto& g :
         {dense, vox::autograd::TensorFunction(strided), vox::autograd::TensorFunction(expanded)}) {
      EXPECT_TRUE(vox::autograd::gradcheck(g, {x}));
      EXPECT_TRUE(vox::autograd::gradgradcheck(g, {x}));
    }
  }
}

// One small geometry per kernel, for compute-sanitizer.
class Pool3dSanitize : public Pool3d {};
INSTANTIATE_TEST_SUITE_P(, Pool3dSanitize, vox::testing::devices(), vox::testing::device_name);

TEST_P(Pool3dSanitize, ForwardBackwardAndAgain) {
  Tensor x = make(Values(2 * 3 * 4 * 5, 1.0), {2, 1, 3, 4, 5}, vox::f32).set_requires_grad();
  for (const bool is_max : {true, false}) {
    Tensor y = is_max ? vox::max_pool3d(x, {.kernel_size = {2, 3, 3},
                                            .stride = 2,
                                            .padding = 1,
                                            .dilation = {1, 1, 2},
                                            .ceil_mode = true})
                      : vox::avg_pool3d(x, {.kernel_size = {2, 3, 3},
                                            .stride = 2,
                                            .padding = 1,
                                            .ceil_mode = true,
                                            .count_include_pad = false});
    Tensor g = vox::ones_like(y).set_requires_grad();
    const Tensor gx = vox::grad({y}, {x}, {.grad_outputs = {g}, .create_graph = true})[0];
    EXPECT_EQ(values(y), Values(static_cast<size_t>(y.numel()), 1.0));
    EXPECT_NEAR(values(gx.sum())[0], static_cast<double>(y.numel()), 1e-4);
    const Tensor gg = vox::grad({gx}, {g}, {.grad_outputs = {vox::ones_like(gx)}})[0];
    for (const double value : values(gg)) EXPECT_NEAR(value, 1, 1e-5);
  }
}

}  // namespace
