#include "tests/ops/pool3d.h"

// Pooling on arguments for which kernels go different ways, with the same results: packets of cells, blocks
// of two, wide and adaptive windows, windows and strides far longer than the tensor, maxima without indices.

namespace vox {
namespace {

DEVICE_SUITE(Pool3dKernels);

// A thread of a GPU owns a packet of cells along W if whole packets fill the rows, and several threads share
// a wide window.
TEST_P(Pool3dKernels, PacketsOfCellsAndWideWindows) {
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
TEST_P(Pool3dKernels, ManyPlanesGiveWhatOneGives) {
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
TEST_P(Pool3dKernels, BlocksOfTwo) {
  for (const Shape& shape : {Shape{2, 1, 4, 4, 32}, Shape{1, 2, 5, 6, 16}, Shape{1, 1, 4, 7, 10},
                             Shape{2, 2, 2, 2, 9}, Shape{3, 3, 4, 8}}) {
    for (const int64_t depth : {1, 2}) {
      const Triple kernel{depth, 2, 2};
      for (const DType dtype : {f32, f64, bf16, f16}) {
        const auto of_shape = layouts(make(ties(shape), shape, dtype));
        for (const size_t layout : {0, 1})  // dense; unaligned
          expect_definition({shape, kernel, kernel, 0, 1, false, true}, of_shape[layout].tensor, true);
      }
    }
  }
}

// Each window is pooled alone, as the one window of a slice.
TEST_P(Pool3dKernels, AdaptiveWindowsAreSlices) {
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

// With one window, or one cell of a window, strides and dilations are never used, however long they are.
TEST_P(Pool3dKernels, StepsThatNobodyTakesMayBeAsLongAsTheyLike) {
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
TEST_P(Pool3dKernels, WindowsFarLongerThanTheTensor) {
  constexpr int64_t planes = 9;
  const auto check_axis = [](int axis, int64_t in, int64_t kernel, int64_t stride, int64_t padding,
                             int64_t dilation, bool ceil_mode) {
    Arguments a{{planes, 1, 1, 1}, 1, 1, 0, 1, ceil_mode, false};
    a.shape[1 + axis] = in, a.kernel[axis] = kernel, a.stride[axis] = stride;
    a.padding[axis] = padding, a.dilation[axis] = dilation;
    if (count_windows(a, axis) < 1) return;
    Doubles v;  // with ties
    for (int64_t i = 0; i < planes * in; ++i) v.push_back(static_cast<double>(i * 7 % 5 - 2));
    expect_definition(a, make(v, a.shape));
    a.count_include_pad = true;
    if (dilation == 1) expect_definition(a, make(v, a.shape));  // means
  };
  for (int axis = 0; axis < 3; ++axis)
    for (const int64_t in : {1, 2, 5})
      for (const auto& [kernel, stride, padding, dilation] : long_windows(in))
        for (const bool ceil_mode : {false, true})
          check_axis(axis, in, kernel, stride, padding, dilation, ceil_mode);
}

// The same on all axes at once, where products of their lengths do not fit 64 bits.
TEST_P(Pool3dKernels, WindowsFarLongerThanTheTensorOnAllAxes) {
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
TEST_P(Pool3dKernels, MaximaWithoutIndicesAreThoseWithIndices) {
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
           {MaxPool3dOptions{.kernel_size = 2}, MaxPool3dOptions{.kernel_size = 2, .padding = {1, 0, 0}},
            MaxPool3dOptions{.kernel_size = 3, .stride = 2, .padding = 1},
            MaxPool3dOptions{.kernel_size = 3, .stride = 2, .padding = 1, .ceil_mode = true},
            MaxPool3dOptions{.kernel_size = {1, 2, 3}, .stride = {1, 1, 2}, .padding = {0, 0, 1}},
            MaxPool3dOptions{.kernel_size = {4, 5, 3}, .stride = 2, .padding = {2, 1, 1}},
            MaxPool3dOptions{.kernel_size = 2, .stride = {1, 2, 1}, .padding = 1, .dilation = {2, 3, 4}}}) {
        const Tensor expected = max_pool3d(x.detach().set_requires_grad(), options);
        for (const int n : {1, 2, 8, 16}) {
          set_num_threads(n);
          EXPECT_TRUE(allclose(max_pool3d(x, options), expected, 0, 0, true)) << shape << dtype << n;
        }
        set_num_threads(threads);
      }
    }
  }
}

// A thread of a GPU computes several results along D if there are many, one if there are few, and cuts D
// between threads. Away from the ends, a part of the input gives the same bits alone.
TEST_P(Pool3dKernels, ManyCellsGiveWhatFewGive) {
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
