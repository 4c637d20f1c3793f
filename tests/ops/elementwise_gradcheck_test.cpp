#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include <voxgrad/autograd/engine.h>
#include <voxgrad/autograd/gradcheck.h>
#include <voxgrad/core/factories.h>
#include <voxgrad/ops/elementwise.h>

#include "tests/ops/unary_cases.h"
#include "tests/support/devices.h"

// First and second derivatives of every elementwise op against difference quotients, on dense, strided and
// expanded operands, away from kinks.

namespace vox {
namespace {

using autograd::gradcheck;
using autograd::gradgradcheck;
using testing::DeviceTest;
using testing::unary_cases;
using testing::UnaryCase;

class ElementwiseGradcheckTest : public DeviceTest {
 protected:
  Tensor leaf(const std::vector<double>& values, const Shape& shape) {
    return from_vector<double>(values, shape, device()).set_requires_grad(true);
  }
};
INSTANTIATE_TEST_SUITE_P(, ElementwiseGradcheckTest, testing::devices(), testing::device_name);

using Views = std::vector<std::function<Tensor(const Tensor&)>>;
/// Views of a (3, 2) leaf: itself, transposed, every second row, and repeated.
Views views() {
  return {[](const Tensor& x) { return x; }, [](const Tensor& x) { return x.transpose(0, 1); },
          [](const Tensor& x) { return x.slice(0, 0, 3, 2); },
          [](const Tensor& x) {
            return x.unsqueeze(1).expand({3, 2, 2});
          }};
}

using Ops = std::vector<std::pair<std::string, std::function<Tensor(const Tensor&)>>>;

void check_gradients(const Ops& ops, const Tensor& x) {
  for (const auto& [name, op] : ops) {
    for (const auto& view : views()) {
      const auto f = [&, op = op](const std::vector<Tensor>& inputs) { return op(view(inputs[0])); };
      EXPECT_TRUE(gradcheck(f, {x})) << name;
      EXPECT_TRUE(gradgradcheck(f, {x})) << name;
    }
  }
}

TEST_P(ElementwiseGradcheckTest, OneOperand) {
  Ops ops = {
      {"sign(x) x", [](const Tensor& x) { return sign(x) * x; }},
      {"floor(x) x", [](const Tensor& x) { return floor(x) * x; }},
      {"ceil(x) x", [](const Tensor& x) { return ceil(x) * x; }},
      {"round(x) x", [](const Tensor& x) { return round(x + 0.05) * x; }},
      {"x + 3", [](const Tensor& x) { return x + 3; }},
      {"x - 3", [](const Tensor& x) { return x - 3; }},
      {"3 - x", [](const Tensor& x) { return 3 - x; }},
      {"3 * x", [](const Tensor& x) { return 3 * x; }},
      {"x / 3", [](const Tensor& x) { return x / 3; }},
      {"3 / x", [](const Tensor& x) { return 3 / x; }},
      {"x^0", [](const Tensor& x) { return pow(x, 0); }},
      {"x^1", [](const Tensor& x) { return pow(x, 1); }},
      {"x^3", [](const Tensor& x) { return pow(x, 3); }},
      {"clone", [](const Tensor& x) { return x.clone(); }},
      {"contiguous", [](const Tensor& x) { return x.contiguous(); }},
      {"to and back", [](const Tensor& x) { return x.to(Device::cpu()).to(x.device()); }},
  };
  for (const UnaryCase& c : unary_cases()) {
    if (c.takes != UnaryCase::positive) ops.emplace_back(c.name, c.op);
  }
  check_gradients(ops, leaf({-5.2, -0.7, 0.4, 1.9, 3.6, -1.3}, {3, 2}));
}

TEST_P(ElementwiseGradcheckTest, OnePositiveOperand) {
  Ops ops = {{"x^-1.5", [](const Tensor& x) { return pow(x, -1.5); }}};
  for (const UnaryCase& c : unary_cases()) {
    if (c.takes == UnaryCase::positive) ops.emplace_back(c.name, c.op);
  }
  check_gradients(ops, leaf({2.5, 0.7, 0.4, 0.9, 1.6, 1.3}, {3, 2}));
}

// A gradient that is not recorded comes from one kernel, a recorded one from a formula of ops.
TEST_P(ElementwiseGradcheckTest, BothWaysToAGradientAgree) {
  Ops ops = {
      {"div", [](const Tensor& x) { return (x - 2) / x; }},
      {"div, broadcast", [](const Tensor& x) { return x / x.slice(1, 2, 3); }},
      {"pow", [](const Tensor& x) { return pow(abs(0.1 * x), 0.01 * x); }},
      {"maximum", [](const Tensor& x) { return maximum(x, 6 - x); }},
      {"minimum", [](const Tensor& x) { return minimum(x, 6 - x); }},
      {"minimum, broadcast", [](const Tensor& x) { return minimum(x, x.slice(0, 1, 2)); }},
  };
  for (const UnaryCase& c : unary_cases()) {
    const bool positive = c.takes == UnaryCase::positive;
    ops.emplace_back(c.name, [=](const Tensor& x) { return c.op(positive ? abs(x) : x); });
  }
  // Both sides of every kink, the kinks, large numbers, and an operand that is not dense.
  const Tensor x = leaf({-50, -3, -2.5, -1.5, -1e-3, 0.4, 1, 1.5, 2, 3, 6, 700}, {6, 2}).transpose(0, 1);
  const std::vector<double> gradient{2, -3, 0.5, 4, -1, 7, 1, -0.25, 3, 5, -2, 0.75};
  for (const auto& [name, op] : ops) {
    const Tensor y = op(x), g = from_vector<double>(gradient, {2, 6}, device());
    const auto kernel = grad({y}, {x}, {.grad_outputs = {g}, .retain_graph = true})[0].to_vector<double>();
    const Tensor recorded = grad({y}, {x}, {.grad_outputs = {g}, .create_graph = true})[0].detach();
    const auto formula = recorded.to_vector<double>();
    for (size_t i = 0; i < formula.size(); ++i)
      EXPECT_NEAR(kernel[i], formula[i], 1e-14 * (1 + std::abs(formula[i]))) << name << ", element " << i;
  }
}

// In 16 bits the result is the exact gradient, rounded once.
TEST_P(ElementwiseGradcheckTest, GradientsIn16BitsAreRoundedOnce) {
  const Tensor wide = leaf({-2.5, -0.75, 0.375, 0.875, 1.625, -1.25}, {6});
  const Tensor g = from_vector<double>({1, 2, -1, 0.5, 3, 1.5}, {6}, device());
  for (auto* op : {&relu, &gelu, &silu, &mish, &hardswish, &erf, &sin, &cos,
                   &log1p}) {  // not those that keep a rounded y
    const Tensor expected = grad({op(wide)}, {wide}, {.grad_outputs = {g}})[0];
    for (const DType half : {bf16, f16}) {
      const Tensor x = wide.detach().to(half).set_requires_grad(true);
      const Tensor got = grad({op(x)}, {x}, {.grad_outputs = {g.to(half)}})[0];
      EXPECT_EQ(got.to(f64).to_vector<double>(), expected.to(half).to(f64).to_vector<double>()) << half;
    }
  }
}

TEST_P(ElementwiseGradcheckTest, TwoOperands) {
  const Tensor a = leaf({2.5, 0.7, 0.4, 0.9, 1.6, 1.3}, {3, 2});
  const std::vector<Tensor> others = {leaf({0.3, 1.2, -0.8, 2.2, -1.9, 0.5}, {3, 2}), leaf({-1.1, 0.6}, {2}),
                                      leaf({0.6}, {1, 1}), leaf({-0.5, 2.1}, {2, 1, 1})};
  const Tensor condition = from_vector<bool>({true, false, false, true, true, false}, {3, 2}, device());
  const std::vector<std::pair<const char*, std::function<Tensor(const Tensor&, const Tensor&)>>> ops = {
      {"add", [](const Tensor& p, const Tensor& q) { return p + q; }},
      {"sub", [](const Tensor& p, const Tensor& q) { return p - q; }},
      {"mul", [](const Tensor& p, const Tensor& q) { return p * q; }},
      {"div", [](const Tensor& p, const Tensor& q) { return p / q; }},
      {"pow", [](const Tensor& p, const Tensor& q) { return pow(p, q); }},
      {"maximum", [](const Tensor& p, const Tensor& q) { return maximum(p, q); }},
      {"minimum", [](const Tensor& p, const Tensor& q) { return minimum(p, q); }},
      {"where", [&](const Tensor& p, const Tensor& q) { return where(condition, p, q); }},
  };
  for (const auto& [name, op] : ops) {
    for (const Tensor& b : others) {
      const auto f = [&](const std::vector<Tensor>& inputs) { return op(inputs[0], inputs[1]); };
      EXPECT_TRUE(gradcheck(f, {a, b})) << name << " " << b.shape();
      EXPECT_TRUE(gradgradcheck(f, {a, b})) << name << " " << b.shape();
    }
    const auto strided = [&](const std::vector<Tensor>& inputs) {  // every second row, reversed roles of axes
      return op(inputs[0].transpose(0, 1).slice(1, 0, 2), inputs[1].slice(0, 1, 3).transpose(0, 1));
    };
    if (std::string(name) != "where") {
      EXPECT_TRUE(gradcheck(strided, {a, others[0]})) << name;
      EXPECT_TRUE(gradgradcheck(strided, {a, others[0]})) << name;
    }
  }
}

// b a^(b-1) at b = 0 is 0, but its derivative with respect to b is 1 / a.
TEST_P(ElementwiseGradcheckTest, PowWithExponentZero) {
  const auto f = [](const std::vector<Tensor>& inputs) { return pow(inputs[0], inputs[1]); };
  const std::vector<Tensor> inputs = {leaf({2, 0.5}, {2}), leaf({0, 0}, {2})};
  EXPECT_TRUE(gradcheck(f, inputs));
  EXPECT_TRUE(gradgradcheck(f, inputs));
}

}  // namespace
}  // namespace vox
