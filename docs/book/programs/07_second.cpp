// 07: second derivatives. A Hessian times a vector, and a penalty on the norm of a gradient.

#include <iostream>

#include <voxgrad/voxgrad.h>

int main() {
  // f(x) = x0^3 + x1^3 + x0 x1 has the Hessian (6 x0, 1; 1, 6 x1).
  const vox::Tensor x = vox::from_vector<double>({1, 2}, {2}).set_requires_grad(true);
  const vox::Tensor f = (x * x * x).sum() + x.select(0, 0) * x.select(0, 1);
  const vox::Tensor gradient = vox::grad({f}, {x}, {.create_graph = true})[0];
  std::cout << "gradient " << gradient << "\n";

  // The gradient is a function of x on the tape. Its vector-Jacobian product with v is H v, as H = H^T.
  const vox::Tensor v = vox::from_vector<double>({1, -1}, {2});
  std::cout << "H v " << vox::grad({gradient}, {x}, {.grad_outputs = {v}})[0] << "\n\n";

  // A network of one hidden layer, and the gradient of its output by its input.
  vox::manual_seed(1);
  vox::Tensor a = vox::randn({8, 16}, {.dtype = vox::f64}).set_requires_grad(true);
  vox::Tensor b = vox::randn({16, 1}, {.dtype = vox::f64}).set_requires_grad(true);
  const vox::Tensor in = vox::randn({4, 8}, {.dtype = vox::f64}).set_requires_grad(true);
  for (int step = 0; step <= 100; ++step) {
    const vox::Tensor out = vox::matmul(vox::tanh(vox::matmul(in, a)), b);
    const vox::Tensor slope = vox::grad({out.sum()}, {in}, {.create_graph = true})[0];
    const vox::Tensor length = vox::norm(slope, 2, {1});
    vox::Tensor penalty = ((length - 1) * (length - 1)).mean();
    if (step % 50 == 0) std::cout << "step " << step << ": norms of the gradient " << length.detach() << "\n";
    penalty.backward();
    const auto guard = vox::no_grad();
    for (vox::Tensor* weight : {&a, &b}) weight->add_(weight->grad(), -0.02).zero_grad();
  }
}
