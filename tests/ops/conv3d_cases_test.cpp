#include <voxgrad/ops/conv3d_kernel.h>
#include <voxgrad/ops/cpu/isa.h>

#include "tests/support/conv3d_cases.h"
#include "tests/support/test.h"

// 351 sets of arguments from the tests and models of other frameworks. Inputs are whole numbers, and results
// equal the reference. Sets that are too large for a loop nest run on the GPU, compared at sampled elements.

namespace vox {
namespace {

DEVICE_SUITE(Conv3dCases);

TEST(Conv3dCaseTable, IsWhole) {
  const auto cases = read_cases();
  EXPECT_EQ(cases.size(), 351u);
  EXPECT_EQ(std::count_if(cases.begin(), cases.end(), [](const RealCase& c) { return c.legal; }), 303);
}

TEST_P(Conv3dCases, IllegalOnesAreRefused) {
  for (const RealCase& c : read_cases()) {
    if (c.legal) continue;
    const TensorOptions options{.device = device()};
    EXPECT_THROW(
        conv_transpose3d(empty(c.input_shape(), options), empty(c.weight_shape(), options), {}, c.options()),
        ValueError)
        << c.name;
  }
}

/// Whole numbers as the operands of a set, and the reference's results, which take nearly all of the time.
struct Expected {
  Values x, w, b, gy, y, dx, dw, db;

  explicit Expected(const RealCase& c) {
    const reference::Conv3d r = reference_of(c.geometry());
    x = integers(r.small_numel(), 1), w = integers(r.weight_numel(), 2);
    if (c.bias) b = integers(c.out_channels, 3);
    gy = integers(r.big_numel(), 4);
    y = reference::conv_transpose3d(r, x, w, b);
    dx = reference::conv3d(r, gy, w);
    dw = reference::weight_grad(r, gy, x);
    db = reference::bias_grad(gy, c.batch, c.out_channels, r.big_cells());
  }
};

/// Forward and backward, every element.
void compare(const RealCase& c, const Expected& expected, DType dtype, Device device) {
  Tensor x = tensor(expected.x, c.input_shape(), dtype, device);
  Tensor w = tensor(expected.w, c.weight_shape(), dtype, device);
  Tensor b = c.bias ? tensor(expected.b, {c.out_channels}, dtype, device) : Tensor();
  x.set_requires_grad(), w.set_requires_grad();
  if (c.bias) b.set_requires_grad();
  Tensor y = conv_transpose3d(x, w, b, c.options());
  ASSERT_EQ(y.shape(), c.output_shape());
  y.backward(tensor(expected.gy, y.shape(), dtype, device));

  // Not EXPECT_EQ on whole vectors: it would print a million numbers.
  const auto equal = [dtype](const Tensor& t, const Values& v) { return values(t) == rounded(v, dtype); };
  EXPECT_TRUE(equal(y, expected.y)) << "y";
  EXPECT_TRUE(equal(x.grad(), expected.dx)) << "dx";
  EXPECT_TRUE(equal(w.grad(), expected.dw)) << "dw";
  if (c.bias) {
    EXPECT_TRUE(equal(b.grad(), expected.db)) << "db";
  }
}

/// Calls f() with each instruction set of the CPU, or once on another device.
template <class F>
void for_each_isa(Device device, F f) {
  const cpu::Isa before = cpu::isa();
  for (const cpu::Isa isa : {cpu::Isa::baseline, cpu::Isa::v3, cpu::Isa::v4}) {
    if (device.is_cpu() ? !cpu::has_isa(isa) : isa != before) continue;
    SCOPED_TRACE(cpu::to_string(isa));
    cpu::set_isa(isa);
    f();
  }
  cpu::set_isa(before);
}

TEST_P(Conv3dCases, EqualTheReferenceWithEachInstructionSet) {
  for (const RealCase& c : read_cases()) {
    if (!c.legal || c.large()) continue;
    const Expected expected(c);
    const auto compare_dtypes = [&] {
      // The largest tenth of the sets runs only in f32, to save time. 16-bit tensors hold the whole numbers
      // exactly, and their results are the exact ones, rounded once.
      for (const DType dtype : {f32, f64, bf16, f16}) {
        if (dtype != f32 && c.multiply_adds > 1e6) continue;
        SCOPED_TRACE(c.name + " " + to_string(dtype));
        compare(c, expected, dtype, device());
      }
    };
    for_each_isa(device(), compare_dtypes);
    const ForceConv3dKernel only("direct");
    compare_dtypes();
  }
}

TEST(Conv3dLargeCasesCuda, EqualTheReferenceAtSamples) {
  if (!has_cuda()) GTEST_SKIP() << "no CUDA device";
  const Device device = Device::cuda();
  for (const RealCase& c : read_cases()) {
    if (!c.legal || !c.large()) continue;
    SCOPED_TRACE(c.name);
    const reference::Conv3d r = reference_of(c.geometry());
    const Floats x = many_integers(r.small_numel(), 1), w = many_integers(r.weight_numel(), 2);
    const Floats b = many_integers(c.out_channels, 3), gy = many_integers(r.big_numel(), 4);
    Tensor xt = from_vector(x, c.input_shape(), device), wt = from_vector(w, c.weight_shape(), device);
    Tensor bt = from_vector(b, {c.out_channels}, device);
    xt.set_requires_grad(), wt.set_requires_grad(), bt.set_requires_grad();
    Tensor y = conv_transpose3d(xt, wt, bt, c.options());
    ASSERT_EQ(y.shape(), c.output_shape());
    y.backward(from_vector(gy, y.shape(), device));

    compare_samples("y", y, 200, [&](int64_t i) {
      const auto channel = static_cast<size_t>(i / r.big_cells() % c.out_channels);
      return reference::conv_transpose3d_at(r, x.data(), w.data(), i) + double(b[channel]);
    });
    compare_samples("dx", xt.grad(), 200,
                    [&](int64_t i) { return reference::conv3d_at(r, gy.data(), w.data(), i); });
    compare_samples("dw", wt.grad(), 6,
                    [&](int64_t i) { return reference::weight_grad_at(r, gy.data(), x.data(), i); });
    compare_samples("db", bt.grad(), 1, [&](int64_t channel) {
      double sum = 0;
      for (int64_t n = 0; n < c.batch; ++n)
        for (int64_t o = 0; o < r.big_cells(); ++o)
          sum += double(gy[static_cast<size_t>((n * c.out_channels + channel) * r.big_cells() + o)]);
      return sum;
    });
  }
}

// Outputs of exactly 2^31 and of more than 2^32 elements, compared at samples.
// GPU only: 20 GB at most for one tensor.

float at(const Tensor& t, std::array<int64_t, 5> index) {
  Tensor element = t;
  for (const int64_t i : index) element = element.select(0, i);
  return element.item<float>();
}

/// Stride and kernel (2,1,1) double the depth: y[2d + k] = w[k] * x[d].
void check_at_samples(const Shape& shape) {
  const Device device = Device::cuda();
  Tensor x = randint(-4, 5, shape, {.device = device});
  Tensor w = tensor({3, -2}, {1, 1, 2, 1, 1}, f32, device);
  const ConvTranspose3dOptions up{.stride = {2, 1, 1}};
  Tensor y = conv_transpose3d(x, w, tensor({1}, {1}, f32, device), up);
  ASSERT_EQ(y.numel(), 2 * numel(shape));

  std::mt19937_64 random(1);
  std::vector<std::array<int64_t, 5>> samples{{0, 0, 0, 0, 0},
                                              {shape[0] - 1, 0, shape[2] - 1, shape[3] - 1, shape[4] - 1}};
  for (int i = 0; i < 100; ++i) {
    std::array<int64_t, 5> sample;
    for (size_t a = 0; a < 5; ++a)
      sample[a] = static_cast<int64_t>(random() % static_cast<uint64_t>(shape[static_cast<int64_t>(a)]));
    samples.push_back(sample);
  }
  for (const auto& s : samples) {
    const float value = at(x, s);
    for (int64_t k = 0; k < 2; ++k)
      EXPECT_EQ(at(y, {s[0], s[1], 2 * s[2] + k, s[3], s[4]}), value * (k == 0 ? 3 : -2) + 1);
  }

  // Reading the large grid: conv3d gives w0 * y[2d] + w1 * y[2d+1] = 13 x + 1. The weight gradient of ones is
  // the sum of each half, exact in f32 because the sums stay far below 2^24.
  Tensor down = conv3d(y, w, {}, {.stride = {2, 1, 1}});
  ASSERT_EQ(down.shape(), shape);
  for (const auto& s : samples) EXPECT_EQ(at(down, s), 13 * at(x, s) + 1);
  down = {};
  const Tensor ones_of_y = ones(y.shape(), y.options());
  const Tensor dw = conv3d_weight_grad(ones_of_y, x, {2, 1, 1}, {.stride = {2, 1, 1}});
  const float total = x.sum().item<float>();
  EXPECT_EQ(values(dw), (Values{total, total}));
}

using Conv3dLargeCuda = CudaTest;

TEST_F(Conv3dLargeCuda, ExactlyTwoTo31) { check_at_samples({1, 1, 1024, 1024, 1024}); }
TEST_F(Conv3dLargeCuda, BatchBeyondTwoTo32) { check_at_samples({5, 1, 512, 1024, 1024}); }
TEST_F(Conv3dLargeCuda, VolumeBeyondTwoTo32) { check_at_samples({1, 1, 2049, 1024, 1024}); }

}  // namespace
}  // namespace vox
