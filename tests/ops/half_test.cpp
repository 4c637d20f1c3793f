#include <gtest/gtest.h>

#include <voxgrad/voxgrad.h>

#include <cmath>
#include <functional>
#include <string>
#include <vector>

#include "tests/support/devices.h"
#include "tests/support/values.h"

// Every op on bf16 and f16 computes in f32 and rounds once. So its result is that of the same op on the same
// numbers in f32, rounded, bit for bit. So is every gradient, for an output gradient in 16 bits. Convolutions
// are compared with the reference in conv3d_cases_test.cpp.

namespace vox {
namespace {

using Tensors = std::vector<Tensor>;
using testing::same_bits;

struct Case {
  std::string name;
  std::vector<Shape> shapes;
  std::function<Tensor(const Tensors&)> op;
  /// Whether gradients are those of f32, rounded once. False if the gradient of a broadcast operand is
  /// rounded before it is summed, or before it is multiplied by another factor.
  bool exact_gradient = true;
};

/// Positive numbers, for functions that need them.
Tensor positive(const Tensor& x) { return abs(x) + 0.25; }

std::vector<Case> elementwise_cases() {
  const std::vector<Shape> one{{3, 5, 7}}, two{{3, 5, 7}, {3, 5, 7}};
  return {
      {"add", two, [](const Tensors& t) { return t[0] + t[1]; }},
      {"sub", two, [](const Tensors& t) { return t[0] - t[1]; }},
      {"mul", two, [](const Tensors& t) { return t[0] * t[1]; }},
      {"div", two, [](const Tensors& t) { return t[0] / t[1]; }},
      {"broadcast", {{3, 5, 7}, {5, 1}}, [](const Tensors& t) { return t[0] + t[1]; }},
      {"maximum", two, [](const Tensors& t) { return maximum(t[0], t[1]); }},
      {"minimum", two, [](const Tensors& t) { return minimum(t[0], t[1]); }},
      {"add number", one, [](const Tensors& t) { return t[0] + 0.1; }},
      {"mul number", one, [](const Tensors& t) { return t[0] * 0.999; }},
      {"number sub", one, [](const Tensors& t) { return 0.3 - t[0]; }},
      {"div number", one, [](const Tensors& t) { return t[0] / 3; }},
      {"number div", one, [](const Tensors& t) { return 0.7 / t[0]; }},
      {"neg", one, [](const Tensors& t) { return -t[0]; }},
      {"abs", one, [](const Tensors& t) { return abs(t[0]); }},
      {"sign", one, [](const Tensors& t) { return sign(t[0]); }},
      {"exp", one, [](const Tensors& t) { return exp(t[0]); }, false},  // its gradient reads the rounded y
      {"erf", one, [](const Tensors& t) { return erf(t[0]); }},
      {"tanh", one, [](const Tensors& t) { return tanh(t[0]); }, false},
      {"sigmoid", one, [](const Tensors& t) { return sigmoid(t[0]); }, false},
      {"relu", one, [](const Tensors& t) { return relu(t[0]); }},
      {"leaky_relu", one, [](const Tensors& t) { return leaky_relu(t[0], 0.01); }},
      {"gelu", one, [](const Tensors& t) { return gelu(t[0]); }},
      {"silu", one, [](const Tensors& t) { return silu(t[0]); }},
      {"clamp", one, [](const Tensors& t) { return clamp(t[0], -0.71, 0.3); }},
      {"where", two, [](const Tensors& t) { return where(gt(t[0], t[1]), t[0], t[1]); }},
      {"pow number", one, [](const Tensors& t) { return pow(t[0], 3); }},
      {"strided", {{4, 6, 5}}, [](const Tensors& t) { return t[0].transpose(0, 2).slice(1, 0, 6, 2) * 1.5; }},
      {"views",
       {{4, 6}},
       [](const Tensors& t) {
         return t[0].reshape({2, 12}).permute({1, 0}).expand({12, 2});
       }},
      {"pad",
       {{2, 3}},
       [](const Tensors& t) {
         return pad(t[0], {1, 2}, 0.5);
       }},
      {"cat",
       {{2, 3}, {1, 3}},
       [](const Tensors& t) {
         return cat({t[0], t[1]}, 0);
       }},
      {"stack",
       {{2, 3}, {2, 3}},
       [](const Tensors& t) {
         return stack({t[0], t[1]}, 1);
       }},
  };
}

/// Ops for positive numbers, applied to positive leaves.
std::vector<Case> positive_cases() {
  const std::vector<Shape> one{{3, 5, 7}}, two{{3, 5, 7}, {3, 5, 7}};
  return {
      {"log", one, [](const Tensors& t) { return log(t[0]); }},
      {"sqrt", one, [](const Tensors& t) { return sqrt(t[0]); }, false},
      {"rsqrt", one, [](const Tensors& t) { return rsqrt(t[0]); }, false},
      {"pow", two, [](const Tensors& t) { return pow(t[0], t[1]); }, false},
  };
}

std::vector<Case> other_cases() {
  const Shape volume{2, 3, 5, 6, 7};
  return {
      {"sum", {{9, 300}}, [](const Tensors& t) { return sum(t[0], {1}); }},
      {"sum of columns", {{300, 9}}, [](const Tensors& t) { return sum(t[0], {0}, true); }},
      {"sum of all", {{5000}}, [](const Tensors& t) { return sum(t[0]); }},
      {"mean",
       {{3, 4, 100}},
       [](const Tensors& t) {
         return mean(t[0], {0, 2});
       }},
      {"max", {{9, 30}}, [](const Tensors& t) { return max(t[0], {1}); }},
      {"min", {{9, 30}}, [](const Tensors& t) { return min(t[0], {0}); }},
      {"sum_to",
       {{4, 5, 6}},
       [](const Tensors& t) {
         return sum_to(t[0], {5, 1});
       }},
      {"softmax", {{4, 33}}, [](const Tensors& t) { return softmax(t[0], 1); }, false},
      {"log_softmax", {{4, 33}}, [](const Tensors& t) { return log_softmax(t[0], 1); }, false},
      {"mse_loss", {{4, 33}, {4, 33}}, [](const Tensors& t) { return mse_loss(t[0], t[1]); }},
      {"mse_loss none",
       {{4, 9}, {4, 9}},
       [](const Tensors& t) { return mse_loss(t[0], t[1], Reduction::none); }},
      {"l1_loss", {{4, 33}, {4, 33}}, [](const Tensors& t) { return l1_loss(t[0], t[1], Reduction::sum); }},
      {"cross_entropy",
       {{4, 5, 3}},
       [](const Tensors& t) {
         const Tensor target =
             from_vector<int64_t>({0, 4, 2, 1, 1, 0, 3, 2, 4, 4, 0, 1}, {4, 3}, t[0].device());
         return cross_entropy(t[0], target);
       }},
      {"matmul", {{3, 20, 33}, {3, 33, 17}}, [](const Tensors& t) { return matmul(t[0], t[1]); }},
      {"matmul of a view",
       {{20, 33}, {17, 33}},
       [](const Tensors& t) { return matmul(t[0], t[1].transpose(0, 1)); }},
      {"matmul vector", {{20, 33}, {33}}, [](const Tensors& t) { return matmul(t[0], t[1]); }},
      {"matmul broadcast", {{4, 3, 5}, {5, 2}}, [](const Tensors& t) { return matmul(t[0], t[1]); }, false},
      {"max_pool3d",
       {volume},
       [](const Tensors& t) { return max_pool3d(t[0], {.kernel_size = 3, .stride = 2, .padding = 1}); }},
      {"avg_pool3d",
       {volume},
       [](const Tensors& t) {
         return avg_pool3d(t[0], {.kernel_size = {2, 3, 2}, .stride = {1, 2, 2}});
       }},
      {"interpolate",
       {volume},
       [](const Tensors& t) {
         return interpolate(t[0], {.size = {9, 4, 13}});
       }},
      {"interpolate nearest",
       {volume},
       [](const Tensors& t) {
         return interpolate(t[0], {.size = 4, .mode = InterpolateOptions::Mode::nearest});
       }},
      {"index_select",
       {{5, 4, 3}},
       [](const Tensors& t) {
         return index_select(t[0], 1, from_vector<int64_t>({3, 0, 0, 2, 3, 3}, {6}, t[0].device()));
       }},
  };
}

class HalfOpsTest : public testing::DeviceTest {
 protected:
  /// The op on leaves of `dtype`: its result, and the gradients for g.
  struct Outcome {
    Tensor y;
    Tensors grads;
  };
  static Outcome run(const Case& c, Tensors leaves, const Tensor& g) {
    for (Tensor& leaf : leaves) leaf = leaf.clone().set_requires_grad(true);
    Tensor y = c.op(leaves);
    y.backward(g.to(y.dtype()));
    Outcome result{y.detach(), {}};
    for (const Tensor& leaf : leaves) result.grads.push_back(leaf.grad());
    return result;
  }

  void check(const Case& c, DType half, bool all_positive) const {
    SCOPED_TRACE(c.name + " " + to_string(half));
    Tensors narrow, wide;
    unsigned seed = 1;
    for (const Shape& shape : c.shapes) {
      Tensor x = testing::normal(shape, {f32, device()}, seed++);
      if (all_positive) x = positive(x);
      narrow.push_back(x.to(half));
      wide.push_back(narrow.back().to(f32));
    }
    Tensor g;
    {
      const auto guard = no_grad();
      g = testing::normal(c.op(narrow).shape(), {f32, device()}, 77).to(half);
    }
    const Outcome got = run(c, narrow, g), expected = run(c, wide, g.to(f32));
    EXPECT_EQ(got.y.dtype(), half);
    EXPECT_TRUE(same_bits(got.y, expected.y.to(half)));
    for (size_t i = 0; i < narrow.size(); ++i) {
      ASSERT_EQ(got.grads[i].dtype(), half);
      const Tensor rounded = expected.grads[i].to(half);
      if (c.exact_gradient) {
        EXPECT_TRUE(same_bits(got.grads[i], rounded)) << "gradient " << i;
      } else {  // a few roundings of its intermediate numbers
        const double unit = half == bf16 ? 0x1p-8 : 0x1p-11;
        const Tensor error = max(abs(got.grads[i].to(f32) - expected.grads[i]));
        EXPECT_LE(error.item(), 8 * unit * std::max(1.0, max(abs(expected.grads[i])).item()))
            << "gradient " << i;
      }
    }
  }
  void check_all(const std::vector<Case>& cases, bool all_positive = false) const {
    for (const Case& c : cases)
      for (const DType half : {bf16, f16}) check(c, half, all_positive);
  }
};
INSTANTIATE_TEST_SUITE_P(, HalfOpsTest, testing::devices(), testing::device_name);

TEST_P(HalfOpsTest, Elementwise) { check_all(elementwise_cases()); }
TEST_P(HalfOpsTest, ElementwiseOfPositiveNumbers) { check_all(positive_cases(), true); }
TEST_P(HalfOpsTest, ReductionsLossesProductsAndGrids) { check_all(other_cases()); }

TEST_P(HalfOpsTest, NumbersAreTakenInF32) {
  const Tensor x = ones({4}, {bf16, device()});
  // In bf16, 1.003 would be 1, and 0.999 too. From 512 to 1024 its numbers are 4 apart.
  EXPECT_EQ((x * 1000 * 1.003).to(f32).to_vector<float>(), std::vector<float>(4, 1004));
  Tensor y = full({4}, 1000, {bf16, device()});
  y.mul_(1.003);
  EXPECT_EQ(y.to(f32).to_vector<float>(), std::vector<float>(4, 1004));
  y = full({4}, 1000, {bf16, device()});
  y.add_(full({4}, 1000, {bf16, device()}), -0.999);
  EXPECT_EQ(y.to(f32).to_vector<float>(), std::vector<float>(4, 1));
  // Comparisons are between elements: the number is rounded to the element's dtype.
  EXPECT_EQ(eq(full({1}, 0.1, {bf16, device()}), 0.1).item<bool>(), true);
}

TEST_P(HalfOpsTest, ComparisonsAreThoseOfF32) {
  const std::vector<float> values{0, -0.f, 1, -1, HUGE_VALF, -HUGE_VALF, NAN, 0.5f, 3};
  for (const DType half : {bf16, f16}) {
    const Tensor a = from_vector(values, {9, 1}, device()), b = from_vector(values, {1, 9}, device());
    using Compare = Tensor (*)(const Tensor&, const Tensor&);
    for (const Compare op : {Compare{eq}, Compare{ne}, Compare{lt}, Compare{le}, Compare{gt}, Compare{ge}})
      EXPECT_TRUE(same_bits(op(a.to(half), b.to(half)), op(a, b)));
    EXPECT_EQ(argmax(a.to(half).slice(0, 0, 6)).item<int64_t>(), 4);
    EXPECT_EQ(argmin(a.to(half).slice(0, 0, 6)).item<int64_t>(), 5);
    EXPECT_TRUE(same_bits(max(a.to(half)), full({}, NAN, {half, device()})));
  }
}

TEST_P(HalfOpsTest, SumsAndMeansDoNotStall) {
  // In bf16 itself, 1 + 1 + ... stops at 256.
  EXPECT_EQ(sum(ones({100000}, {bf16, device()})).to(f32).item(), 99840);  // nearest to 100000
  EXPECT_EQ(mean(full({70000}, 2, {f16, device()})).to(f32).item(), 2);    // the sum is beyond f16
  Tensor x = ones({1000}, {bf16, device()}).set_requires_grad(true);
  max(x).backward();  // 1000 ties
  EXPECT_EQ(x.grad().to(f32).to_vector<float>(), std::vector<float>(1000, bfloat16(0.001f)));
}

TEST_P(HalfOpsTest, IndexAddRoundsOnce) {
  for (const DType half : {bf16, f16}) {
    Tensor x = zeros({2, 1}, {half, device()}).set_requires_grad(true);
    const Tensor indices = zeros({3000}, {i64, device()});
    index_select(x, 0, indices).backward(ones({3000, 1}, {half, device()}));
    EXPECT_EQ(x.grad().to(f32).to_vector<float>()[0], half == bf16 ? 3008 : 3000);
  }
}

TEST_P(HalfOpsTest, InPlaceAndVersions) {
  for (const DType half : {bf16, f16}) {
    Tensor x = arange(12, {half, device()}).reshape({3, 4});
    x.select(0, 1).fill_(0.25).add_(ones({4}, {half, device()}));
    x.slice(1, 0, 4, 2).mul_(2);
    EXPECT_EQ(x.to(f32).to_vector<float>(),
              (std::vector<float>{0, 1, 4, 3, 2.5, 1.25, 2.5, 1.25, 16, 9, 20, 11}));
    x.copy_(full({4}, 1.0 / 3, {f64, device()}));
    EXPECT_TRUE(same_bits(x, full({3, 4}, 1.0 / 3, {half, device()})));
    Tensor leaf = ones({2}, {half, device()}).set_requires_grad(true);
    EXPECT_THROW(leaf.mul_(2), GradError);
  }
}

TEST_P(HalfOpsTest, SecondDerivatives) {
  // y = x^3 at 3/2: 27/8, 27/4, 9 are exact in both dtypes.
  for (const DType half : {bf16, f16}) {
    const Tensor x = full({2}, 1.5, {half, device()}).set_requires_grad(true);
    const Tensor y = x * x * x;
    const Tensor first =
        grad({y}, {x}, {.grad_outputs = {ones({2}, {half, device()})}, .create_graph = true})[0];
    const Tensor second = grad({first}, {x}, {.grad_outputs = {ones({2}, {half, device()})}})[0];
    EXPECT_EQ(first.to(f32).to_vector<float>(), std::vector<float>(2, 6.75));
    EXPECT_EQ(second.dtype(), half);
    EXPECT_EQ(second.to(f32).to_vector<float>(), std::vector<float>(2, 9));
  }
}

TEST_P(HalfOpsTest, LowerConvolutionsToo) {
  for (const DType half : {bf16, f16}) {
    const Tensor x = testing::whole({2, 4, 9}, {f32, device()}),
                 w = testing::whole({6, 2, 3}, {f32, device()}, 3);
    const Conv1dOptions options{.stride = 2, .padding = 1, .groups = 2};
    EXPECT_TRUE(same_bits(conv1d(x.to(half), w.to(half), {}, options), conv1d(x, w, {}, options).to(half)));
    const Tensor image = testing::whole({2, 5, 6}, {f32, device()}),
                 v = testing::whole({2, 3, 2, 2}, {f32, device()});
    const Tensor bias = testing::whole({3}, {f32, device()}, 5);
    EXPECT_TRUE(same_bits(conv_transpose2d(image.to(half), v.to(half), bias.to(half), {.stride = 2}),
                          conv_transpose2d(image, v, bias, {.stride = 2}).to(half)));
    EXPECT_THROW(conv1d(x.to(half), w), DTypeError);
    EXPECT_THROW(conv1d(x.to(half), w.to(half), zeros({6}, {f32, device()}), options), DTypeError);
  }
}

}  // namespace
}  // namespace vox
