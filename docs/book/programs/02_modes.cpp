// 02: one Jacobian, computed by rows (reverse mode) and by columns (forward mode).

#include <array>
#include <cmath>
#include <iostream>

#include <voxgrad/voxgrad.h>

// f maps three numbers to two. T is a tensor of one element, or a Dual.
template <class T>
std::array<T, 2> f(const std::array<T, 3>& x) {
  return {x[0] * x[1] + exp(x[2]), x[0] * x[1] * x[2]};
}

// Forward mode: a value and its derivative in one direction, computed together.
struct Dual {
  double value, tangent;
};
Dual operator+(Dual a, Dual b) { return {a.value + b.value, a.tangent + b.tangent}; }
Dual operator*(Dual a, Dual b) { return {a.value * b.value, a.tangent * b.value + a.value * b.tangent}; }
Dual exp(Dual a) { return {std::exp(a.value), a.tangent * std::exp(a.value)}; }

int main() {
  const std::array<double, 3> at = {2, 3, 0};
  std::array<vox::Tensor, 3> x;
  for (int j = 0; j < 3; ++j) x[j] = vox::full({}, at[j], {.dtype = vox::f64}).set_requires_grad(true);
  const auto y = f(x);
  for (int i = 0; i < 2; ++i) {  // one backward pass for each output
    const auto row = vox::grad({y[i]}, {x[0], x[1], x[2]}, {.retain_graph = true});
    std::cout << "row " << i << " of J, by a backward pass:   ";
    for (const vox::Tensor& entry : row) std::cout << " " << entry.item<double>();
    std::cout << "\n";
  }
  for (int j = 0; j < 3; ++j) {  // one forward pass for each input
    std::array<Dual, 3> moved;
    for (int k = 0; k < 3; ++k) moved[k] = {at[k], k == j ? 1.0 : 0.0};
    const auto [y0, y1] = f(moved);
    std::cout << "column " << j << " of J, by a forward pass: " << y0.tangent << " " << y1.tangent << "\n";
  }
}
