// 03: an op of your own, its gradient, and a check that the gradient is right.
//
// Softplus: y = log(1 + exp(x)), a smooth relu. Its derivative is sigmoid(x). Computed like this,
// exp(x) overflows for large x. So forward computes max(x, 0) + log(1 + exp(-|x|)), which is equal; backward
// uses the derivative and does not depend on how forward computed.

#include <iostream>

#include <voxgrad/voxgrad.h>

struct Softplus : vox::Function<Softplus> {
  static constexpr const char* name = "softplus";

  // Ops in here are not recorded. backward gets only what save_for_backward keeps.
  vox::Tensor forward(vox::FunctionContext& ctx, const std::vector<vox::Tensor>& inputs) {
    const vox::Tensor& x = inputs[0];
    ctx.save_for_backward({x});
    return vox::relu(x) + vox::log(1 + vox::exp(-vox::abs(x)));
  }

  // Returns one gradient per input. Its ops can be recorded, so that the gradient can be differentiated too.
  std::vector<vox::Tensor> backward(vox::FunctionContext& ctx, const vox::Tensor& grad_output) {
    return {grad_output * vox::sigmoid(ctx.saved()[0])};
  }
};

vox::Tensor softplus(const vox::Tensor& x) { return Softplus().apply({x}); }

int main() {
  vox::Tensor x = vox::from_vector<double>({-800, -1, 0.5, 800}, {4}).set_requires_grad(true);
  vox::Tensor y = softplus(x);
  y.sum().backward();
  std::cout << "x        " << x << "\nsoftplus " << y << "\ngradient " << x.grad() << "\n\n";

  // gradcheck compares backward with central differences; gradgradcheck does so for the backward itself.
  vox::Tensor points = vox::from_vector<double>({-2, -0.5, 0.3, 4}, {2, 2}).set_requires_grad(true);
  const auto f = [](const std::vector<vox::Tensor>& inputs) { return softplus(inputs[0]); };
  vox::autograd::gradcheck(f, {points});
  vox::autograd::gradgradcheck(f, {points});
  std::cout << "gradcheck and gradgradcheck agree\n\n";

  // On the tape it looks like any other op.
  std::cout << vox::tape(softplus(points).sum());

  const std::vector<double> gradient = x.grad().to_vector<double>();
  return gradient.front() == 0 && gradient.back() == 1 && y.to_vector<double>().back() == 800 ? 0 : 1;
}
