#include "tests/ops/pool3d_support.h"
#include "tests/support/test.h"

// Pooling by its other algorithms, with the same results: windows and strides far longer than the tensor,
// maxima without indices.

namespace vox {
namespace {

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
    const std::string what = str(axis, ": ", in, " ", k, s, p, d, ceil_mode);

    Doubles v;  // (C, D, H, W), with ties
    for (int64_t i = 0; i < planes * in; ++i) v.push_back(static_cast<double>(i * 7 % 5 - 2));
    Shape shape{planes, 1, 1, 1};
    shape[1 + axis] = in;
    Doubles max, max_grad(v.size()), mean[2], mean_grad[2] = {Doubles(v.size()), Doubles(v.size())};
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
    const MaxPool3dOptions max_options{
        .kernel_size = k, .stride = s, .padding = p, .dilation = d, .ceil_mode = ceil_mode};
    EXPECT_EQ(values(max_pool3d(dense, max_options)), max) << what;
    Tensor x = dense.detach().set_requires_grad();
    const Tensor y = max_pool3d(x, max_options);
    EXPECT_EQ(values(y), max) << what;
    EXPECT_EQ(values(vox::grad({vox::sum(y)}, {x})[0]), max_grad) << what;
    for (const bool count_padding : {false, true}) {
      if (dilation != 1) continue;
      const AvgPool3dOptions options{.kernel_size = k,
                                     .stride = s,
                                     .padding = p,
                                     .ceil_mode = ceil_mode,
                                     .count_include_pad = count_padding};
      if (kernel > in + 2 * padding) {
        EXPECT_THROW(avg_pool3d(x, options), ShapeError) << what;
        continue;
      }
      const Tensor z = avg_pool3d(x, options);
      EXPECT_EQ(values(z), mean[count_padding]) << what;
      const Doubles grad = values(vox::grad({vox::sum(z)}, {x})[0]);
      for (size_t i = 0; i < grad.size(); ++i) EXPECT_DOUBLE_EQ(grad[i], mean_grad[count_padding][i]) << what;
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
        value = k < 2 ? std::nan("") : k < 20 ? -inf : k < 22 ? inf : k;
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
