#include <gtest/gtest.h>

#include <functional>
#include <vector>

#include <voxgrad/autograd/gradcheck.h>
#include <voxgrad/core/factories.h>
#include <voxgrad/ops/elementwise.h>

#include "tests/support/devices.h"

// First and second derivatives of every elementwise op against difference quotients, on dense, strided and
// expanded operands, away from kinks.

namespace vox {
namespace {

using autograd::gradcheck;
using autograd::gradgradcheck;
using testing::DeviceTest;

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

TEST_P(ElementwiseGradcheckTest, OneOperand) {
  const std::vector<std::pair<const char*, std::function<Tensor(const Tensor&)>>> ops = {
      {"neg", neg},
      {"abs", abs},
      {"sign", sign},
      {"sign(x) x", [](const Tensor& x) { return sign(x) * x; }},
      {"exp", exp},
      {"erf", erf},
      {"tanh", tanh},
      {"sigmoid", sigmoid},
      {"relu", relu},
      {"leaky_relu", [](const Tensor& x) { return leaky_relu(x, 0.2); }},
      {"gelu", gelu},
      {"silu", silu},
      {"clamp", [](const Tensor& x) { return clamp(x, -1, 1); }},
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
  const Tensor x = leaf({-2.5, -0.7, 0.4, 0.9, 1.6, -1.3}, {3, 2});
  for (const auto& [name, op] : ops) {
    for (const auto& view : views()) {
      const auto f = [&](const std::vector<Tensor>& inputs) { return op(view(inputs[0])); };
      EXPECT_TRUE(gradcheck(f, {x})) << name;
      EXPECT_TRUE(gradgradcheck(f, {x})) << name;
    }
  }
}

TEST_P(ElementwiseGradcheckTest, OnePositiveOperand) {
  const Tensor x = leaf({2.5, 0.7, 0.4, 0.9, 1.6, 1.3}, {3, 2});
  for (auto* op :
       {static_cast<Tensor (*)(const Tensor&)>(&log), static_cast<Tensor (*)(const Tensor&)>(&sqrt),
        static_cast<Tensor (*)(const Tensor&)>(&rsqrt), +[](const Tensor& t) { return pow(t, -1.5); }}) {
    for (const auto& view : views()) {
      const auto f = [&](const std::vector<Tensor>& inputs) { return op(view(inputs[0])); };
      EXPECT_TRUE(gradcheck(f, {x}));
      EXPECT_TRUE(gradgradcheck(f, {x}));
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
