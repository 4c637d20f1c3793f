// 03: an op of your own. You learn to write its gradient, and to check that the gradient is right.
//
// Log-cosh: y = log(cosh(x)), a smooth |x|. Its derivative is tanh(x). Computed like this, cosh(x) overflows
// for large x. So forward computes |x| + log(1 + exp(-2 |x|)) - log(2), which is equal; backward uses the
// derivative and does not depend on how forward computed.

#include <iostream>
#include <numbers>

#include <voxgrad/voxgrad.h>

struct LogCosh : vox::Function<LogCosh> {
  static constexpr const char* name = "log_cosh";

  // Ops in here are not recorded. backward gets only what save_for_backward keeps.
  vox::Tensor forward(vox::FunctionContext& ctx, const std::vector<vox::Tensor>& inputs) {
    const vox::Tensor& x = inputs[0];
    ctx.save_for_backward({x});
    const vox::Tensor size = vox::abs(x);
    return size + vox::log(1 + vox::exp(-2 * size)) - std::numbers::ln2;
  }

  // Returns one gradient per input. Its ops can be recorded, so that the gradient can be differentiated too.
  std::vector<vox::Tensor> backward(vox::FunctionContext& ctx, const vox::Tensor& grad_output) {
    return {grad_output * vox::tanh(ctx.saved()[0])};
  }
};

vox::Tensor log_cosh(const vox::Tensor& x) { return LogCosh().apply({x}); }

int main() {
  vox::Tensor x = vox::from_vector<double>({-800, -1, 0.5, 800}, {4}).set_requires_grad(true);
  vox::Tensor y = log_cosh(x);
  y.sum().backward();
  std::cout << "x        " << x << "\nlog_cosh " << y << "\ngradient " << x.grad() << "\n\n";

  // gradcheck compares backward with central differences; gradgradcheck does so for the backward itself.
  vox::Tensor points = vox::from_vector<double>({-2, -0.5, 0.3, 4}, {2, 2}).set_requires_grad(true);
  const auto f = [](const std::vector<vox::Tensor>& inputs) { return log_cosh(inputs[0]); };
  vox::autograd::gradcheck(f, {points});
  vox::autograd::gradgradcheck(f, {points});
  std::cout << "gradcheck and gradgradcheck agree\n\n";

  // On the tape it looks like any other op.
  std::cout << vox::tape(log_cosh(points).sum());

  const std::vector<double> gradient = x.grad().to_vector<double>();
  return gradient.front() == -1 && gradient.back() == 1 && y.to_vector<double>().back() < 800 ? 0 : 1;
}
