#include "capi/ops.h"
#include "tests/support/catalogue.h"
#include "tests/support/test.h"

// Every public op with every operand that it cannot take: whatever throws names the public call first, even
// where an op inside a composition noticed. And the messages of common mistakes, word for word.

namespace vox {
namespace {

/// The message of what f throws, or nothing.
template <class F>
std::string any_message_of(F f) {
  try {
    f();
  } catch (const std::exception& error) {
    return error.what();
  }
  return "";
}

/// The op of a sample, with the operand that may be wrong.
struct Case {
  std::string name;
  std::function<void(const Tensor&)> f;
  Shape shape;  ///< of an operand that fits
};

/// Each operand of the sample in turn.
void add_cases(std::vector<Case>& list, const Sample& op) {
  const std::vector<Operand> operands = op.operands();
  Tensors good;
  for (const auto& [shape, holds, is_batched, is_constant] : operands)
    good.push_back(values_of(shape, holds, op.dtypes[0], Device::cpu(), 1));
  for (size_t k = 0; k < operands.size(); ++k) {
    const auto with = [=](const Tensor& x) {
      Tensors all = good;
      all[k] = x;
      op(all);
    };
    list.push_back({op.op, with, operands[k].shape});
  }
}

/// Calls that refuse every operand, or most.
void add_mistakes(std::vector<Case>& list) {
  const Operand x{{3}}, index{{2}, Holds::indices};
  const auto add = [&](const char* op, std::vector<Argument> arguments) {
    add_cases(list, {"", op, std::move(arguments), floating});
  };
  for (const char* op :
       {"sum", "mean", "max", "min", "argmax", "argmin", "prod", "any", "all", "logsumexp"}) {
    add(op, {x, {5}, false});
    add(op, {x, {0, 0}, false});
  }
  for (const char* op : {"hardtanh", "clamp"}) add(op, {x, 0.5, 0});
  add("clamp", {x, {}, {}});
  for (const char* op : {"max", "min"}) add(op, {x, 5, false});
  for (const char* op : {"var_mean", "var", "std"}) add(op, {x, {5}, 1, false});
  add("norm", {x, 3, {0}, false});
  add("norm", {x, 1, {5}, false});
  add("sum_to", {x, {7, 7, 7, 7, 7}});
  for (const char* op : {"softmax", "log_softmax"}) add(op, {x, 5});
  add("cat", {std::vector{x, x}, 5});
  add("stack", {std::vector{x}, 2});
  add("pad", {x, {1, -1}, 0});
  add("pad", {x, {1}, "replicate"});
  add("index_select", {x, 5, index});
  add("flip", {x, {5}});
  add("roll", {x, {1}, {5}});
  add("roll", {x, {1, 1}, {0}});
  add("one_hot", {index, 0});
  add("interpolate", {x});
  for (const char* op : {"max_pool1d", "max_pool2d", "max_pool3d", "avg_pool1d", "avg_pool2d", "avg_pool3d"})
    add(op, {x, 9});
  for (const char* kind : {"max", "avg"}) {
    for (int axes = 1; axes <= 3; ++axes) add(str("adaptive_", kind, "_pool", axes, "d").c_str(), {x, 0});
  }
  add("group_norm", {x, 7, {}, {}, 0.1});
  add("layer_norm", {x, {7}, {}, {}, 0.1});
  add("detach", {x});
  add("slice", {x, 5, 0, {}, 1});
  add("slice", {x, 0, 0, 1, 0});
  add("select", {x, 0, 99});
  add("permute", {x, {0, 0}});
  add("transpose", {x, 0, 5});
  add("expand", {x, {7}});
  add("reshape", {x, {7, -1}});
  add("squeeze", {x, 5});
  add("unsqueeze", {x, 7});
  add("flatten", {x, 5, -1});
  for (const char* op : {"sub_", "mul_", "div_", "copy_"}) add(op, {x, x});
  for (const char* op : {"add_", "sub_", "mul_", "div_", "fill_"}) add(op, {x, 0.5});
  add("add_", {x, x, 1});
  add("copy_", {x, Operand{{2, 2, 7}}});
}

/// What is no op by name.
void add_members(std::vector<Case>& list) {
  const Tensor row = ones({3});
  const auto add = [&](const char* name, std::function<void(const Tensor&)> f) {
    list.push_back({name, std::move(f), {3}});
  };
  add("equal", [=](const Tensor& x) { equal(x, row); });
  add("equal", [=](const Tensor& x) { equal(row, x); });
  add("allclose", [=](const Tensor& x) { allclose(x, row); });
  add("allclose", [=](const Tensor& x) { allclose(row, x); });
  add("bernoulli", [](const Tensor& x) { bernoulli(x); });
  add("shape", [](const Tensor& x) { x.shape(); });
  add("size", [](const Tensor& x) { x.size(5); });
  add("item", [](const Tensor& x) { x.item<double>(); });
  add("to_vector", [](const Tensor& x) { x.to_vector<double>(); });
  add("data", [](const Tensor& x) { x.data<double>(); });
  add("select", [](const Tensor& x) { x[99]; });
  add("grad", [](const Tensor& x) { x.grad(); });
  add("set_grad", [=](Tensor x) { x.set_grad(ones({7})); });
  add("set_requires_grad", [](Tensor x) { x.set_requires_grad(); });
  add("backward", [](const Tensor& x) { x.backward(); });
  add("retain_grad", [](Tensor x) { x.retain_grad(); });
  add("register_hook", [](Tensor x) { x.register_hook([](const Tensor&) {}); });
  add("set_name", [](Tensor x) { x.set_name("\n"); });
  add("grad", [=](const Tensor& x) { grad({x}, {row}); });
}

std::vector<std::pair<std::string, Tensor>> wrong_operands(const Shape& shape) {
  std::vector<std::pair<std::string, Tensor>> list{
      {"undefined", {}},
      {"of rank 0", full({}, 1)},
      {"of 2 elements", ones({2})},
      {"empty", ones({0})},
      {"a matrix", ones({2, 3})},
      {"without columns", ones({3, 0})},
      {"of rank 8", ones({1, 1, 1, 1, 1, 1, 1, 3})},
      {"on the tape", ones({3}).set_requires_grad() * 1},
  };
  for (const DType dtype : any_dtype) {
    list.emplace_back(str(dtype), ones({3}).to(dtype));
    list.emplace_back(str(dtype, " of a shape that fits"), ones(shape).to(dtype));
  }
  return list;
}

TEST(Messages, EveryOpNamesItselfFirst) {
  std::vector<Case> cases;
  for (const Sample& op : catalogue(Size::large)) {
    if (op.op != "linear") add_cases(cases, op);  // a layer, nn::Linear
  }
  add_mistakes(cases);
  add_members(cases);
  int thrown = 0;
  for (const auto& [name, f, shape] : cases) {
    int thrown_here = 0;
    for (const auto& [what, x] : wrong_operands(shape)) {
      const std::string message =
          any_message_of([&, f = f, x = x] { f(x.defined() && !x.requires_grad() ? x.clone() : x); });
      if (message.empty()) continue;
      ++thrown_here;
      EXPECT_EQ(message.rfind(str(name, ": "), 0), 0u)
          << name << " of a tensor that is " << what << ": " << message;
    }
    EXPECT_GT(thrown_here, 0) << name;
    thrown += thrown_here;
  }
  EXPECT_GT(thrown, 4000);
}

TEST(Messages, AMissingGradientSaysWhoseAndWhy) {
  Tensor x = ones({2}).set_requires_grad().set_name("weight");
  EXPECT_FALSE(x.grad().defined());
  EXPECT_MESSAGE(Error, x.grad().item(),
                 "item: the tensor is undefined: it is the grad() of the tensor \"weight\" of shape (2,), "
                 "which has no gradient: no backward() has reached it");
  EXPECT_MESSAGE(
      Error, sum(ones({2}).grad()),
      "sum: argument 'x' is an undefined tensor: it is the grad() of the tensor of shape (2,), which "
      "does not require grad (call set_requires_grad() before the forward)");
  const Tensor y = x * 2;
  sum(y).backward();
  EXPECT_MESSAGE(Error, y.grad().sum(),
                 "sum: argument 'x' is an undefined tensor: it is the grad() of the tensor of shape (2,), "
                 "which is not a leaf, so backward() keeps its gradient only after retain_grad()");
  const Tensor moved = std::move(x);
  EXPECT_MESSAGE(Error, x.shape(), "shape: the tensor is undefined (default-constructed or moved from)");
  Tensor copy = y.grad();  // the reason travels with the handle
  EXPECT_NE(message_of([&] { copy.shape(); }).find("retain_grad()"), std::string::npos);
}

TEST(Messages, WordForWord) {
  const Tensor x = ones({2, 3}), leaf = ones({2}, {.dtype = f64}).set_requires_grad();
  constexpr int64_t far = int64_t{1} << 62;
  EXPECT_MESSAGE(Error, x.reshape({4, 2}), "reshape: (2,3) has 6 elements, (4,2) has 8");
  EXPECT_MESSAGE(Error, x[5],
                 "select: index 5 is out of range for dimension 0 of size 2; allowed are -2 to 1");
  EXPECT_MESSAGE(Error, x.slice(0, 0, 0)[0],
                 "select: index 0 is out of range for dimension 0 of size 0; allowed are none");
  EXPECT_MESSAGE(
      Error, exp(x.to(i64)),
      "exp: needs a floating dtype, got i64; allowed are f32, f64, bf16 and f16 (convert with to(vox::f32))");
  EXPECT_MESSAGE(Error, x.clone().set_requires_grad() += 1,
                 "add_: in-place writes are not recorded, and the target requires grad; use the ordinary op "
                 "(x = x + y), or write to a clone() or under `auto guard = vox::no_grad();`");
  EXPECT_EQ(
      message_of([&] {
        Tensor w = x.clone().set_requires_grad();
        sum(w * w).backward();
        sum(w.grad()).backward();
      }),
      "backward: the output does not require grad: no input of its ops did, they ran under no_grad(), an op "
      "between has no gradient (a comparison, argmax, a cast to integers), or it comes from a gradient, "
      "which the tape records only with {.create_graph = true}");
  EXPECT_MESSAGE(
      Error, gt(leaf, 0).backward(),
      "backward: the output has dtype bool; only floating dtypes have gradients, so comparisons and "
      "argmax have none");
  EXPECT_MESSAGE(Error, grad({argmax(leaf)}, {leaf}),
                 "grad: the output has dtype i64; only floating dtypes have gradients, so comparisons and "
                 "argmax have none");
  EXPECT_MESSAGE(Error, sum(zeros({}), 3), "sum: dim 3 is out of range for rank 0; allowed are -1 to 0");
  EXPECT_MESSAGE(Error, softmax(zeros({}), -2),
                 "softmax: dim -2 is out of range for rank 0; allowed are -1 to 0");
  EXPECT_MESSAGE(Error, flip(zeros({}), 1), "flip: dim 1 is out of range for rank 0; allowed are -1 to 0");
  EXPECT_MESSAGE(Error, roll(zeros({}), 1, 1), "roll: dim 1 is out of range for rank 0; allowed are -1 to 0");
  EXPECT_MESSAGE(Error, zeros({}).squeeze(1),
                 "squeeze: dim 1 is out of range for rank 0; allowed are -1 to 0");
  EXPECT_MESSAGE(Error, zeros({}).transpose(0, 1),
                 "transpose: dim 1 is out of range for rank 0; allowed are -1 to 0");
  EXPECT_MESSAGE(Error, zeros({2}).unsqueeze(5),
                 "unsqueeze: dim 5 is out of range for rank 1; allowed are -2 to 1");
  EXPECT_MESSAGE(Error, stack({x, x}, 3), "stack: dim 3 is out of range for rank 2; allowed are -3 to 2");
  EXPECT_MESSAGE(Error, matmul(ones({2, 3, 3}), ones({3, 3, 3})),
                 "matmul: the batch dimensions of shapes (2,3,3) and (3,3,3), (2,) and (3,), do not "
                 "broadcast; sizes must be equal or 1");
  EXPECT_MESSAGE(
      Error, max_pool1d(ones({1, 1, 0}), {.kernel_size = 2}),
      "max_pool1d: the sizes of the input must be >= 1, except those of batch and channels, got (1,1,0)");
  EXPECT_MESSAGE(Error, avg_pool2d(ones({1, 4, 2}), {.kernel_size = 3, .ceil_mode = true}),
                 "avg_pool2d: the input with its padding must not be smaller than kernel_size 3, got size 2 "
                 "with padding 0");
  EXPECT_MESSAGE(Error, adaptive_avg_pool1d(ones({1, 1, 4}), 0),
                 "adaptive_avg_pool1d: output_size must be >= 1, got 0");
  EXPECT_MESSAGE(Error, adaptive_max_pool2d(ones({1, 4, 4}), {2, 0}),
                 "adaptive_max_pool2d: output_size must be >= 1, got (2,0)");
  EXPECT_MESSAGE(Error, grid_sample(ones({1, 1, 4, 4}), ones({2, 1, 1, 2})),
                 "grid_sample: for an input of shape (1,1,4,4) the grid must be (N, H', W', 2) with the same "
                 "N, got (2,1,1,2)");
  EXPECT_MESSAGE(Error, grid_sample(ones({1, 1, 0, 4}), ones({1, 1, 1, 2})),
                 "grid_sample: D, H and W of the input must be >= 1, with at most 2^30 cells, got (1,1,0,4)");
  EXPECT_MESSAGE(Error, grid_sample(ones({1, 1, 4, 4}).to(f64), ones({1, 1, 1, 2})),
                 "grid_sample: input and grid must have one dtype, got f64 and f32");
  EXPECT_MESSAGE(Error, affine_grid(ones({1, 3, 4}), {1, 1, 4, 4}),
                 "affine_grid: for the size (1,1,4,4) theta must be (1,2,3), got (1,3,4)");
  EXPECT_MESSAGE(Error, interpolate(ones({1, 1, 4}), {.size = 0}),
                 "interpolate: the output sizes must be >= 1, got 0");
  EXPECT_MESSAGE(Error, interpolate(ones({1, 1, 0}), {.size = 2}),
                 "interpolate: D, H and W of the input must be >= 1, got (1,1,0)");
  EXPECT_MESSAGE(Error, conv3d(ones({1, 1, 2, 2, 2}), ones({1, 1, 1, 1, 1}), {}, {.padding = {0, 0, far}}),
                 "conv3d: padding must be below 2^62 on every axis, got (0,0,4611686018427387904)");
  EXPECT_MESSAGE(Error, conv2d(ones({1, 1, 9, 9}), ones({1, 1, 3, 3}), {}, {.dilation = {1, far}}),
                 "conv2d: dilation * (kernel_size - 1) must fit 64 bits, got dilation "
                 "(1,4611686018427387904) and kernel_size (3,3)");
  EXPECT_MESSAGE(Error, pad(ones({2}), {far, far}),
                 "pad: padding: 4611686018427387906 + 4611686018427387904 overflows 64 bits");
  EXPECT_MESSAGE(ShapeError, pad(ones({2}), {far, far}, PadMode::replicate),
                 "pad: padding: 4611686018427387906 + 4611686018427387904 overflows 64 bits");
  EXPECT_MESSAGE(ShapeError, pad(ones({2}), {2, 1}, PadMode::reflect),
                 "pad: mode reflect pads a dimension of size 2 by at most 1 at each end, got (2, 1)");
  EXPECT_MESSAGE(ShapeError, pad(ones({2}), {0, 3}, PadMode::circular),
                 "pad: mode circular pads a dimension of size 2 by at most 2 at each end, got (0, 3)");
  EXPECT_MESSAGE(ShapeError, pad(ones({2, 0}), {1, 1}, PadMode::replicate),
                 "pad: an empty dimension can only be padded by a value, got shape (2,0)");
  EXPECT_MESSAGE(Error, autograd::gradcheck([](const auto&) { return Tensor(); }, {leaf}),
                 "gradcheck: f must return a tensor, got an undefined one");
  EXPECT_MESSAGE(Error, autograd::gradgradcheck([](const auto&) { return Tensor(); }, {leaf}),
                 "gradgradcheck: f must return a tensor, got an undefined one");
  EXPECT_MESSAGE(Error, autograd::gradcheck([](const auto& v) { return v[0] * 2; }, {leaf}, {.eps = 0}),
                 "gradcheck: eps must be finite and > 0, got 0");
  EXPECT_MESSAGE(Error, autograd::gradgradcheck([](const auto& v) { return v[0] * 2; }, {leaf}, {.eps = -1}),
                 "gradgradcheck: eps must be finite and > 0, got -1");
  EXPECT_MESSAGE(Error, empty({2}, Device{DeviceType::cpu, 3}), "empty: a CPU device has index 0, got 3");
}

// Results that are too large are refused with the name of the public call and the shape of the result: not
// with the name of the function that allocates, nor with a product of some sizes.

using capi::Value;

class TooLarge : public DeviceTest {
 protected:
  struct Case {
    const char* function;
    Shape shape;  ///< as the message spells it
    std::function<void()> call;

    Case(const char* op, const Shape& shape, const capi::Values& values)
        : Case(op, shape, [=] { capi::ops().at(op)(values); }) {}
    Case(const char* function, const Shape& shape, std::function<void()> call)
        : function(function), shape(shape), call(std::move(call)) {}
  };
  template <class E>
  static void expect_refused(const std::vector<Case>& cases, const char* rule) {
    for (const auto& [function, shape, call] : cases) {
      const std::string message = message_of<E>(call);
      EXPECT_EQ(message.find(str(function, ": ")), 0u) << function << " threw: " << message;
      EXPECT_TRUE(has_parts(message, {rule}));
      EXPECT_TRUE(has_parts(message, {str(shape)})) << str(shape) << " is not in: " << message;
    }
  }
  /// A number as a tensor of that shape.
  static Tensor expanded(const Shape& shape, DType dtype = f32) {
    return full(Shape::filled(shape.rank(), 1), 1, on(dtype)).expand(shape);
  }
};
INSTANTIATE_TEST_SUITE_P(, TooLarge, devices(), device_name);

constexpr int64_t power(int n) { return int64_t{1} << n; }

TEST_P(TooLarge, MoreElementsThanCanBeCounted) {
  const Shape square{power(40), power(40)}, padded{power(40), power(40) + 1};
  const Tensor a = expanded({power(40), 1}), b = expanded({1, power(40)}), one = expanded({1, 1});
  const TensorOptions here{f32, device()};
  const Shape volume{1, 1, power(20), power(20), power(20)}, larger{1, 1, power(23), power(23), power(23)};
  const nn::Linear::Options linear{.in_features = power(40), .out_features = power(40)};
  const nn::Conv3d::Options conv{.in_channels = power(40), .out_channels = power(40), .kernel_size = 2};
  expect_refused<ShapeError>(
      {{"empty", square, [&] { empty(square); }},
       {"zeros", square, [&] { zeros(square, here); }},
       {"full", square, [&] { full(square, 2, here); }},
       {"randn", square, [&] { randn(square, here); }},
       {"eye", square, [&] { eye(power(40)); }},
       {"from_vector", square, [&] { from_vector<float>({1}, square); }},
       {"expand", square, {a, square}},
       {"reshape", square, {a, square}},
       {"add", square, {a, b}},
       {"lt", square, {a, b}},
       {"where", square, {lt(one, 0), a, b}},
       {"matmul", square, {a, b}},
       {"pad", padded, {a, {power(40), 0}, 0}},
       {"interpolate", larger, {expanded(volume), {}, 8}},
       {"nn::Linear", square, [&] { nn::Linear{linear}; }},
       {"nn::Conv3d", Shape({power(40), power(40), 2, 2, 2}), [&] { nn::Conv3d{conv}; }}},
      "a tensor has at most 2^63 - 1 elements, got shape ");
}

TEST_P(TooLarge, MoreBytesThanCanBeCounted) {
  const Shape shape{power(61)}, half{power(60)}, column{power(60), 1}, volume{power(57), 1, 4, 2, 2};
  const Tensor x = expanded(shape), bytes = expanded(shape, u8), h = expanded(half), c = expanded(column),
               row = expanded({1, 2}), v = expanded(volume), yes = full({1}, true, on(boolean)),
               two = zeros({2}, on(i64));
  expect_refused<ShapeError>({{"empty", shape, [&] { empty(shape); }},
                              {"ones", shape, [&] { ones(shape, x.options()); }},
                              {"ones_like", shape, [&] { ones_like(x); }},
                              {"rand", shape, [&] { rand(shape, x.options()); }},
                              {"randint", shape, [&] { randint(0, 2, shape, two.options()); }},
                              {"arange", shape, [&] { arange(power(61), two.options()); }},
                              {"clone", shape, {x}},
                              {"contiguous", shape, {x}},
                              {"to", shape, {bytes, "f64"}},
                              {"exp", shape, {x}},
                              {"add", shape, {x, x}},
                              {"mul", shape, {x, 2}},
                              {"sub", shape, {1, x}},
                              {"where", shape, {yes, x, x}},
                              {"matmul", Shape({power(60), 2}), {c, row}},
                              {"cat", shape, {Tensors{h, h}, 0}},
                              {"stack", Shape({2, power(60)}), {Tensors{h, h}, 0}},
                              {"pad", Shape({power(60), 3}), {c, {1, 1}, 0}},
                              {"index_select", Shape({power(60), 2}), {c, 1, two}},
                              {"max_pool3d", volume, {v, 1}},
                              {"avg_pool3d", volume, {v, 1}},
                              {"interpolate", Shape({power(57), 1, 4, 4, 2}), {v, {4, 4, 2}}}},
                             "a tensor has at most 2^63 - 1 bytes, got shape ");
}

// Messages use the caller's shapes, without the axes and the batch that only conv3d has.
TEST_P(TooLarge, MoreElementsThanAConvolutionTakes) {
  const Shape big{1, 1, power(23) - 7, power(23) - 7, power(23) - 7};
  const Tensor x3 = expanded({1, 1, power(20), power(20), power(20)}), w3 = expanded({1, 1, 1, 1, 1});
  const Tensor x2 = expanded({power(57), 1, 2, 2}), w2 = expanded({4, 1, 1, 1});
  const Tensor x1 = expanded({1, 1}), w1 = expanded({1, power(30), power(30)});
  expect_refused<ShapeError>({{"conv_transpose3d", big, {x3, w3, {}, 8}},
                              {"conv2d", Shape({power(57), 4, 2, 2}), {x2, w2}},
                              {"conv_transpose1d", Shape({power(30), power(30)}), {x1, w1}}},
                             "a tensor of a convolution has at most 2^60 - 1 elements, got shape ");
}

// No machine has 2^57 bytes.
TEST_P(TooLarge, MoreBytesThanThereAre) {
  const Shape shape{power(55)};
  const Tensor x = expanded(shape);
  expect_refused<OutOfMemoryError>({{"empty", shape, [&] { empty(shape, x.options()); }},
                                    {"zeros", shape, [&] { zeros(shape, x.options()); }},
                                    {"relu", shape, {x}},
                                    {"add", shape, {x, x}},
                                    {"to_vector", shape, [&] { x.to_vector<float>(); }}},
                                   "no memory for a tensor of shape ");
}

// Refused before any work is done, which here would take hours.
TEST_P(TooLarge, WorkThatIsInVain) {
  const Shape shape{power(50)}, scores{power(50), 2}, row{1, 1, 1, 1, power(50)};
  const Tensor x = expanded(shape), h = expanded(shape, bf16), v = expanded(row),
               w = expanded({1, 1, 1, 1, 1}), input = expanded(scores), target = expanded(shape, i64),
               y2 = v.squeeze(0).squeeze(0), w2 = w.squeeze(0).squeeze(0).reshape({1, 1, 1, 1}),
               zero = zeros({1}, on(i64));
  expect_refused<OutOfMemoryError>({{"softmax", shape, {x, 0}},
                                    {"softmax", shape, {h, 0}},
                                    {"log_softmax", shape, {x, 0}},
                                    {"log_softmax", shape, {h, 0}},
                                    {"cross_entropy", scores, {input, target}},
                                    {"mse_loss", shape, {x, x, "none"}},
                                    {"l1_loss", shape, {x, x, "none"}},
                                    {"index_select", shape, {zero.to(f32), 0, zero.expand(shape)}},
                                    {"flip", shape, {x, {0}}},
                                    {"pad", Shape({1, power(50) + 2}), {x.unsqueeze(0), {1, 1}, "replicate"}},
                                    {"conv3d", row, {v, w}},
                                    {"conv2d", row, {y2.unsqueeze(0), w2}},
                                    {"conv_transpose3d", row, {v, w}},
                                    {"conv3d_weight_grad", row, {v, w, {1, 1, power(50)}}}},
                                   "no memory for a tensor of shape ");
}

/// Runs `call` in a process of its own with `bytes` more memory, and prints what it throws to stderr.
void run_with_little_memory(int64_t bytes, const std::function<void()>& call) {
  set_num_threads(1);
  limit_memory(bytes);
  try {
    call();
  } catch (const Error& error) {
    std::fprintf(stderr, "%s\n", error.what());
  }
  std::exit(0);
}

// The results fit memory, but the tables of the CPU's kernels do not.
TEST(TablesDeathTest, AreRefusedInTheNameOfTheFunction) {
  if (!can_limit_memory) GTEST_SKIP() << "memory cannot be limited here";
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  constexpr int64_t cells = power(22), result = cells * 4, room = 3 * result;
  const Tensor row = ones({1, 1, 1, 1, 1}).expand({1, 1, 1, 1, cells});  // pooling copies it
  const Triple one{1, 1, 2}, wide{1, 1, cells};
  const auto expect_named = [&](const char* function, const std::function<void()>& call) {
    EXPECT_EXIT(run_with_little_memory(room, call), ::testing::ExitedWithCode(0),
                str("^", function, ": no memory for its tables"));
  };
  expect_named("interpolate", [&] { interpolate(ones({1, 1, 1, 1, 8}), {.size = wide}); });
  expect_named("avg_pool3d", [&] { avg_pool3d(row, {.kernel_size = one, .stride = Triple(1)}); });
  expect_named("max_pool3d", [&] { max_pool3d(row, {.kernel_size = one, .stride = Triple(1)}); });
}

// A result of 32 MiB needs no table as long as the stride.
TEST(TablesDeathTest, AStrideCostsNothing) {
  if (!can_limit_memory) GTEST_SKIP() << "memory cannot be limited here";
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  for (int64_t axis = 0; axis < 3; ++axis) {
    Triple stride = 1;
    stride[axis] = power(22);
    const auto along = [&](int64_t size) {
      Shape s{1, 1, 1, 1, 1};
      s[2 + axis] = size;
      return s;
    };
    const auto call = [&] {
      const Tensor y = conv_transpose3d(ones(along(3)), ones(along(2)), {}, {.stride = stride});
      std::fprintf(stderr, "%g of %lld\n", static_cast<double>(y.sum().item<float>()),
                   static_cast<long long>(y.numel()));
    };
    EXPECT_EXIT(run_with_little_memory(power(27), call), ::testing::ExitedWithCode(0), "^6 of 8388610");
  }
}

}  // namespace
}  // namespace vox
