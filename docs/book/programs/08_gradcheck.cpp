// 08: gradcheck, and what it cannot see. The first op is right; of the others, one is right as well.

#include <iostream>

#include <voxgrad/voxgrad.h>

using Formula = std::function<vox::Tensor(const vox::Tensor&)>;

// An op made of two formulas: y = value(x), and dy/dx = slope(x).
struct Op : vox::Function<Op> {
  static constexpr const char* name = "op";
  Formula value, slope;
  vox::Tensor forward(vox::FunctionContext& ctx, const std::vector<vox::Tensor>& inputs) {
    ctx.save_for_backward(inputs);
    return value(inputs[0]);
  }
  std::vector<vox::Tensor> backward(vox::FunctionContext& ctx, const vox::Tensor& g) {
    return {g * slope(ctx.saved()[0])};
  }
};

void examine(const char* title, double at, Formula value, Formula slope) {
  const vox::Tensor x = vox::full({1}, at, {.dtype = vox::f64}).set_requires_grad(true);
  const auto f = [&](const std::vector<vox::Tensor>& inputs) { return Op{{}, value, slope}.apply(inputs); };
  std::cout << title << "\n";
  for (auto* check : {&vox::autograd::gradcheck, &vox::autograd::gradgradcheck}) try {
      std::cout << (check(f, {x}, {}) ? "  agrees\n" : "");
    } catch (const vox::GradError& error) {
      std::cout << "  " << error.what() << "\n";
    }
}

int main() {
  const auto square = [](const auto& x) { return x * x; };
  examine("x^2", 3, square, [](const auto& x) { return 2 * x; });
  examine("forgotten factor", 3, square, [](const auto& x) { return x; });
  examine("slope off the tape", 3, square, [](const auto& x) { return 2 * x.detach(); });
  examine("wrong above 10", 3, square, [](const auto& x) { return 2 * vox::clamp(x, -10, 10); });
  examine("kink of relu", 0, vox::relu, [](const auto& x) { return vox::gt(x, 0).to(vox::f64); });
}
