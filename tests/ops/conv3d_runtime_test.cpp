#include <voxgrad/ops/conv3d_kernel.h>
#include <voxgrad/ops/conv3d_recorded.h>
#include <voxgrad/ops/dispatch.h>
#include <voxgrad/ops/kernels.h>

#include "tests/support/conv3d.h"
#include "tests/support/test.h"

// What holds at run time for any numbers: the run-time cases R2, R6 and R8 of the conv3d family.

namespace vox {
namespace {

constexpr ByDevice conv3d_kernel{"conv3d", &cpu::conv3d, VOX_CUDA(&cuda::conv3d)};
constexpr ByDevice transpose_kernel{"conv_transpose3d", &cpu::conv_transpose3d,
                                    VOX_CUDA(&cuda::conv_transpose3d)};
constexpr ByDevice weight_kernel{"conv3d_weight_grad", &cpu::conv3d_weight_grad,
                                 VOX_CUDA(&cuda::conv3d_weight_grad)};

class Conv3dRuntime : public DeviceTest {
 protected:
  static Tensor random(const Shape& shape, uint64_t seed) {
    Generator generator(seed);
    return randn(shape, {}, generator).to(device());
  }
  static Tensor of_nan(const Shape& shape) { return full(shape, testing::nan, on(f32)); }
};
INSTANTIATE_TEST_SUITE_P(, Conv3dRuntime, devices(), device_name);

/// The kernels that the device chooses, and its definition.
constexpr const char* kernels[]{"", "direct"};

/// All five outputs of the three passes.
struct Outputs {
  Tensor small, big, dweight, dweight_again, dbias_small, dbias_big;
};

Outputs run_kernels(const Conv3dGeometry& g, const Tensor& big, const Tensor& small, const Tensor& weight,
                    const Tensor& bias_small, const Tensor& bias_big, auto allocate) {
  Outputs o{allocate(g.small_shape()),  allocate(g.big_shape()),      allocate(g.weight_shape()),
            allocate(g.weight_shape()), allocate({g.small_channels}), allocate({g.big_channels})};
  const Device device = big.device();
  conv3d_kernel.on(device)(big, weight, bias_small, o.small, g, float32_precision());
  transpose_kernel.on(device)(small, weight, bias_big, o.big, g, float32_precision());
  weight_kernel.on(device)(big, small, o.dweight, o.dbias_small, Grid::small, g, float32_precision());
  weight_kernel.on(device)(big, small, o.dweight_again, o.dbias_big, Grid::big, g, float32_precision());
  return o;
}

// The sums of many channels stay in memory between chunks of them.
TEST_P(Conv3dRuntime, ManyChannelsAreTheSumOfFew) {
  const Tensor x = integer_tensor({1, 64, 2, 3, 3000}, 1, f32, device());
  const Tensor w = integer_tensor({3, 64, 3, 3, 3}, 2, f32, device());
  Tensor parts = zeros({1, 3, 2, 3, 3000}, x.options());
  for (int64_t c = 0; c < 64; c += 8)
    parts.add_(conv3d(x.slice(1, c, c + 8), w.slice(1, c, c + 8), {}, {.padding = 1}));
  EXPECT_TRUE(equal(conv3d(x, w, {}, {.padding = 1}), parts));
}

/// Larger than one tile and one block in every direction.
const TransposeCase tiled{"tiled",   2,         20,        12, {9, 10, 11}, {3, 2, 4}, {2, 1, 2},
                          {1, 0, 1}, {1, 0, 0}, {1, 2, 1}, 2};

TEST_P(Conv3dRuntime, SameBitsOnEveryRunAndThreadCount) {
  const Conv3dGeometry g = tiled.geometry();
  const Tensor big = random(g.big_shape(), 1), small = random(g.small_shape(), 2);
  const Tensor weight = random(g.weight_shape(), 3);
  const auto run = [&] {
    const Outputs o = run_kernels(g, big, small, weight, {}, {}, of_nan);
    Values all;
    for (const Tensor& t : {o.small, o.big, o.dweight, o.dbias_small, o.dbias_big}) {
      const Values v = values(t);
      all.insert(all.end(), v.begin(), v.end());
    }
    return all;
  };
  const int threads = get_num_threads();
  for (const char* kernel : kernels) {
    const ForceConv3dKernel only(kernel);
    const Values first = run();
    for (const double v : first) ASSERT_FALSE(std::isnan(v));
    for (const int n : {1, 2, 5, 8, 16, 1}) {
      set_num_threads(n);
      EXPECT_TRUE(run() == first) << n << " threads " << kernel;
    }
    set_num_threads(threads);
  }
}

TEST_P(Conv3dRuntime, EmptyBatch) {
  Tensor x = zeros({0, 2, 3, 3, 3}, on(f32)).set_requires_grad();
  Tensor w = random({2, 3, 2, 2, 2}, 1).set_requires_grad(), b = random({3}, 2).set_requires_grad();
  Tensor y = conv_transpose3d(x, w, b, {.stride = 2});
  EXPECT_EQ(y.shape(), (Shape{0, 3, 6, 6, 6}));
  y.backward(zeros(y.shape(), y.options()));
  EXPECT_EQ(x.grad().shape(), x.shape());
  EXPECT_EQ(values(w.grad()), Values(48, 0));
  EXPECT_EQ(values(b.grad()), Values(3, 0));
  EXPECT_EQ(conv3d(x, random({4, 2, 2, 2, 2}, 3)).shape(), (Shape{0, 4, 2, 2, 2}));
}

TEST_P(Conv3dRuntime, WithoutABatch) {
  Tensor x = random({2, 3, 2, 4}, 1).set_requires_grad();
  const Tensor w = random({2, 3, 2, 2, 2}, 2), b = random({3}, 3);
  Tensor y = conv_transpose3d(x, w, b, {.stride = 2});
  ASSERT_EQ(y.shape(), (Shape{3, 6, 4, 8}));
  EXPECT_EQ(values(y), values(conv_transpose3d(x.unsqueeze(0), w, b, {.stride = 2})));
  const Tensor gy = random(y.shape(), 4);
  y.backward(gy);
  ASSERT_EQ(x.grad().shape(), x.shape());
  EXPECT_EQ(values(x.grad()), values(conv3d(gy, w, {}, {.stride = 2})));
}

// R3: producer and consumer on a user's stream, without a wait on the host.
TEST(Conv3dStreamsCuda, WorkIsOrderedOnASideStream) {
  if (!has_cuda()) GTEST_SKIP() << "no CUDA device";
  const Tensor x = integer_tensor({2, 16, 24, 24, 24}, 1, f32, Device::cuda());
  Tensor w = integer_tensor({16, 8, 3, 3, 3}, 2, f32, Device::cuda()).set_requires_grad();
  const auto run = [&] {
    w.zero_grad();
    Tensor y = conv3d(conv_transpose3d(x, w, {}, {.stride = 2}), w, {}, {.stride = 2});
    y.backward(ones(y.shape(), y.options()));
    return std::array{y, w.grad().clone()};
  };
  const auto expected = run();
  vox::cuda::Stream side;
  side.wait(vox::cuda::current_stream());
  std::array<Tensor, 2> got;
  {
    vox::cuda::StreamGuard guard(side);
    got = run();
  }
  vox::cuda::current_stream().wait(side);
  for (size_t i = 0; i < 2; ++i) EXPECT_TRUE(values(got[i]) == values(expected[i])) << i;
}

void expect_same(const Values& got, const Values& expected, const char* what) {
  ASSERT_EQ(got.size(), expected.size());
  for (size_t i = 0; i < got.size(); ++i) {
    if (std::isnan(expected[i]))
      EXPECT_TRUE(std::isnan(got[i])) << what << " at " << i << ": " << got[i] << " for NaN";
    else
      EXPECT_EQ(got[i], expected[i]) << what << " at " << i;
  }
}

// An Inf reaches only outputs that a tap connects it to, not others in the halo or between the phases; Inf *
// 3 is Inf.
TEST_P(Conv3dRuntime, NonFiniteValuesReachWhatTheyTouch) {
  for (const TransposeCase& c : awkward_cases()) {
    const Conv3dGeometry g = c.geometry();
    const reference::Conv3d r = reference_of(g);
    for (const double bad : {inf, -inf, nan}) {
      for (int which = 0; which < 3; ++which) {
        SCOPED_TRACE(str(c.name, ", ", bad, " in operand ", which));
        Values big = integers(r.big_numel(), 1), small = integers(r.small_numel(), 2);
        Values weight = integers(r.weight_numel(), 3);
        Values& operand = which == 0 ? big : which == 1 ? small : weight;
        operand[operand.size() / 3] = bad;
        const Tensor b = tensor(big, g.big_shape(), f32, device());
        const Tensor s = tensor(small, g.small_shape(), f32, device());
        const Tensor w = tensor(weight, g.weight_shape(), f32, device());
        for (const char* kernel : kernels) {
          const ForceConv3dKernel only(kernel);
          const Outputs o = run_kernels(g, b, s, w, {}, {}, of_nan);
          expect_same(values(o.small), reference::conv3d(r, big, weight), "conv3d");
          expect_same(values(o.big), reference::conv_transpose3d(r, small, weight), "conv_transpose3d");
          expect_same(values(o.dweight), reference::weight_grad(r, big, small), "weight_grad");
        }
      }
    }
  }
}

// For compute-sanitizer.
// One small geometry per kernel and edge: 32- and 64-bit indices, all floating dtypes, with and without bias,
// volumes shorter and longer than a block. The memory of the outputs is wholly overwritten.

DEVICE_SUITE(Conv3dSanitize);

TEST_P(Conv3dSanitize, EveryKernelAndEdge) {
  std::vector<Conv3dGeometry> geometries;
  for (const auto& c : awkward_cases()) geometries.push_back(c.geometry());
  // Strides and dilations that need 64-bit indices, and a volume of more than one block.
  geometries.push_back(detail::conv_transpose3d_geometry(
      "far", {1, 2, 2, 1, 1}, {2, 1, 1, 2, 2},
      {.stride = {int64_t{1} << 40, 1, 1}, .padding = {int64_t{1} << 39, 0, 0}, .dilation = {1, 2, 1}}));
  geometries.push_back(
      detail::conv_transpose3d_geometry("long", {1, 5, 3, 7, 9}, {5, 3, 2, 3, 2}, {.stride = {1, 2, 2}}));
  for (const Conv3dGeometry& g : geometries) {
    const reference::Conv3d r = reference_of(g);
    for (const DType dtype : {f32, f64, bf16, f16}) {
      const auto make = [&](const Shape& shape, uint64_t seed) {
        return integer_tensor(shape, seed, dtype, device());
      };
      const Tensor big = make(g.big_shape(), 1), small = make(g.small_shape(), 2),
                   weight = make(g.weight_shape(), 3);
      const Values b = values(big), s = values(small), w = values(weight);
      const auto expect_equal = [dtype](const Tensor& got, const Values& exact) {
        EXPECT_EQ(values(got), rounded(exact, dtype));
      };
      for (const bool biased : {false, true}) {
        const Tensor bias_small = biased ? make({g.small_channels}, 4) : Tensor(),
                     bias_big = biased ? make({g.big_channels}, 5) : Tensor();
        const Values of_small = biased ? values(bias_small) : Values(),
                     of_big = biased ? values(bias_big) : Values();
        for (const char* kernel : kernels) {
          const ForceConv3dKernel only(kernel);
          const Outputs o = run_kernels(g, big, small, weight, bias_small, bias_big,
                                        [&](const Shape& shape) { return full(shape, nan, on(dtype)); });
          expect_equal(o.small, reference::conv3d(r, b, w, of_small));
          expect_equal(o.big, reference::conv_transpose3d(r, s, w, of_big));
          for (const Tensor& dweight :
               {o.dweight, o.dweight_again, detail::conv3d_weight_grad(big, small, g)})
            expect_equal(dweight, reference::weight_grad(r, b, s));
          expect_equal(o.dbias_small, reference::bias_grad(s, g.batch, g.small_channels, r.small_cells()));
          expect_equal(o.dbias_big, reference::bias_grad(b, g.batch, g.big_channels, r.big_cells()));
        }
      }
    }
  }
}

TEST_P(Conv3dSanitize, EmptyBatch) {
  const Tensor x = zeros({0, 2, 2, 2, 2}, on(f32)), w = zeros({2, 1, 2, 2, 2}, on(f32));
  EXPECT_EQ(conv_transpose3d(x, w).numel(), 0);
  EXPECT_EQ(values(conv3d_weight_grad(x, x, 1)), Values(4, 0));
}

class Conv3dGradient : public DeviceTest {
 protected:
  static Tensor leaf(const Shape& shape, uint64_t seed) {
    return integer_tensor(shape, seed, f64, device()).set_requires_grad();
  }
};
INSTANTIATE_TEST_SUITE_P(, Conv3dGradient, devices(), device_name);

// R1: a leaf's gradient is the same whichever other leaves need one.
TEST_P(Conv3dGradient, EachLeafAloneOrTogether) {
  for (const TransposeCase& c : awkward_cases()) {
    const Conv3dGeometry g = c.geometry();
    const reference::Conv3d r = reference_of(g);
    const Values x = integers(r.small_numel(), 1), w = integers(r.weight_numel(), 2);
    const Values b = integers(c.out_channels, 3), gy = integers(r.big_numel(), 4);
    const Values gradients[]{reference::conv3d(r, gy, w), reference::weight_grad(r, gy, x),
                             reference::bias_grad(gy, c.batch, c.out_channels, r.big_cells())};
    for (int wanted = 1; wanted < 8; ++wanted) {
      for (const bool bias : {true, false}) {
        if (wanted == 4 && !bias) continue;
        SCOPED_TRACE(str(c.name, " wanted ", wanted, " bias ", bias));
        std::vector<Tensor> leaves{tensor(x, g.small_shape(), f64, device()),
                                   tensor(w, g.weight_shape(), f64, device())};
        if (bias) leaves.push_back(tensor(b, {c.out_channels}, f64, device()));
        for (size_t k = 0; k < leaves.size(); ++k) leaves[k].set_requires_grad(wanted >> k & 1);
        Tensor y = conv_transpose3d(leaves[0], leaves[1], bias ? leaves[2] : Tensor(), c.options());
        EXPECT_EQ(values(y), reference::conv_transpose3d(r, x, w, bias ? b : Values()));
        y.backward(tensor(gy, y.shape(), f64, device()));
        for (size_t k = 0; k < leaves.size(); ++k) {
          const Tensor gradient = leaves[k].grad();
          ASSERT_EQ(gradient.defined(), (wanted >> k & 1) != 0) << k;
          EXPECT_TRUE(!gradient.defined() || values(gradient) == gradients[k]) << k;
        }
      }
    }
  }
}

TEST_P(Conv3dGradient, PublicWeightGradIsThatOfConv3d) {
  Tensor x = leaf({2, 4, 5, 6, 7}, 1), w = leaf({6, 2, 2, 3, 1}, 2);
  const Conv3dOptions options{.stride = {2, 1, 3}, .padding = {1, 0, 0}, .dilation = {1, 2, 1}, .groups = 2};
  Tensor y = conv3d(x, w, {}, options);
  const Tensor gy = integer_tensor(y.shape(), 3, f64, device());
  y.backward(gy);
  EXPECT_EQ(values(conv3d_weight_grad(x, gy, {2, 3, 1}, options)), values(w.grad()));
}

// Sizes do not determine each other: with output_padding >= stride (dilation > stride) the ordinary formula
// gives one cell too many.
TEST_P(Conv3dGradient, GeometryTravelsThroughTheSecondOrder) {
  Tensor x = leaf({1, 1, 1, 1, 3}, 1), w = leaf({1, 1, 1, 1, 2}, 2);
  const Tensor y = conv_transpose3d(x, w, {}, {.output_padding = {0, 0, 1}, .dilation = {1, 1, 2}});
  ASSERT_EQ(y.shape(), (Shape{1, 1, 1, 1, 6}));
  const Tensor first = grad({(y * y).sum()}, {x}, {.create_graph = true})[0];
  EXPECT_EQ(first.shape(), x.shape());
  const auto second = grad({first.sum()}, {x, w});
  EXPECT_EQ(second[0].shape(), x.shape());
  EXPECT_EQ(second[1].shape(), w.shape());
}

Tensor real_leaf(const Shape& shape, uint64_t seed, Device device) {
  Generator generator(seed);
  return randn(shape, {.dtype = f64}, generator).to(device).set_requires_grad();
}

TEST_P(Conv3dGradient, GradcheckOfAllThree) {
  for (const TransposeCase& c : awkward_cases()) {
    SCOPED_TRACE(c.name);
    const Conv3dGeometry g = c.geometry();
    const Tensor big = real_leaf(g.big_shape(), 1, device()), small = real_leaf(g.small_shape(), 2, device()),
                 w = real_leaf(g.weight_shape(), 3, device()),
                 of_big = real_leaf({g.big_channels}, 4, device()),
                 of_small = real_leaf({g.small_channels}, 5, device());
    expect_gradients([&](const auto& t) { return conv_transpose3d(t[0], t[1], t[2], c.options()); },
                     {small, w, of_big}, "conv_transpose3d");
    expect_gradients([&](const auto& t) { return detail::conv3d(t[0], t[1], t[2], g); }, {big, w, of_small},
                     "conv3d");
    expect_gradients([&](const auto& t) { return detail::conv3d_weight_grad(t[0], t[1], g); }, {big, small},
                     "conv3d_weight_grad");
    for (const Grid bias_of : {Grid::big, Grid::small}) {
      // Both outputs, and each alone: the gradient of the other one is then absent.
      for (int use = 1; use < 4; ++use) {
        const auto fused = [&](const std::vector<Tensor>& t) {
          const auto grads = detail::weight_bias_grad(t[0], t[1], g, bias_of);
          if (use == 1) return grads.weight.sum();
          if (use == 2) return (grads.bias * grads.bias).sum() + 0.0 * (t[0].sum() + t[1].sum());
          return grads.weight.sum() * grads.bias.sum();
        };
        EXPECT_TRUE(autograd::gradcheck(fused, {big, small}));
      }
    }
  }
}

TEST_P(Conv3dGradient, ThirdOrder) {
  Tensor x = leaf({1, 1, 1, 1, 2}, 1);
  Tensor w = tensor({2, 3}, {1, 1, 1, 1, 2}, f64, device()).set_requires_grad();
  // z = sum of y^3, y = convT(x, w): the third derivative along ones, by hand.
  const Tensor y = conv_transpose3d(x, w);
  const Tensor g1 = grad({(y * y * y).sum()}, {x}, {.create_graph = true})[0];
  const Tensor g2 = grad({g1.sum()}, {x}, {.create_graph = true})[0];
  const Tensor g3 = grad({g2.sum()}, {x})[0];
  // u = convT(ones, w) = (2, 5, 3); g3 = conv(6 * u * u, w) = (2*24 + 3*150, 2*150 + 3*54).
  EXPECT_EQ(values(g3), (Values{498, 462}));
}

}  // namespace
}  // namespace vox
