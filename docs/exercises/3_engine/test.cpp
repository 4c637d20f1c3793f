#include <cstdlib>
#include <string_view>

#include <voxgrad/autograd/function.h>
#include <voxgrad/core/factories.h>
#include <voxgrad/ops/elementwise.h>
#include <voxgrad/ops/reduce.h>

#include "docs/exercises/3_engine/exercise.h"
#include "docs/exercises/steps.h"

using exercise::expect;
using exercise::expect_close;
using vox::Tensor;

namespace {

Tensor number(double value) { return vox::full({}, value, {.dtype = vox::f64}); }
Tensor leaf(double value) { return number(value).set_requires_grad(); }

/// The first backward through a tape.
void backward(const Tensor& output, const Tensor& gradient) {
  try {
    exercise::without_engine([&] { exercise::backward(output, gradient); });
  } catch (const vox::GradError& error) {
    expect(std::string_view(error.what()).find("ran before") == std::string_view::npos,
           "a node ran twice: it must wait for all gradients of its outputs and run once. ",
           "The second run threw\n      ", error.what());
    throw;
  }
}

/// The sum of its inputs. It counts how often backward runs, and how deep the stack is. It returns a gradient
/// for each input, also for those that need none.
struct Sum : vox::Function<Sum> {
  static constexpr const char* name = "counted_sum";
  static inline int runs = 0, allowed = 0;
  static inline const char *highest = nullptr, *lowest = nullptr;  // addresses on the stack

  static void reset(int allowed_runs) { runs = 0, allowed = allowed_runs, highest = lowest = nullptr; }

  Tensor forward(vox::FunctionContext&, const std::vector<Tensor>& inputs) {
    Tensor total = inputs[0].clone();
    for (size_t i = 1; i < inputs.size(); ++i) total.add_(inputs[i]);
    return total;
  }
  std::vector<Tensor> backward(vox::FunctionContext&, const Tensor& g) {
    expect(++runs <= allowed,
           "a node ran twice: it must wait for all gradients of its outputs and run once. ",
           "This graph has ", allowed, allowed == 1 ? " sum" : " sums", ", and sums ran ", runs, " times");
    const char here = 0, *address = &here;
    if (!highest || address > highest) highest = address;
    if (!lowest || address < lowest) lowest = address;
    return {g, g};
  }
};
Tensor counted_sum(const Tensor& a, const Tensor& b) { return Sum().apply({a, b}); }

STEP("a chain") {
  const Tensor x = leaf(2);
  backward(vox::exp(3 * x), number(1));
  expect_close("the gradient of exp(3x) at 2", x.grad(), 3 * vox::exp(number(6)));
}

STEP("the caller's gradient is where it starts") {
  const Tensor x = leaf(2);
  backward(3 * x, number(10));
  expect_close("the gradient of 3x for the incoming gradient 10", x.grad(), number(30));
}

STEP("an edge that needs no gradient") {
  const Tensor x = leaf(2), constant = number(5);
  backward(constant * x, number(1));
  expect_close("the gradient of 5x", x.grad(), number(5));
  expect(!constant.grad().defined(), "a tensor that does not require grad got a gradient");
}

STEP("a gradient that its input does not need") {
  Sum::reset(1);
  const Tensor x = leaf(2);
  backward(counted_sum(number(5), x),
           number(1));  // if this crashes: ask needs_grad(i) before you use edges()[i]
  expect_close("the gradient of 5 + x", x.grad(), number(1));
}

STEP("a diamond: two paths to one node") {
  const Tensor x = leaf(3), y = 2 * x;
  backward(y * y + y, number(1));  // 4x^2 + 2x
  expect_close("the gradient of y * y + y with y = 2x, at 3", x.grad(), number(26));
}

STEP("a diamond with a long and a short arm") {
  Sum::reset(2);
  const Tensor x = leaf(1), y = counted_sum(x, x);
  const Tensor far = vox::exp(vox::sqrt(y * y));  // y reaches the end by one edge, and by three ops
  backward(counted_sum(far, y), number(1));
  expect_close("the gradient of exp(sqrt(y * y)) + y with y = 2x, at 1", x.grad(),
               2 * (vox::exp(number(2)) + 1));
}

STEP("a graph with 2^30 paths takes 30 steps") {
  Sum::reset(30);
  const Tensor x = leaf(1);
  Tensor y = x;
  for (int i = 0; i < 30; ++i) y = counted_sum(y, y);
  backward(y, number(1));
  expect_close("the gradient of 2^30 x", x.grad(), number(1 << 30));
}

STEP("a node with two outputs") {
  const Tensor x = vox::from_vector<double>({1, 2, 6}, {3}).set_requires_grad();
  const vox::VarMean both = vox::var_mean(x);  // one node: output 0 is the variance, output 1 the mean
  backward(both.var + 3 * both.mean, number(1));
  expect_close("the gradient of var(x) + 3 mean(x) at (1, 2, 6)", x.grad(),
               vox::from_vector<double>({-1, 0, 4}, {3}));
  const Tensor z = vox::from_vector<double>({1, 2, 6}, {3}).set_requires_grad();
  backward(vox::var_mean(z).mean, number(3));
  expect_close("the gradient of 3 mean(x)", z.grad(), vox::ones_like(z));
}

STEP("gradients that share memory") {
  const Tensor x = leaf(1), z = leaf(1), g = number(1), a = vox::exp(x), sum = a + vox::exp(z);
  backward(sum + a, g);  // a + gives its gradient to both inputs; a second one arrives at a alone
  expect_close("the gradient of 2 exp(x) + exp(z) by x", x.grad(), 2 * vox::exp(number(1)));
  expect_close("the same by z", z.grad(), vox::exp(number(1)));
  expect_close("the caller's gradient after the backward", g, number(1));
}

STEP("a second backward adds to grad()") {
  const Tensor x = leaf(2);
  backward(3 * x, number(1));
  backward(4 * x, number(1));
  expect_close("grad() after the backward of 3x and of 4x", x.grad(), number(7));
}

STEP("the stack stays flat on a long chain") {
  Sum::reset(1000);
  const Tensor x = leaf(1), zero = number(0);
  Tensor y = x;
  for (int i = 0; i < 1000; ++i) y = counted_sum(y, zero);
  backward(y, number(1));
  expect_close("the gradient of a chain of 1000 sums", x.grad(), number(1));
  expect(Sum::highest - Sum::lowest < 16384, "the stack grew by ", Sum::highest - Sum::lowest,
         " bytes over a chain of 1000 nodes: a longer chain would overflow it; use a loop");
}

STEP("a node that has run is released") {
  const Tensor x = leaf(2), y = x * x;
  backward(y, number(1));
  expect_close("the gradient of x * x at 2", x.grad(), number(4));
  try {
    exercise::backward(y, number(1));
  } catch (const vox::GradError&) {
    return;
  }
  expect(false, "a second backward through x * x did not throw: node->release() frees the saved tensors");
}

}  // namespace
