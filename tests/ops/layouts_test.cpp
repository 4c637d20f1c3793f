#include "tests/support/layouts.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#if defined(__GLIBC__)
#include <malloc.h>
#endif

#include <voxgrad/voxgrad.h>

#include "tests/ops/unary_cases.h"
#include "tests/support/devices.h"
#include "tests/support/values.h"

// Every op that has kernels, on every dtype that it takes, with operands in every layout of
// tests/support/layouts.h: each operand in turn, all together, and all empty; then its gradients, for a
// gradient of the result in every layout. The expected results are those on dense copies, bit for bit.
// HACKING.md promises that for elements. Sums over several dimensions may be added in another order, but the
// values here are quarters of small whole numbers, so their sums are exact in any order, and the same rule
// applies.
//
// A new op is one line in a table below.

namespace vox {
namespace {

using namespace vox::testing;
using Tensors = std::vector<Tensor>;
using DTypes = std::vector<DType>;

const DTypes floating{f32, f64, bf16, f16}, arithmetic{f32, f64, bf16, f16, i64, u8},
    every_dtype{f32, f64, bf16, f16, i64, u8, boolean};

// ---- What an op is ----------------------------------------------------------------------------------------

/// What an operand holds. `numbers` have both signs and are never 0; `bools` and `indices` have their own
/// dtype, whatever dtype is tested.
enum class Holds { numbers, positive, bools, indices };
using enum Holds;

struct Operand {
  Shape shape;
  Holds holds = numbers;
  bool is_batched = true;  ///< dimension 0 may be empty
};

struct Op {
  std::string name;
  std::vector<Operand> operands;
  std::function<Tensor(const Tensors&)> f;
  DTypes dtypes;
};
using Ops = std::vector<Op>;

/// More elements than any kernel buffers at once, in rows long enough to be read in place.
const Shape box{3, 10, 40};

Op unary(std::string name, std::function<Tensor(const Tensor&)> f, const DTypes& dtypes = floating,
         Holds holds = numbers, const Shape& shape = box) {
  return {std::move(name), {{shape, holds}}, [f](const Tensors& t) { return f(t[0]); }, dtypes};
}

Op binary(std::string name, std::function<Tensor(const Tensor&, const Tensor&)> f,
          const DTypes& dtypes = floating, Holds holds = numbers) {
  return {
      std::move(name), {{box, holds}, {box, holds}}, [f](const Tensors& t) { return f(t[0], t[1]); }, dtypes};
}

// ---- Running it -------------------------------------------------------------------------------------------

/// Numbers are n / 4, or n in integers, with an odd n of -11 to 11; indices are 0 to 2.
Tensor values_of(const Shape& shape, Holds holds, DType dtype, Device device, int64_t seed) {
  std::vector<double> values(static_cast<size_t>(checked_numel("tests", shape)));
  const double unit = is_floating(dtype) ? 0.25 : 1;
  for (size_t i = 0; i < values.size(); ++i) {
    const int64_t mixed = (static_cast<int64_t>(i) * 7 + seed * 5) % 29;
    const double number = unit * static_cast<double>(mixed % 12 * 2 - 11);
    values[i] = holds == indices                     ? static_cast<double>(mixed % 3)
                : holds == bools || dtype == boolean ? static_cast<double>(mixed % 2)
                : holds == positive                  ? std::abs(number)
                                                     : number;
  }
  const Tensor v = from_vector<double>(values, shape);
  return v.to(holds == indices ? i64 : holds == bools ? boolean : dtype).to(device);
}

/// Fills the memory that the next allocations on a GPU get, or the stack of the next calls, with
/// unwritten_byte. A kernel that reads unwritten memory then computes NaN.
[[gnu::noinline]] void poison(Device device) {
  if (device.is_cuda()) {
    for (const int64_t bytes : {512, 8192, 65536, 1 << 20})
      full({bytes}, unwritten_byte, {.dtype = u8, .device = device});
    return;
  }
  unsigned char stack[128 << 10];
  std::memset(stack, unwritten_byte, sizeof stack);
  asm volatile("" : : "r"(stack) : "memory");
}

/// Makes glibc fill every heap block that it hands out with `byte`, or stops that.
void poison_heap([[maybe_unused]] std::optional<unsigned char> byte) {
#if defined(__GLIBC__)
  mallopt(M_PERTURB, byte ? 0x100 | (*byte ^ 0xff) : 0);  // it takes the complement; 0 means none
#endif
}

/// The result and the gradients of all operands that have one; or the message of an error.
struct Outcome {
  Tensors tensors;
  std::string error;
};

Outcome run(const Op& op, const Tensors& operands, const Tensor& gradient = {}) {
  Outcome outcome;
  try {
    Tensors leaves;
    for (const Tensor& t : operands) {
      leaves.push_back(t.detach());
      if (is_floating(t.dtype())) leaves.back().set_requires_grad();
    }
    poison(operands[0].device());
    Tensor y = op.f(leaves);
    outcome.tensors.push_back(y);
    if (!y.requires_grad()) return outcome;
    poison(operands[0].device());
    y.backward(gradient.defined() ? gradient : values_of(y.shape(), numbers, y.dtype(), y.device(), 9));
    for (const Tensor& leaf : leaves) {
      if (leaf.grad().defined()) outcome.tensors.push_back(leaf.grad());
    }
  } catch (const Error& error) {
    outcome.error = error.what();
  }
  return outcome;
}

void expect_same(const Outcome& got, const Outcome& expected, const std::string& what) {
  EXPECT_EQ(got.error, expected.error) << what;
  ASSERT_EQ(got.tensors.size(), expected.tensors.size()) << what;
  for (size_t i = 0; i < got.tensors.size(); ++i)
    EXPECT_TRUE(same_bits(got.tensors[i], expected.tensors[i]))
        << what << ": " << (i == 0 ? std::string("result") : str("gradient ", i - 1));
}

/// Whether there is no infinity, and no NaN, which unwritten memory would cause.
bool is_finite(const Tensor& t) {
  const std::vector<double> values = t.detach().to(Device::cpu()).to(f64).to_vector<double>();
  return std::all_of(values.begin(), values.end(), [](double v) { return std::isfinite(v); });
}

/// The layouts of an operand, and the operand in one of them: in dense memory if it has no such layout.
using Layouts = std::vector<LaidOut>;
const LaidOut& find(const Layouts& list, const std::string& layout) {
  for (const LaidOut& l : list) {
    if (l.layout == layout) return l;
  }
  return list[0];
}

/// Runs op with each operand in each layout, then with all of them in that layout.
void check_operands(const Op& op, const std::vector<Layouts>& operands, const std::string& name) {
  const auto check = [&](const std::string& layout, size_t first, size_t last, const std::string& what) {
    Tensors laid_out, dense;
    for (size_t k = 0; k < operands.size(); ++k) {
      const LaidOut& operand = find(operands[k], first <= k && k < last ? layout : "contiguous");
      laid_out.push_back(operand.tensor), dense.push_back(operand.dense);
    }
    const Outcome expected = run(op, dense);
    expect_same(run(op, laid_out), expected, what);
    if (dense[0].numel() == 0) return;  // some ops refuse this, and a mean of nothing is NaN
    EXPECT_EQ(expected.error, "") << what;
    for (const Tensor& t : expected.tensors) EXPECT_TRUE(is_finite(t)) << what << ", dense";
  };
  for (size_t k = 0; k < operands.size(); ++k) {
    for (const LaidOut& l : operands[k]) check(l.layout, k, k + 1, str(name, ", operand ", k, " ", l.layout));
  }
  for (const LaidOut& l : operands[0]) {
    if (operands.size() > 1) check(l.layout, 0, operands.size(), str(name, ", all operands ", l.layout));
  }
}

void check_gradients(const Op& op, const Tensors& operands, const std::string& name) {
  const Tensor y = run(op, operands).tensors.at(0);
  if (!y.requires_grad()) return;
  for (const LaidOut& g : layouts(values_of(y.shape(), numbers, y.dtype(), y.device(), 4)))
    expect_same(run(op, operands, g.tensor), run(op, operands, g.dense), str(name, ", gradient ", g.layout));
}

void check(const Ops& ops, Device device) {
  for (const Op& op : ops) {
    for (const DType dtype : op.dtypes) {
      const std::string name = str(op.name, " of ", dtype);
      std::vector<Layouts> operands, empty_operands;
      Tensors dense;
      for (size_t k = 0; k < op.operands.size(); ++k) {
        const auto& [shape, holds, is_batched] = op.operands[k];
        const auto values = [&, k = static_cast<int64_t>(k)](const Shape& s) {
          return values_of(s, holds, dtype, device, k);
        };
        Shape none = shape;
        if (is_batched) none[0] = 0;
        operands.push_back(layouts(values(shape)));
        empty_operands.push_back(layouts(values(none)));
        dense.push_back(operands.back()[0].dense);
      }
      ASSERT_NO_FATAL_FAILURE(check_operands(op, operands, name));
      ASSERT_NO_FATAL_FAILURE(check_gradients(op, dense, name));
      ASSERT_NO_FATAL_FAILURE(check_operands(op, empty_operands, name + ", empty"));
    }
  }
}

class LayoutsTest : public DeviceTest {
 protected:
  void SetUp() override {
    DeviceTest::SetUp();
    poison_heap(unwritten_byte);
  }
  void TearDown() override { poison_heap(std::nullopt); }
};
INSTANTIATE_TEST_SUITE_P(, LayoutsTest, devices(), device_name);

// ---- The ops ----------------------------------------------------------------------------------------------

TEST_P(LayoutsTest, Unary) {
  Ops ops;
  for (const UnaryCase& c : unary_cases()) {
    const DTypes& dtypes = c.takes == UnaryCase::integers ? arithmetic : floating;
    ops.push_back(unary(c.name, c.op, dtypes, c.takes == UnaryCase::positive ? positive : numbers));
  }
  check(ops, device());
}

TEST_P(LayoutsTest, Binary) {
  check({binary(
             "add", [](const Tensor& a, const Tensor& b) { return a + b; }, arithmetic),
         binary(
             "sub", [](const Tensor& a, const Tensor& b) { return a - b; }, arithmetic),
         binary(
             "mul", [](const Tensor& a, const Tensor& b) { return a * b; }, arithmetic),
         binary("div", [](const Tensor& a, const Tensor& b) { return a / b; }),
         binary(
             "pow", [](const Tensor& a, const Tensor& b) { return pow(a, b); }, floating, positive),
         binary(
             "maximum", [](const Tensor& a, const Tensor& b) { return maximum(a, b); }, arithmetic),
         binary(
             "minimum", [](const Tensor& a, const Tensor& b) { return minimum(a, b); }, arithmetic),
         {"broadcast add",
          {{{10, 40}}, {{1, 40}, numbers, false}},
          [](const Tensors& t) { return t[0] + t[1]; },
          arithmetic}},
        device());
}

TEST_P(LayoutsTest, Numbers) {
  check({unary(
             "x + 3", [](const Tensor& x) { return x + 3; }, arithmetic),
         unary(
             "x - 3", [](const Tensor& x) { return x - 3; }, arithmetic),
         unary(
             "3 - x", [](const Tensor& x) { return 3 - x; }, arithmetic),
         unary(
             "x * 3", [](const Tensor& x) { return x * 3; }, arithmetic),
         unary("x / 3", [](const Tensor& x) { return x / 3; }),
         unary("3 / x", [](const Tensor& x) { return 3 / x; }),
         unary(
             "pow(x, 1.5)", [](const Tensor& x) { return pow(x, 1.5); }, floating, positive),
         unary(
             "x == 1", [](const Tensor& x) { return eq(x, 1); }, every_dtype),
         unary(
             "x < 1", [](const Tensor& x) { return lt(x, 1); }, every_dtype)},
        device());
}

TEST_P(LayoutsTest, Choices) {
  using Compare = Tensor (*)(const Tensor&, const Tensor&);
  check({binary("eq", static_cast<Compare>(eq), every_dtype),
         binary("ne", static_cast<Compare>(ne), every_dtype),
         binary("lt", static_cast<Compare>(lt), every_dtype),
         binary("le", static_cast<Compare>(le), every_dtype),
         binary("gt", static_cast<Compare>(gt), every_dtype),
         binary("ge", static_cast<Compare>(ge), every_dtype),
         {"where",
          {{box, bools}, {box}, {box}},
          [](const Tensors& t) { return where(t[0], t[1], t[2]); },
          every_dtype}},
        device());
}

TEST_P(LayoutsTest, Copies) {
  Ops ops{unary(
              "clone", [](const Tensor& x) { return x.clone(); }, every_dtype),
          unary(
              "contiguous", [](const Tensor& x) { return x.contiguous(); }, every_dtype),
          unary(
              "to the CPU", [](const Tensor& x) { return x.to(Device::cpu()); }, every_dtype)};
  for (const DType to : every_dtype)
    ops.push_back(unary(
        str("to ", to), [to](const Tensor& x) { return x.to(to); }, every_dtype));
  check(ops, device());
}

TEST_P(LayoutsTest, Shaping) {
  check({unary(
             "reshape",
             [](const Tensor& x) {
               return x.reshape({-1, 8});
             },
             every_dtype),
         unary(
             "slice", [](const Tensor& x) { return x.slice(1, 1, 9, 3); }, every_dtype),
         unary(
             "select", [](const Tensor& x) { return x.select(2, 7); }, every_dtype),
         unary(
             "permute",
             [](const Tensor& x) {
               return x.permute({2, 0, 1});
             },
             every_dtype),
         unary(
             "expand",
             [](const Tensor& x) {
               return x.unsqueeze(1).expand({-1, 2, -1, -1});
             },
             every_dtype),
         unary(
             "pad",
             [](const Tensor& x) {
               return pad(x, {1, 2, 0, 1}, 1);
             },
             every_dtype),
         unary(
             "pad by reflection",
             [](const Tensor& x) {
               return pad(x, {1, 2, 0, 1}, PadMode::reflect);
             },
             every_dtype),
         unary(
             "flip",
             [](const Tensor& x) {
               return flip(x, {0, 2});
             },
             every_dtype),
         unary(
             "roll", [](const Tensor& x) { return roll(x, 3, 1); }, every_dtype),
         binary(
             "cat",
             [](const Tensor& a, const Tensor& b) {
               return cat({a, b}, 2);
             },
             every_dtype),
         binary(
             "stack",
             [](const Tensor& a, const Tensor& b) {
               return stack({a, b}, 1);
             },
             every_dtype),
         {"index_select 0",
          {{box, numbers, false}, {{5}, indices}},
          [](const Tensors& t) { return index_select(t[0], 0, t[1]); },
          every_dtype},
         {"index_select 2",
          {{box}, {{5}, indices, false}},
          [](const Tensors& t) { return index_select(t[0], 2, t[1]); },
          every_dtype}},
        device());
}

TEST_P(LayoutsTest, Reductions) {
  using Reduce = Tensor (*)(const Tensor&, const Shape&, bool);
  const std::vector<std::tuple<const char*, Reduce, DTypes>> kinds{
      {"sum", sum, every_dtype}, {"mean", mean, floating},        {"max", max, every_dtype},
      {"min", min, every_dtype}, {"argmax", argmax, every_dtype}, {"argmin", argmin, every_dtype}};
  Ops ops;
  for (const auto& [kind, reduce, dtypes] : kinds) {
    for (const Shape& dims : {Shape{}, {0}, {1}, {2}, {0, 2}, {1, 2}})
      ops.push_back(unary(
          str(kind, " over ", dims),
          [=, reduce = reduce](const Tensor& x) { return reduce(x, dims, dims.rank() == 1); }, dtypes));
  }
  for (const int64_t dim : {0, 1, 2}) {
    ops.push_back(unary(
        str("max and its index, ", dim), [=](const Tensor& x) { return max(x, dim).values; }, every_dtype));
    ops.push_back(unary(
        str("any ", dim), [=](const Tensor& x) { return any(x, dim); }, every_dtype));
  }
  ops.push_back(unary("sum_to", [](const Tensor& x) { return sum_to(x, {10, 1}); }));
  for (const int64_t dim : {0, 1, 2}) {
    ops.push_back(unary(str("softmax ", dim), [=](const Tensor& x) { return softmax(x, dim); }));
    ops.push_back(unary(str("log_softmax ", dim), [=](const Tensor& x) { return log_softmax(x, dim); }));
  }
  check(ops, device());
}

TEST_P(LayoutsTest, Products) {
  const auto product = [](const Tensors& t) { return matmul(t[0], t[1]); };
  check({{"matrices", {{{20, 24}}, {{24, 18}, numbers, false}}, product, floating},
         {"batches", {{{3, 7, 5}}, {{3, 5, 9}}}, product, floating},
         {"matrix and vector", {{{20, 24}}, {{24}, numbers, false}}, product, floating},
         {"linear",
          {{{6, 24}}, {{10, 24}, numbers, false}},
          [](const Tensors& t) { return matmul(t[0], t[1].transpose(0, 1)); },
          floating}},
        device());
}

TEST_P(LayoutsTest, Convolutions) {
  const auto conv = [](auto op, auto options) {
    return [=](const Tensors& t) { return op(t[0], t[1], t[2], options); };
  };
  const auto filter = [](const Shape& shape) { return Operand{shape, numbers, false}; };
  check({{"conv1d",
          {{{2, 4, 9}}, filter({6, 2, 3}), filter({6})},
          conv(conv1d, Conv1dOptions{.stride = 2, .padding = 1, .groups = 2}),
          floating},
         {"conv2d",
          {{{2, 3, 6, 7}}, filter({4, 3, 2, 3}), filter({4})},
          conv(conv2d, Conv2dOptions{.padding = 1, .dilation = {2, 1}}),
          floating},
         {"conv3d",
          {{{2, 4, 5, 6, 7}}, filter({6, 2, 2, 3, 3}), filter({6})},
          conv(conv3d, Conv3dOptions{.stride = {1, 2, 1}, .padding = 1, .groups = 2}),
          floating},
         {"conv3d of many channels",
          {{{1, 16, 5, 6, 9}}, filter({16, 16, 3, 3, 3}), filter({16})},
          conv(conv3d, Conv3dOptions{.padding = 1}),
          floating},
         {"conv_transpose1d",
          {{{2, 4, 9}}, filter({4, 3, 3}), filter({6})},
          conv(conv_transpose1d, ConvTranspose1dOptions{.stride = 2, .padding = 1, .groups = 2}),
          floating},
         {"conv_transpose2d",
          {{{2, 3, 6, 7}}, filter({3, 4, 2, 3}), filter({4})},
          conv(conv_transpose2d, ConvTranspose2dOptions{.padding = 1, .dilation = {2, 1}}),
          floating},
         {"conv_transpose3d",
          {{{2, 4, 3, 4, 5}}, filter({4, 3, 2, 3, 3}), filter({6})},
          conv(conv_transpose3d, ConvTranspose3dOptions{.stride = {1, 2, 1}, .padding = 1, .groups = 2}),
          floating},
         {"conv_transpose3d of many channels",
          {{{1, 16, 3, 4, 9}}, filter({16, 16, 3, 3, 3}), filter({16})},
          conv(conv_transpose3d, ConvTranspose3dOptions{.stride = 2, .padding = 1}),
          floating},
         {"conv3d_weight_grad",
          {{{2, 4, 5, 6, 7}}, {{2, 6, 5, 6, 7}}},
          [](const Tensors& t) { return conv3d_weight_grad(t[0], t[1], 3, {.padding = 1, .groups = 2}); },
          floating}},
        device());
}

TEST_P(LayoutsTest, Resampling) {
  const Shape volume{2, 9, 4, 5, 6};
  const auto resized = [&](const char* name, const InterpolateOptions& options) {
    return unary(
        name, [=](const Tensor& x) { return interpolate(x, options); }, floating, numbers, volume);
  };
  using Mode = InterpolateOptions::Mode;
  check(
      {resized("nearest", {.size = {{8, 3, 9}}}),
       resized("trilinear, larger", {.scale_factor = 2, .mode = Mode::trilinear}),
       resized("trilinear, smaller", {.size = {{2, 5, 3}}, .mode = Mode::trilinear}),
       resized("trilinear, aligned", {.size = {{7, 4, 11}}, .mode = Mode::trilinear, .align_corners = true}),
       unary(
           "max_pool3d",
           [](const Tensor& x) { return max_pool3d(x, {.kernel_size = 3, .stride = 2, .padding = 1}); },
           floating, numbers, volume),
       unary(
           "max_pool3d of blocks", [](const Tensor& x) { return max_pool3d(x, {.kernel_size = 2}); },
           floating, numbers, volume),
       unary(
           "adaptive_max_pool3d",
           [](const Tensor& x) {
             return adaptive_max_pool3d(x, {3, 2, 4});
           },
           floating, numbers, volume),
       unary(
           "adaptive_avg_pool3d",
           [](const Tensor& x) {
             return adaptive_avg_pool3d(x, {3, 2, 4});
           },
           floating, numbers, volume),
       {"max_pool3d without gradient",
        {{volume}},
        [](const Tensors& t) { return max_pool3d(t[0].detach(), {.kernel_size = 2}); },
        floating},
       unary(
           "avg_pool3d",
           [](const Tensor& x) {
             return avg_pool3d(x, {.kernel_size = {2, 3, 2}, .stride = 1, .padding = {1, 1, 0}});
           },
           floating, numbers, volume)},
      device());
}

TEST_P(LayoutsTest, Losses) {
  Ops ops;
  for (const auto& [name, reduction] :
       {std::pair{"none", Reduction::none}, {"mean", Reduction::mean}, {"sum", Reduction::sum}}) {
    const auto r = reduction;
    ops.push_back(
        binary(str("mse_loss ", name), [=](const Tensor& a, const Tensor& b) { return mse_loss(a, b, r); }));
    ops.push_back(
        binary(str("l1_loss ", name), [=](const Tensor& a, const Tensor& b) { return l1_loss(a, b, r); }));
    ops.push_back(binary(str("huber_loss ", name),
                         [=](const Tensor& a, const Tensor& b) { return huber_loss(a, b, r); }));
    ops.push_back(
        binary(str("binary_cross_entropy_with_logits ", name), [=](const Tensor& a, const Tensor& b) {
          return binary_cross_entropy_with_logits(a, b, {.reduction = r});
        }));
    ops.push_back(
        {str("weighted cross_entropy ", name),
         {{{4, 3, 5, 8}}, {{4, 5, 8}, indices}, {{3}, numbers, false}},
         [=](const Tensors& t) {
           return cross_entropy(
               t[0], t[1],
               {.weight = t[2].detach(), .ignore_index = 1, .reduction = r, .label_smoothing = 0.25});
         },
         floating});
    ops.push_back({str("cross_entropy ", name),
                   {{{4, 3, 5, 8}}, {{4, 5, 8}, indices}},
                   [=](const Tensors& t) { return cross_entropy(t[0], t[1], r); },
                   floating});
  }
  check(ops, device());
}

TEST_P(LayoutsTest, Norms) {
  // 16 elements a row: their mean, and the squared deviations from it, have few enough digits for exact sums.
  const Operand volume{{2, 9, 2, 2, 4}}, channels{{9}, numbers, false}, variances{{9}, positive, false};
  const auto relu = Activation::leaky_relu(0.5);
  check(
      {{"batch_norm",
        {volume, channels, channels},
        [](const Tensors& t) { return batch_norm(t[0], {}, {}, t[1], t[2], {.training = true, .eps = 0.5}); },
        floating},
       {"batch_norm in evaluation",
        {volume, channels, variances, channels, channels},
        [=](const Tensors& t) {
          return batch_norm(t[0], t[1].detach(), t[2].detach(), t[3], t[4], {.eps = 0.5, .activation = relu});
        },
        floating},
       {"batch_norm without cells",
        {{{16, 9}}, channels, channels},
        [=](const Tensors& t) {
          return batch_norm(t[0], {}, {}, t[1], t[2], {.training = true, .eps = 0.5, .activation = relu});
        },
        floating},
       {"instance_norm",
        {volume, channels, channels},
        [](const Tensors& t) { return instance_norm(t[0], {}, {}, t[1], t[2], {.eps = 0.5}); },
        floating},
       {"group_norm",
        {{{2, 8, 2, 2}}, {{8}, numbers, false}, {{8}, numbers, false}},
        [=](const Tensors& t) { return group_norm(t[0], 2, t[1], t[2], 0.5, relu); },
        floating},
       {"layer_norm",
        {{{6, 4, 4}}, {{4, 4}, numbers, false}, {{4, 4}, numbers, false}},
        [=](const Tensors& t) {
          return layer_norm(t[0], {4, 4}, t[1], t[2], 0.5, relu);
        },
        floating}},
      device());
}

// ---- In place ---------------------------------------------------------------------------------------------

/// An op that writes into `target`, of the dtype under test, and reads `source`.
struct Write {
  std::string name;
  std::function<void(Tensor& target, const Tensor& source)> f;
  DTypes targets;
  std::optional<DType> source = {};  ///< that of the target if not given
};

std::vector<unsigned char> bytes_of(const Tensor& dense) {
  const Tensor host = dense.to(Device::cpu());
  std::vector<unsigned char> bytes(static_cast<size_t>(host.numel() * size_of(host.dtype())));
  if (!bytes.empty()) std::memcpy(bytes.data(), host.impl()->data(), bytes.size());
  return bytes;
}

/// The expected memory of `target` after a write that makes its elements those of `elements`; all else is
/// unchanged.
std::vector<unsigned char> written(const LaidOut& target, const Tensor& elements) {
  std::vector<unsigned char> memory = bytes_of(target.memory);
  const std::vector<unsigned char> from = bytes_of(elements);
  const auto size = static_cast<size_t>(size_of(elements.dtype()));
  const Tensor& t = target.tensor;
  size_t i = 0;
  for_each_place(t.shape(), [&](const Shape& index) {
    const auto place = static_cast<size_t>(t.impl()->offset + place_of(index, t.strides()));
    std::memcpy(memory.data() + place * size, from.data() + i++ * size, size);
  });
  return memory;
}

void check_write(const Write& op, const LaidOut& target, const LaidOut& source, const std::string& what) {
  Tensor expected = target.dense.clone(), memory = target.memory.clone();
  op.f(expected, source.dense);
  const Tensor& t = target.tensor;
  Tensor view = vox::detail::alias(memory, t.impl()->offset, t.shape(), t.strides());
  if (!target.is_writable) {
    EXPECT_THROW(op.f(view, source.tensor), ValueError) << what;
    return;
  }
  poison(t.device());
  op.f(view, source.tensor);
  EXPECT_TRUE(bytes_of(memory) == written(target, expected)) << what;
}

TEST_P(LayoutsTest, InPlace) {
  std::vector<Write> ops{{"add_", [](Tensor& t, const Tensor& s) { t.add_(s); }, arithmetic},
                         {"add_ of 3 times", [](Tensor& t, const Tensor& s) { t.add_(s, 3); }, arithmetic},
                         {"mul_", [](Tensor& t, const Tensor& s) { t.mul_(s); }, arithmetic},
                         {"mul_ by 3", [](Tensor& t, const Tensor&) { t.mul_(3); }, arithmetic},
                         {"fill_", [](Tensor& t, const Tensor&) { t.fill_(1); }, every_dtype}};
  for (const DType from : every_dtype)
    ops.push_back(
        {str("copy_ from ", from), [](Tensor& t, const Tensor& s) { t.copy_(s); }, every_dtype, from});
  for (const Write& op : ops) {
    for (const DType dtype : op.targets) {
      for (const Shape& shape : {box, Shape{0, 10, 40}}) {
        const auto targets = layouts(values_of(shape, numbers, dtype, device(), 1));
        const auto sources = layouts(values_of(shape, numbers, op.source.value_or(dtype), device(), 2));
        for (const LaidOut& target : targets) {
          for (const LaidOut& source : sources)
            check_write(op, target, source,
                        str(op.name, " of ", dtype, " ", shape, ", target ", target.layout, ", source ",
                            source.layout));
        }
      }
    }
  }
}

}  // namespace
}  // namespace vox
