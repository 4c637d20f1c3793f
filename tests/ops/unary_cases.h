#pragma once

#include <algorithm>
#include <cmath>
#include <functional>
#include <vector>

#include <voxgrad/ops/elementwise.h>

// The elementwise ops of one operand. Every op has one line here, which the tests of values, gradients,
// layouts and dtypes share.

namespace vox::testing {

struct UnaryCase {
  const char* name;
  std::function<Tensor(const Tensor&)> op;
  std::function<double(double)> reference;
  double max_ulps;                                         // of f32 and f64; the reference itself is a double
  enum Takes { reals, positive, integers } takes = reals;  ///< `integers` too; tests of `positive` use x > 0
};

inline const std::vector<UnaryCase>& unary_cases() {
  using enum UnaryCase::Takes;
  const auto limited = [](double low, double high) {
    return [=](double x) { return x < low ? low : x > high ? high : x; };
  };
  const auto softplus_of = [](double x) { return x > 20 ? x : std::log1p(std::exp(x)); };
  static const std::vector<UnaryCase> cases{
      {"neg", neg, [](double x) { return -x; }, 0, integers},
      {"abs", abs, [](double x) { return std::abs(x); }, 0, integers},
      {"sign", sign, [](double x) { return x > 0   ? 1
                                           : x < 0 ? -1
                                                   : x; }, 0, integers},
      {"exp", exp, [](double x) { return std::exp(x); }, 2.5},
      {"log", log, [](double x) { return std::log(x); }, 2.5, positive},
      {"sqrt", sqrt, [](double x) { return std::sqrt(x); }, 0.5, positive},
      {"rsqrt", rsqrt, [](double x) { return 1 / std::sqrt(x); }, 2, positive},
      {"floor", floor, [](double x) { return std::floor(x); }, 0, integers},
      {"ceil", ceil, [](double x) { return std::ceil(x); }, 0, integers},
      {"round", round, [](double x) { return std::nearbyint(x); }, 0, integers},
      {"sin", sin, [](double x) { return std::sin(x); }, 2},
      {"cos", cos, [](double x) { return std::cos(x); }, 2},
      {"log1p", log1p, [](double x) { return std::log1p(x); }, 2, positive},
      {"expm1", expm1, [](double x) { return std::expm1(x); }, 2},
      {"erf", erf, [](double x) { return std::erf(x); }, 2},
      {"tanh", tanh, [](double x) { return std::tanh(x); }, 8},
      {"sigmoid", sigmoid, [](double x) { return 1 / (1 + std::exp(-x)); }, 4},
      {"relu", relu, [](double x) { return x < 0 ? 0 : x; }, 0, integers},
      {"leaky_relu", [](auto& x) { return leaky_relu(x, 0.125); },
       [](double x) { return x < 0 ? 0.125 * x : x; }, 0},
      // The argument of erfc is rounded, and erfc's steep tail multiplies the error: up to x^2 ulp at x = -4.
      {"gelu", gelu, [](double x) { return x * std::erfc(-x * std::sqrt(0.5)) / 2; }, 24},
      {"silu", silu, [](double x) { return x / (1 + std::exp(-x)); }, 4},
      {"clamp", [](auto& x) { return clamp(x, 1, 3); }, limited(1, 3), 0, integers},
      {"clamp(-1.5, 2)", [](auto& x) { return clamp(x, -1.5, 2); }, limited(-1.5, 2), 0},
      {"hardtanh", [](auto& x) { return hardtanh(x, 1, 3); }, limited(1, 3), 0, integers},
      {"hardtanh(-1.5, 2)", [](auto& x) { return hardtanh(x, -1.5, 2); }, limited(-1.5, 2), 0},
      {"relu6", relu6, limited(0, 6), 0, integers},
      {"hardsigmoid", hardsigmoid, [=](double x) { return limited(0, 6)(x + 3) / 6; }, 2},
      {"hardswish", hardswish, [=](double x) { return x * limited(0, 6)(x + 3) / 6; }, 2},
      {"elu", [](auto& x) { return elu(x, 0.5); }, [](double x) { return x > 0 ? x : 0.5 * std::expm1(x); },
       4},
      {"softplus", [](auto& x) { return softplus(x); }, softplus_of, 4},
      {"softplus(2, 3)", [](auto& x) { return softplus(x, 2, 3); },
       [=](double x) { return 2 * x > 3 ? x : softplus_of(2 * x) / 2; }, 4},
      {"mish", mish, [](double x) { return x * std::tanh(std::log1p(std::exp(x))); }, 6},
  };
  return cases;
}

}  // namespace vox::testing
