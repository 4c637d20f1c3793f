// 06: leaves, detach, retain_grad, hooks, retain_graph, no_grad.

#include <iostream>

#include <voxgrad/voxgrad.h>

int main() {
  vox::Tensor w = vox::from_vector<float>({1, 2, 3}, {3}).set_requires_grad(true);
  vox::Tensor h = w * w;
  vox::Tensor constant = h.detach();
  std::cout << std::boolalpha;
  for (const auto& [name, t] : {std::pair("w", w), std::pair("h", h), std::pair("constant", constant)})
    std::cout << name << ": leaf " << t.is_leaf() << ", requires grad " << t.requires_grad() << "\n";

  // loss = sum w^2 c. Without detach() it would be sum w^4.
  vox::Tensor loss = (h * constant).sum();
  h.retain_grad();  // by default only leaves keep a gradient
  const int64_t hook = w.register_hook([](const vox::Tensor& g) {
    std::cout << "the hook sees " << g << " and halves it\n";
    return g / 2;
  });
  loss.backward(vox::Tensor(), {.retain_graph = true});
  std::cout << "gradient of h: " << h.grad() << "\ngradient of w: " << w.grad() << "\n";

  w.remove_hook(hook);
  loss.backward();
  std::cout << "after a second backward: " << w.grad() << "\n";

  {
    const auto guard = vox::no_grad();
    w.add_(w.grad(), -0.1);  // a step of gradient descent: not recorded
    std::cout << "w after a step: " << w
              << "\nw * w under no_grad() requires grad: " << (w * w).requires_grad() << "\n";
  }
  w.zero_grad();
  std::cout << "after zero_grad() a gradient is defined: " << w.grad().defined() << "\n";
}
