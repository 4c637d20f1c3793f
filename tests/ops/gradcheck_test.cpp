#include "tests/support/catalogue.h"
#include "tests/support/test.h"

// First and second gradients of every op of the catalogue against difference quotients, on operands that are
// dense, transposed, every second element of their memory, or expanded.

namespace vox {
namespace {

/// Numbers at some distance from the kinks of all ops, none twice.
Tensor distinct(const Operand& operand, const Shape& shape, Device device, int64_t seed) {
  const Tensor x = values_of(shape, operand.holds, f64, device, seed);
  if (!is_floating(x.dtype())) return x;
  const Tensor place = arange(x.numel(), x.options()).reshape(shape) + 1;
  return (x * 1.5 + place * (0.001 * (1 + 0.37 * static_cast<double>(seed)))).detach();
}

/// A view of a dense leaf: how it is made, and the shape of the leaf for a view of some shape.
struct View {
  const char* name;
  Shape (*leaf)(Shape);
  Tensor (*of)(const Tensor& leaf, const Shape&);
};
const View views[] = {
    {"dense", [](Shape s) { return s; }, [](const Tensor& x, const Shape&) { return x; }},
    {"transposed",
     [](Shape s) {
       if (s.rank() > 1) std::swap(s[0], s[s.rank() - 1]);
       return s;
     },
     [](const Tensor& x, const Shape&) { return x.transpose(0, -1); }},
    {"strided",
     [](Shape s) {
       if (s.rank() > 0) s[s.rank() - 1] *= 2;
       return s;
     },
     [](const Tensor& x, const Shape& s) { return s.rank() > 0 ? x.slice(-1, 0, {}, 2) : x; }},
    {"expanded",
     [](Shape s) {
       if (s.rank() > 0) s[0] = 1;
       return s;
     },
     [](const Tensor& x, const Shape& s) { return x.expand(s); }}};

void check(const Sample& op, const View& view, Device device) {
  const std::vector<Operand> operands = op.operands();
  Tensors leaves;
  for (const Operand& operand : operands) {
    const Tensor leaf = distinct(operand, view.leaf(operand.shape), device, std::ssize(leaves));
    leaves.push_back(leaf);
    if (is_floating(leaf.dtype()) && !operand.is_constant) leaves.back().set_requires_grad();
  }
  const auto f = [&](const Tensors& inputs) {
    Tensors viewed;
    for (size_t k = 0; k < inputs.size(); ++k) viewed.push_back(view.of(inputs[k], operands[k].shape));
    return op(viewed);
  };
  const Tensor y = f(leaves);
  if (!y.requires_grad() || y.dtype() != f64) return;                  // differences need digits
  if (op.op == "std" && view.name == std::string("expanded")) return;  // a kink: rows of equal numbers
  expect_gradients(f, leaves, str(op.name(), ", ", view.name));
}

class GradcheckTest : public CatalogueTest {};
INSTANTIATE_TEST_SUITE_P(, GradcheckTest, families(), family_name);

TEST_P(GradcheckTest, FirstAndSecondGradients) {
  for (const Sample& op : samples(Size::small)) {
    if (!std::count(op.dtypes.begin(), op.dtypes.end(), f64)) continue;
    for (const View& view : views) check(op, view, device());
  }
}

/// A tensor of both sides of many kinks, kinks, and large numbers, from the one in this place on.
Tensor edges(const Operand& operand, Device device, size_t first) {
  constexpr double numbers[] = {-50, -3, -2.5, -1e-3, 0.4, 1.5, 3, 3.5, 30, 700};
  Doubles values;
  for (int64_t i = checked_numel("tests", operand.shape); i > 0; --i) {
    const double number = numbers[(values.size() + first) % std::size(numbers)];
    values.push_back(operand.holds == Holds::positive ? std::abs(number) : number);
  }
  const Tensor x = from_vector<double>(values, operand.shape, device);
  return operand.holds == Holds::bools ? gt(x, 0) : x;
}

// A gradient that is not recorded comes from one kernel, a recorded one from a formula of ops.
TEST_P(GradcheckTest, BothWaysToAGradientAgree) {
  const std::string family = std::get<1>(GetParam());
  const bool elementwise = family == "unary" || family == "binary";
  const double tolerance = elementwise ? 1e-14 : family == "resampling" ? 1e-12 : 1e-11;
  for (const Sample& op : samples(elementwise ? Size::small : Size::large)) {
    if (!std::count(op.dtypes.begin(), op.dtypes.end(), f64)) continue;
    for (const size_t first : {0, 4, 8}) {  // of the numbers, which are more than the elements
      Tensors leaves, wanted;
      for (const Operand& operand : op.operands()) {
        leaves.push_back(elementwise ? edges(operand, device(), first + 3 * leaves.size())
                                     : distinct(operand, operand.shape, device(), std::ssize(leaves)));
        if (leaves.back().dtype() == f64 && !operand.is_constant)
          wanted.push_back(leaves.back().set_requires_grad());
      }
      const Tensor y = op(leaves);
      if (!y.requires_grad()) break;
      const Tensor g = distinct({y.shape()}, y.shape(), y.device(), 3).to(y.dtype());
      const auto gradients = [&](bool recorded) {
        return grad(
            {y}, wanted,
            {.grad_outputs = {g}, .retain_graph = true, .create_graph = recorded, .allow_unused = true});
      };
      const Tensors kernel = gradients(false), formula = gradients(true);
      for (size_t k = 0; k < wanted.size(); ++k)
        EXPECT_TRUE(kernel[k].defined() ? allclose(kernel[k], formula[k].detach(), tolerance, tolerance, true)
                                        : !formula[k].defined())
            << op.name() << ", gradient " << k;
      if (!elementwise) break;
    }
  }
}

}  // namespace
}  // namespace vox
