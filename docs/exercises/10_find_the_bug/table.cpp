// Prints, for each op of the engine that it is linked with, how its gradients differ from finite differences.
// Forward results are right in every engine of this exercise, and differences need nothing else.

#include <algorithm>
#include <cmath>
#include <functional>
#include <iomanip>
#include <iostream>
#include <numeric>
#include <utility>

#include <voxgrad/voxgrad.h>

using vox::Shape;
using vox::Tensor;
using Inputs = std::vector<Tensor>;
using Numbers = std::vector<double>;

namespace {

struct Row {
  const char* op;
  std::vector<const char*> names;
  Inputs inputs;
  std::function<Tensor(const Inputs&)> f;
  int runs = 1;  // of the engine, whose gradients add up
};

/// Different numbers in +-1 without a pattern, or, if `positive`, in 1/e to e.
Tensor numbers(const Shape& shape, double seed, bool positive = false) {
  Numbers values(static_cast<size_t>(vox::checked_numel("numbers", shape)));
  for (size_t i = 0; i < values.size(); ++i) {
    const double value = std::sin(1.7 * static_cast<double>(i) + seed);
    values[i] = positive ? std::exp(value) : value;
  }
  return vox::from_vector(values, shape);
}

std::vector<Row> rows() {
  const Tensor a = numbers({2, 3}, 1), b = numbers({3}, 2, true), positive = numbers({2, 3}, 3, true);
  const Tensor square = numbers({3, 3}, 4), other = numbers({3, 3}, 5), cube = numbers({2, 2, 2}, 6);
  const Tensor volume = numbers({2, 2, 3, 3, 3}, 7), weight = numbers({2, 3, 2, 2, 2}, 8);
  const Shape turned{1, 2, 0}, flat{6}, tall{3, 2}, broad{2, 3};
  const auto one = [](const char* op, const Tensor& x, auto f) {
    return Row{op, {"x"}, {x}, [f](const Inputs& in) { return f(in[0]); }};
  };
  const auto two = [](const char* op, const Tensor& x, const Tensor& y, auto f) {
    return Row{op, {"a", "b"}, {x, y}, [f](const Inputs& in) { return f(in[0], in[1]); }};
  };
  const auto three = [](const char* op, const Tensor& x, const Tensor& w, const Tensor& bias, auto f) {
    return Row{op, {"input", "weight", "bias"}, {x, w, bias}, [f](const Inputs& in) {
                 return f(in[0], in[1], in[2], {.stride = 2, .padding = 1});
               }};
  };
  using T = const Tensor&;
  std::vector<Row> all{
      two("add", a, b, [](T x, T y) { return x + y; }),
      two("sub", a, b, [](T x, T y) { return x - y; }),
      two("mul", a, b, [](T x, T y) { return x * y; }),
      two("div", a, b, [](T x, T y) { return x / y; }),
      one("exp", a, vox::exp),
      one("log", positive, vox::log),
      one("sqrt", positive, vox::sqrt),
      one("tanh", a, vox::tanh),
      one("sigmoid", a, vox::sigmoid),
      one("relu", a, vox::relu),
      one("sum", a, [](T x) { return x.sum({1}); }),
      one("mean", a, [](T x) { return x.mean({1}); }),
      two("mse_loss", a, positive, [](T x, T y) { return vox::mse_loss(x, y); }),
      two("matmul", square, other, vox::matmul),
      one("transpose", a, [](T x) { return x.transpose(0, 1); }),
      one("permute", cube, [turned](T x) { return x.permute(turned); }),
      one("reshape", a, [tall](T x) { return x.reshape(tall); }),
      one("expand", b, [broad](T x) { return x.expand(broad); }),
      three("conv3d", volume, weight.transpose(0, 1).contiguous(), b, vox::conv3d),
      three("conv_transpose3d", volume, weight, b, vox::conv_transpose3d),
      // Two paths lead from the result to exp(x).
      one("diamond", a, [](T x) { return [](T y) { return vox::sqrt(y) + vox::log(y); }(vox::exp(x)); }),
      // grad() after two runs, halved.
      two("two_runs", a, numbers(tall, 9),
          [flat](T x, T y) { return vox::exp(x.reshape(flat) + y.reshape(flat)); }),
  };
  all.back().runs = 2;
  return all;
}

/// Central differences, by each element of input k, of the sum of the result's elements, each times a weight.
Numbers differences(const Row& row, size_t k, const Numbers& weights) {
  const double eps = 1e-5;
  Numbers x = row.inputs[k].to_vector<double>(), result(x.size());
  const auto loss_at = [&](double& element, double value) {
    const double before = std::exchange(element, value);
    Inputs inputs = row.inputs;
    inputs[k] = vox::from_vector(x, inputs[k].shape());
    element = before;
    const Numbers y = row.f(inputs).to_vector<double>();
    return std::inner_product(y.begin(), y.end(), weights.begin(), 0.0);
  };
  for (size_t i = 0; i < x.size(); ++i)
    result[i] = (loss_at(x[i], x[i] + eps) - loss_at(x[i], x[i] - eps)) / (2 * eps);
  return result;
}

/// Prints the line of one gradient. Returns whether it is right.
bool print(const char* op, const char* input, const Numbers& got, const Numbers& expected) {
  size_t wrong = 0, worst = 0;
  double least = HUGE_VAL, most = -HUGE_VAL, largest = 0;
  for (size_t i = 0; i < got.size(); ++i) {
    const double error = std::abs(got[i] - expected[i]), factor = got[i] / expected[i];
    least = std::min(least, factor), most = std::max(most, factor);
    wrong += !(error <= 1e-7 * (1 + std::abs(expected[i])));
    if (error > largest) largest = error, worst = i;
  }
  std::cout << (wrong ? "WRONG " : "right ") << std::left << std::setw(17) << op << std::setw(7) << input;
  if (wrong)
    std::cout << wrong << " of " << got.size() << " elements; element " << worst << " is " << got[worst]
              << ", by differences " << expected[worst] << "; factors from " << least << " to " << most;
  std::cout << "\n";
  return !wrong;
}

}  // namespace

int main() {
  bool all = true;
  std::cout << std::setprecision(4);
  for (const Row& row : rows()) {
    Inputs leaves;
    for (const Tensor& x : row.inputs) leaves.push_back(x.clone().set_requires_grad());
    const Tensor weights = numbers(row.f(row.inputs).shape(), 10);
    for (int run = 0; run < row.runs; ++run) row.f(leaves).backward(weights);
    for (size_t k = 0; k < leaves.size(); ++k) {
      Numbers got = leaves[k].grad().to_vector<double>();
      for (double& value : got) value /= row.runs;
      all &= print(row.op, row.names[k], got, differences(row, k, weights.to_vector<double>()));
    }
  }
  return all ? 0 : 1;
}
