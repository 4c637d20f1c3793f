#include <voxgrad/autograd/grad_mode.h>
#include <voxgrad/core/factories.h>
#include <voxgrad/ops/elementwise.h>

#include "docs/exercises/5_conv_transpose3d/exercise.h"
#include "docs/exercises/steps.h"

using exercise::expect;
using exercise::expect_close;
using vox::Shape;
using vox::Tensor;

namespace {

Tensor random(const Shape& shape) { return vox::randn(shape, {.dtype = vox::f64}); }

void expect_shape(const Shape& input, const Shape& weight, const vox::ConvTranspose3dOptions& options) {
  const Shape got = exercise::output_shape(vox::zeros(input), vox::zeros(weight), options);
  const Shape expected = vox::conv_transpose3d(vox::zeros(input), vox::zeros(weight), {}, options).shape();
  expect(got == expected, "output_shape for input ", input, ", weight ", weight, ", stride ", options.stride,
         ", padding ", options.padding, ", dilation ", options.dilation, ", output_padding ",
         options.output_padding, ", groups ", options.groups, " is ", got, " instead of ", expected);
}

void expect_same(const Tensor& input, const Tensor& weight, const vox::ConvTranspose3dOptions& options) {
  expect_close("conv_transpose3d", exercise::conv_transpose3d(input, weight, options),
               vox::conv_transpose3d(input, weight, {}, options), 1e-10);
}

STEP("the shape of the result") {
  expect_shape({1, 1, 4, 5, 6}, {1, 1, 3, 3, 3}, {});
  expect_shape({1, 1, 4, 5, 6}, {1, 1, 3, 2, 4}, {.stride = {1, 2, 3}});
  expect_shape({1, 1, 4, 5, 6}, {1, 1, 3, 2, 4}, {.stride = 2, .padding = {1, 0, 2}});
  expect_shape({1, 1, 4, 5, 6}, {1, 1, 3, 2, 4}, {.stride = 2, .padding = 1, .dilation = {1, 2, 3}});
  expect_shape({1, 1, 4, 5, 6}, {1, 1, 3, 2, 4}, {.stride = 3, .padding = 1, .output_padding = {0, 1, 2}});
  expect_shape({2, 6, 4, 5, 6}, {6, 5, 3, 2, 4}, {});
  expect_shape({2, 6, 4, 5, 6}, {6, 5, 3, 2, 4}, {.stride = 2, .groups = 3});
}

STEP("one cell writes one kernel") {
  // One cell writes the whole kernel, multiplied by its value.
  const Tensor kernel = random({1, 1, 2, 3, 2});
  expect_close("conv_transpose3d of one cell of value 5",
               exercise::conv_transpose3d(vox::full({1, 1, 1, 1, 1}, 5, {.dtype = vox::f64}), kernel),
               5 * kernel);
}

STEP("the values, with stride, padding and dilation") {
  const Tensor input = random({2, 3, 3, 4, 2}), weight = random({3, 2, 3, 2, 4});
  expect_same(input, weight, {});
  expect_same(input, weight, {.stride = {1, 2, 3}, .padding = {1, 0, 1}, .dilation = {1, 3, 1}});
}

STEP("output_padding") {
  expect_same(random({1, 2, 3, 2, 4}), random({2, 3, 3, 2, 4}), {.stride = 3, .output_padding = {0, 1, 2}});
}

STEP("groups") { expect_same(random({1, 6, 3, 2, 4}), random({6, 2, 2, 3, 2}), {.stride = 2, .groups = 3}); }

STEP("it is the adjoint of conv3d") {
  const Tensor big = random({1, 2, 7, 8, 5}), weight = random({3, 2, 3, 2, 3}),
               small = random({1, 3, 3, 4, 2});
  const Tensor left = (vox::conv3d(big, weight, {}, {.stride = 2}) * small).sum();
  const Tensor transposed = exercise::conv_transpose3d(small, weight, {.stride = 2});
  expect(transposed.shape() == big.shape(), "conv_transpose3d has shape ", transposed.shape(), " instead of ",
         big.shape());
  expect_close("<conv3d(big), small> = <big, conv_transpose3d(small)>: the right side",
               (big * transposed).sum(), left, 1e-10);
}

STEP("it works under no_grad(), and leaves no tape there") {
  const Tensor input = random({1, 1, 2, 2, 2}), weight = random({1, 1, 2, 2, 2}).set_requires_grad();
  const auto guard = vox::no_grad();
  const Tensor output = exercise::conv_transpose3d(input, weight, {});
  expect(!output.requires_grad(), "the result of a call under no_grad() requires grad");
  expect_close("conv_transpose3d under no_grad()", output, vox::conv_transpose3d(input, weight), 1e-10);
}

STEP("its gradients: gradcheck and gradgradcheck") {
  const auto f = [](const std::vector<Tensor>& inputs) {
    return exercise::conv_transpose3d(inputs[0], inputs[1], {.stride = 2, .padding = 1});
  };
  const std::vector<Tensor> inputs = {random({1, 2, 2, 2, 1}).set_requires_grad(),
                                      random({2, 1, 2, 3, 3}).set_requires_grad()};
  expect(f(inputs).requires_grad(), "the result does not require grad: pass create_graph to vox::grad");
  exercise::expect_gradients(f, inputs);
}

}  // namespace
