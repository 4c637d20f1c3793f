#include <voxgrad/autograd/function.h>
#include <voxgrad/core/factories.h>
#include <voxgrad/ops/elementwise.h>

#include "docs/exercises/2_sum_to/exercise.h"
#include "docs/exercises/steps.h"

using exercise::expect_close;
using exercise::sum_to;
using vox::Shape;
using vox::Tensor;

namespace {

Tensor counting(const Shape& shape) {
  return vox::arange(vox::checked_numel("counting", shape), {.dtype = vox::f64}).reshape(shape);
}

Tensor numbers(const std::vector<double>& values, const Shape& shape) {
  return vox::from_vector(values, shape);
}

STEP("nothing was repeated") {
  const Tensor x = counting({2, 3});
  expect_close("sum_to((2,3) -> (2,3))", sum_to(x, {2, 3}), x);
}

STEP("a dimension of size 1 was repeated") {
  // 0 1 2
  // 3 4 5
  expect_close("sum_to((2,3) -> (2,1))", sum_to(counting({2, 3}), {2, 1}), numbers({3, 12}, {2, 1}));
  expect_close("sum_to((2,3) -> (1,3))", sum_to(counting({2, 3}), {1, 3}), numbers({3, 5, 7}, {1, 3}));
}

STEP("dimensions were added in front") {
  expect_close("sum_to((2,3) -> (3,))", sum_to(counting({2, 3}), {3}), numbers({3, 5, 7}, {3}));
  expect_close("sum_to((2,3) -> ())", sum_to(counting({2, 3}), {}), numbers({15}, {}));
}

STEP("both") {
  // Of shape (2,2,3), the first dimension is added and the last one is repeated.
  expect_close("sum_to((2,2,3) -> (2,1))", sum_to(counting({2, 2, 3}), {2, 1}), numbers({24, 42}, {2, 1}));
}

STEP("a size of 1 on both sides is not a repetition") {
  expect_close("sum_to((1,3) -> (1,3))", sum_to(counting({1, 3}), {1, 3}), counting({1, 3}));
  expect_close("sum_to((2,1,3) -> (1,3))", sum_to(counting({2, 1, 3}), {1, 3}), numbers({3, 5, 7}, {1, 3}));
}

STEP("sum_to is the adjoint of expand") {
  const Tensor a = vox::randn({4, 1, 2}, {.dtype = vox::f64}),
               x = vox::randn({3, 4, 5, 2}, {.dtype = vox::f64});
  const Tensor reduced = sum_to(x, a.shape());
  exercise::expect(reduced.shape() == a.shape(), "sum_to((3,4,5,2) -> (4,1,2)) has shape ", reduced.shape());
  expect_close("<expand(a), x> = <a, sum_to(x)>: the right side", (a * reduced).sum(),
               (a.expand(x.shape()) * x).sum());
}

/// a * b with broadcasting. The gradient of each factor has the shape of the product, until sum_to.
struct Mul : vox::Function<Mul> {
  static constexpr const char* name = "exercise_mul";
  Tensor forward(vox::FunctionContext& context, const std::vector<Tensor>& inputs) {
    context.save_for_backward(inputs);
    return inputs[0] * inputs[1];
  }
  std::vector<Tensor> backward(vox::FunctionContext& context, const Tensor& g) {
    const std::vector<Tensor> saved = context.saved();
    const Tensor &a = saved[0], &b = saved[1];
    const std::vector<Tensor> gradients = {sum_to(g * b, a.shape()), sum_to(g * a, b.shape())};
    exercise::expect(gradients[0].shape() == a.shape() && gradients[1].shape() == b.shape(),
                     "the gradients of factors of shapes ", a.shape(), " and ", b.shape(), " have shapes ",
                     gradients[0].shape(), " and ", gradients[1].shape());
    return gradients;
  }
};

STEP("the gradient of a broadcast product") {
  const auto f = [](const std::vector<Tensor>& inputs) { return Mul().apply(inputs); };
  const Tensor a = counting({2, 1, 3}).set_requires_grad(), b = counting({4, 1}).set_requires_grad();
  exercise::expect_gradients(f, {a, b});
}

}  // namespace
