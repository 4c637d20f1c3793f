#include "docs/faq/answers.h"

namespace faq {

ANSWER(1, second_backward) {
  const vox::Tensor x = leaf({1, 2, 3});
  vox::Tensor sum = (x + x).sum();
  sum.backward();
  sum.backward();  // add and sum keep no tensors, so none is missing
  std::cout << "x.grad() = " << x.grad() << "\n";

  vox::Tensor product = (x * x).sum();
  product.backward();
  attempt([&] { product.backward(); });

  vox::Tensor kept = (x * x).sum();
  kept.backward({}, {.retain_graph = true});
  kept.backward();
  std::cout << "x.grad() = " << x.grad() << "\n";
}

ANSWER(2, undefined_gradient) {
  const vox::Tensor x = leaf({1, 2, 3}), unused = leaf({1, 2, 3}), input = vox::ones({3});
  const vox::Tensor y = x * input;
  y.sum().backward();
  for (const vox::Tensor& t : {x, y, unused, input})
    std::cout << (t.grad().defined() ? "defined  " : "undefined") << "  " << vox::why(t) << "\n";
}

ANSWER(3, zero_gradient) {
  const vox::Watch watch;
  const vox::Tensor w = leaf({-1, -2}).set_name("w"), u = leaf({-1, 2}).set_name("u");
  const vox::Tensor rectified = vox::relu(w), signs = vox::sign(u);
  (rectified + signs).sum().backward();
  std::cout << "w.grad() = " << w.grad() << ", u.grad() = " << u.grad() << "\n";
  const vox::Recording& recording = watch.recording();
  for (const auto& [event, node, text] : recording.problems())
    std::cout << recording.label(node) << ": " << text << "\n";
}

ANSWER(4, nan_gradient) {
  const vox::Tensor x = leaf({0, 4}), positive = vox::gt(x, 0);
  vox::where(positive, vox::sqrt(x), x).sum().backward();
  std::cout << "where(x > 0, sqrt(x), x)        has gradient " << x.grad() << "\n";

  const vox::Tensor z = leaf({0, 4}), safe = vox::where(positive, z, vox::ones({2}));
  vox::where(positive, vox::sqrt(safe), z).sum().backward();
  std::cout << "where(x > 0, sqrt(safe), x)     has gradient " << z.grad() << "\n";
}

ANSWER(5, twice_too_large) {
  vox::Tensor w = leaf({1, 2, 3});
  for (int step = 0; step < 2; ++step) {
    (5 * w).sum().backward();  // adds to w.grad()
    std::cout << "step " << step << ": " << w.grad() << "\n";
  }
  w.zero_grad();
  (5 * w).sum().backward();
  std::cout << "after zero_grad(): " << w.grad() << "\n";
}

ANSWER(6, in_place) {
  vox::Tensor x = leaf({0, 1});
  attempt([&] { x.add_(1); });

  vox::Tensor y = vox::exp(x);  // keeps y, because the gradient is g * y
  {
    const auto guard = vox::no_grad();
    y.add_(1);  // allowed here, but the tape notices
  }
  attempt([&] { y.sum().backward(); });
}

ANSWER(7, what_ops_keep) {
  const vox::Tensor a = leaf({1, 2, 3}).set_name("a"), b = leaf({4, 5, 6}).set_name("b");
  std::cout << vox::tape(vox::exp(a * b + a));
}

ANSWER(8, detach_or_no_grad) {
  vox::Tensor x = leaf({3});
  const vox::Tensor y = x * x;
  (y * y).sum().backward();
  std::cout << "y * y:           d/dx = " << x.grad() << "\n";

  x.zero_grad();
  (y.detach() * (x * x)).sum().backward();  // the first factor is a constant
  std::cout << "y.detach() * y:  d/dx = " << x.grad() << "\n";

  const auto guard = vox::no_grad();  // until the end of the block nothing is recorded
  std::cout << "no_grad(): " << std::boolalpha << (x * x).requires_grad() << ", "
            << y.detach().requires_grad() << "\n";
}

ANSWER(9, parameter_does_not_train) {
  vox::Tensor w = leaf({1});
  (w * w).sum().backward();
  vox::Tensor moved = w - 0.1 * w.grad();  // a new tensor, made by recorded ops
  (moved * moved).sum().backward();
  std::cout << "moved: leaf " << std::boolalpha << moved.is_leaf() << ", gradient defined "
            << moved.grad().defined() << "\n";

  w.zero_grad();
  (w * w).sum().backward();
  {
    const auto guard = vox::no_grad();
    w.add_(w.grad(), -0.1);  // the same tensor with other numbers
  }
  std::cout << "w: leaf " << w.is_leaf() << ", value " << w.item() << "\n";
}

ANSWER(10, create_graph) {
  const vox::Tensor x = leaf({1, 2, 3}).set_name("x"), loss = vox::exp(x).sum();
  const vox::Tensor plain = vox::grad({loss}, {x}, {.retain_graph = true})[0];
  const vox::Tensor recorded = vox::grad({loss}, {x}, {.create_graph = true})[0];
  std::cout << "the gradient:\n"
            << vox::tape(plain) << "\nthe gradient with create_graph:\n"
            << vox::tape(recorded);
  std::cout << "\nsecond derivative: " << vox::grad({recorded.sum()}, {x})[0] << "\n";
}

}  // namespace faq
