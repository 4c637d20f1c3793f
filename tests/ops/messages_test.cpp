#include <gtest/gtest.h>

#include <cstring>
#include <functional>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include <voxgrad/voxgrad.h>

// Every public op with every operand that it cannot take: whatever throws names the public call first, even
// where an op inside a composition noticed. And the messages of common mistakes, word for word.

namespace vox {
namespace {

template <class F>
std::string message_of(F f) {
  try {
    f();
  } catch (const std::exception& error) {
    return error.what();
  }
  return "";
}

using Operation = std::function<void(const Tensor&)>;
struct Case {
  const char* name;
  Operation f;
};

template <class F>
struct Named {
  const char* name;
  F f;
};

/// The ops of one operand; of several, each operand in turn.
std::vector<Case> cases() {
  const Tensor row = ones({3}), matrix = ones({2, 3}), volume = ones({1, 2, 4, 4, 4});
  const Tensor filter = ones({2, 2, 3, 3, 3});
  const Tensor condition = gt(row, 0), index = zeros({2}, {.dtype = i64});
  using Unary = Tensor (*)(const Tensor&);
  std::vector<Case> list;
  for (const auto& [name, f] : std::vector<Named<Unary>>{{"neg", neg},
                                                         {"abs", abs},
                                                         {"sign", sign},
                                                         {"floor", floor},
                                                         {"ceil", ceil},
                                                         {"round", round},
                                                         {"exp", exp},
                                                         {"log", log},
                                                         {"sqrt", sqrt},
                                                         {"rsqrt", rsqrt},
                                                         {"sin", sin},
                                                         {"cos", cos},
                                                         {"log1p", log1p},
                                                         {"expm1", expm1},
                                                         {"erf", erf},
                                                         {"tanh", tanh},
                                                         {"sigmoid", sigmoid},
                                                         {"relu", relu},
                                                         {"gelu", gelu},
                                                         {"silu", silu},
                                                         {"gelu_tanh", gelu_tanh},
                                                         {"relu6", relu6},
                                                         {"mish", mish},
                                                         {"hardsigmoid", hardsigmoid},
                                                         {"isnan", isnan},
                                                         {"isinf", isinf},
                                                         {"isfinite", isfinite},
                                                         {"hardswish", hardswish},
                                                         {"logical_not", logical_not}})
    list.push_back({name, [f = f](const Tensor& x) { f(x); }});
  using Binary = Tensor (*)(const Tensor&, const Tensor&);
  for (const auto& [name, f] : std::vector<Named<Binary>>{{"add", add},
                                                          {"sub", sub},
                                                          {"mul", mul},
                                                          {"div", div},
                                                          {"pow", pow},
                                                          {"maximum", maximum},
                                                          {"minimum", minimum},
                                                          {"eq", eq},
                                                          {"ne", ne},
                                                          {"lt", lt},
                                                          {"le", le},
                                                          {"gt", gt},
                                                          {"ge", ge},
                                                          {"logical_and", logical_and},
                                                          {"logical_or", logical_or},
                                                          {"logical_xor", logical_xor},
                                                          {"matmul", matmul},
                                                          {"bmm", bmm}}) {
    list.push_back({name, [=, f = f](const Tensor& x) { f(x, row); }});
    list.push_back({name, [=, f = f](const Tensor& x) { f(row, x); }});
  }
  using NumberSecond = Tensor (*)(const Tensor&, Scalar);
  for (const auto& [name, f] : std::vector<Named<NumberSecond>>{{"add", add},
                                                                {"sub", sub},
                                                                {"mul", mul},
                                                                {"div", div},
                                                                {"pow", pow},
                                                                {"maximum", maximum},
                                                                {"minimum", minimum},
                                                                {"eq", eq},
                                                                {"ge", ge}})
    list.push_back({name, [f = f](const Tensor& x) { f(x, 0.5); }});
  using Reduce = Tensor (*)(const Tensor&, const Shape&, Flag);
  for (const auto& [name, f] : std::vector<Named<Reduce>>{{"sum", sum},
                                                          {"mean", mean},
                                                          {"max", max},
                                                          {"min", min},
                                                          {"argmax", argmax},
                                                          {"argmin", argmin},
                                                          {"prod", prod},
                                                          {"any", any},
                                                          {"all", all},
                                                          {"logsumexp", logsumexp}}) {
    list.push_back({name, [f = f](const Tensor& x) { f(x, {}, false); }});
    list.push_back({name, [f = f](const Tensor& x) { f(x, 5, false); }});
    list.push_back({name, [f = f](const Tensor& x) { f(x, {0, 0}, false); }});
  }
  const auto more = [&](const char* name, Operation f) { list.push_back({name, std::move(f)}); };
  more("sub", [](const Tensor& x) { sub(0.5, x); });
  more("div", [](const Tensor& x) { div(0.5, x); });
  more("pow", [](const Tensor& x) { pow(0.5, x); });
  more("leaky_relu", [](const Tensor& x) { leaky_relu(x); });
  more("elu", [](const Tensor& x) { elu(x); });
  more("softplus", [](const Tensor& x) { softplus(x); });
  more("hardtanh", [](const Tensor& x) { hardtanh(x, 0.5, 0); });
  more("clamp", [](const Tensor& x) { clamp(x, 0.5, 0); });
  more("clamp", [](const Tensor& x) { clamp(x, {.min = 0.5}); });
  more("clamp", [](const Tensor& x) { clamp(x, ClampOptions{}); });
  more("clamp", [=](const Tensor& x) { clamp(x, row, row); });
  more("clamp", [=](const Tensor& x) { clamp(row, x, {}); });
  more("clamp", [=](const Tensor& x) { clamp(row, {}, x); });
  more("where", [=](const Tensor& x) { where(x, row, row); });
  more("where", [=](const Tensor& x) { where(condition, x, row); });
  more("where", [=](const Tensor& x) { where(condition, row, x); });
  more("where", [=](const Tensor& x) { where(condition, x, 0.5); });
  more("where", [=](const Tensor& x) { where(x, 0.5, row); });
  more("masked_fill", [=](const Tensor& x) { masked_fill(row, x, 0.5); });
  more("masked_fill", [=](const Tensor& x) { masked_fill(x, condition, 0.5); });
  more("equal", [=](const Tensor& x) { equal(x, row); });
  more("equal", [=](const Tensor& x) { equal(row, x); });
  more("allclose", [=](const Tensor& x) { allclose(x, row); });
  more("allclose", [=](const Tensor& x) { allclose(row, x); });
  more("max", [](const Tensor& x) { max(x, 0); });
  more("min", [](const Tensor& x) { min(x, 5); });
  more("var_mean", [](const Tensor& x) { var_mean(x); });
  more("var", [](const Tensor& x) { var(x, 5); });
  more("std", [](const Tensor& x) { std(x, 5); });
  more("norm", [](const Tensor& x) { norm(x, 3); });
  more("norm", [](const Tensor& x) { norm(x, 1, 5); });
  more("norm", [](const Tensor& x) { norm(x, std::numeric_limits<double>::infinity()); });
  more("sum_to", [](const Tensor& x) { sum_to(x, {7, 7, 7, 7, 7}); });
  more("softmax", [](const Tensor& x) { softmax(x, 5); });
  more("log_softmax", [](const Tensor& x) { log_softmax(x, 0); });
  more("cat", [=](const Tensor& x) { cat({row, x}); });
  more("cat", [](const Tensor& x) { cat({x}, 5); });
  more("stack", [=](const Tensor& x) { stack({row, x}); });
  more("stack", [](const Tensor& x) { stack({x, x}, 1); });
  more("pad", [](const Tensor& x) { pad(x, {1, -1}); });
  more("pad", [](const Tensor& x) { pad(x, {1, 1}, PadMode::reflect); });
  more("pad", [](const Tensor& x) { pad(x, {1}, PadMode::replicate); });
  more("index_select", [=](const Tensor& x) { index_select(x, 5, index); });
  more("index_select", [=](const Tensor& x) { index_select(row, 0, x); });
  more("flip", [](const Tensor& x) { flip(x, 5); });
  more("roll", [](const Tensor& x) { roll(x, 1, 5); });
  more("roll", [](const Tensor& x) { roll(x, {1, 1}); });
  more("one_hot", [](const Tensor& x) { one_hot(x, 0); });
  more("one_hot", [](const Tensor& x) { one_hot(x, 3); });
  more("bernoulli", [](const Tensor& x) { bernoulli(x); });
  more("mse_loss", [=](const Tensor& x) { mse_loss(x, row); });
  more("mse_loss", [=](const Tensor& x) { mse_loss(row, x); });
  more("l1_loss", [=](const Tensor& x) { l1_loss(row, x); });
  more("cross_entropy", [=](const Tensor& x) { cross_entropy(x, index); });
  more("cross_entropy", [=](const Tensor& x) { cross_entropy(matrix, x); });
  more("interpolate", [](const Tensor& x) { interpolate(x, {.size = 2}); });
  more("interpolate", [](const Tensor& x) { interpolate(x, {}); });
  more("conv3d", [=](const Tensor& x) { conv3d(x, filter); });
  more("conv3d", [=](const Tensor& x) { conv3d(volume, x); });
  more("conv3d", [=](const Tensor& x) { conv3d(volume, filter, x); });
  more("conv_transpose3d", [=](const Tensor& x) { conv_transpose3d(x, filter); });
  more("conv_transpose3d", [=](const Tensor& x) { conv_transpose3d(volume, x); });
  more("conv1d", [=](const Tensor& x) { conv1d(x, row); });
  more("conv2d", [=](const Tensor& x) { conv2d(x, row); });
  more("conv_transpose1d", [=](const Tensor& x) { conv_transpose1d(x, row); });
  more("conv_transpose2d", [=](const Tensor& x) { conv_transpose2d(row, x); });
  more("conv3d_weight_grad", [=](const Tensor& x) { conv3d_weight_grad(x, volume, 3); });
  more("conv3d_weight_grad", [=](const Tensor& x) { conv3d_weight_grad(volume, x, 3); });
  more("max_pool1d", [](const Tensor& x) { max_pool1d(x, {.kernel_size = 9}); });
  more("max_pool2d", [](const Tensor& x) { max_pool2d(x, {.kernel_size = 9}); });
  more("max_pool3d", [](const Tensor& x) { max_pool3d(x, {.kernel_size = 9}); });
  more("avg_pool1d", [](const Tensor& x) { avg_pool1d(x, {.kernel_size = 9}); });
  more("avg_pool2d", [](const Tensor& x) { avg_pool2d(x, {.kernel_size = 9}); });
  more("avg_pool3d", [](const Tensor& x) { avg_pool3d(x, {.kernel_size = 9}); });
  more("adaptive_max_pool1d", [](const Tensor& x) { adaptive_max_pool1d(x, 0); });
  more("adaptive_max_pool2d", [](const Tensor& x) { adaptive_max_pool2d(x, 0); });
  more("adaptive_max_pool3d", [](const Tensor& x) { adaptive_max_pool3d(x, 0); });
  more("adaptive_avg_pool1d", [](const Tensor& x) { adaptive_avg_pool1d(x, 0); });
  more("adaptive_avg_pool2d", [](const Tensor& x) { adaptive_avg_pool2d(x, 0); });
  more("adaptive_avg_pool3d", [](const Tensor& x) { adaptive_avg_pool3d(x, 0); });
  more("batch_norm", [=](const Tensor& x) { batch_norm(x, row, row); });
  more("batch_norm", [=](const Tensor& x) { batch_norm(volume, x, row); });
  more("batch_norm", [=](const Tensor& x) { batch_norm(volume, {}, {}, x, {}, {.training = true}); });
  more("instance_norm", [](const Tensor& x) { instance_norm(x); });
  more("group_norm", [](const Tensor& x) { group_norm(x, 7); });
  more("layer_norm", [](const Tensor& x) { layer_norm(x, 7); });
  more("full_like", [](const Tensor& x) { full_like(x, 0.5); });
  more("zeros_like", [](const Tensor& x) { zeros_like(x); });
  more("ones_like", [](const Tensor& x) { ones_like(x); });
  more("shape", [](const Tensor& x) { x.shape(); });
  more("size", [](const Tensor& x) { x.size(5); });
  more("item", [](const Tensor& x) { x.item<double>(); });
  more("to_vector", [](const Tensor& x) { x.to_vector<double>(); });
  more("data", [](const Tensor& x) { x.data<double>(); });
  more("clone", [](const Tensor& x) { x.clone(); });
  more("contiguous", [](const Tensor& x) { x.contiguous(); });
  more("to", [](const Tensor& x) { x.to(Device::cpu()); });
  more("to", [](const Tensor& x) { x.to(f64); });
  more("detach", [](const Tensor& x) { x.detach(); });
  more("slice", [](const Tensor& x) { x.slice(5, 0); });
  more("slice", [](const Tensor& x) { x.slice(0, 0, 1, 0); });
  more("select", [](const Tensor& x) { x.select(0, 99); });
  more("select", [](const Tensor& x) { x[99]; });
  more("permute", [](const Tensor& x) { x.permute({0, 0}); });
  more("transpose", [](const Tensor& x) { x.transpose(0, 5); });
  more("expand", [](const Tensor& x) { x.expand({7}); });
  more("reshape", [](const Tensor& x) { x.reshape({7, -1}); });
  more("squeeze", [](const Tensor& x) { x.squeeze(5); });
  more("squeeze", [](const Tensor& x) { x.squeeze(); });
  more("unsqueeze", [](const Tensor& x) { x.unsqueeze(7); });
  more("flatten", [](const Tensor& x) { x.flatten(5); });
  more("add_", [=](Tensor x) { x.add_(row); });
  more("add_", [=](Tensor x) { x += 0.5; });
  more("sub_", [=](Tensor x) { x -= row; });
  more("mul_", [=](Tensor x) { x *= 0.5; });
  more("div_", [=](Tensor x) { x /= 0.5; });
  more("div_", [=](const Tensor& x) { row.clone() /= x; });
  more("fill_", [](Tensor x) { x.fill_(0.5); });
  more("copy_", [=](const Tensor& x) { ones({2, 2}).copy_(x); });
  more("copy_", [=](Tensor x) { x.copy_(ones({2, 2, 7})); });
  more("grad", [](const Tensor& x) { x.grad(); });
  more("set_grad", [=](Tensor x) { x.set_grad(ones({7})); });
  more("set_requires_grad", [](Tensor x) { x.set_requires_grad(); });
  more("backward", [](const Tensor& x) { x.backward(); });
  more("retain_grad", [](Tensor x) { x.retain_grad(); });
  more("register_hook", [](Tensor x) { x.register_hook([](const Tensor&) {}); });
  more("set_name", [](Tensor x) { x.set_name("\n"); });
  more("grad", [=](const Tensor& x) { grad({x}, {row}); });
  return list;
}

TEST(Messages, EveryOpNamesItselfFirst) {
  const std::vector<std::pair<const char*, Tensor>> operands{
      {"undefined", {}},
      {"of rank 0", full({}, 1)},
      {"i64", from_vector<int64_t>({1, 2, 3}, {3})},
      {"u8", from_vector<uint8_t>({1, 2, 3}, {3})},
      {"bool", from_vector<bool>({true, false, true}, {3})},
      {"f64", ones({3}, {.dtype = f64})},
      {"bf16", ones({3}, {.dtype = bf16})},
      {"of 2 elements", ones({2})},
      {"empty", ones({0})},
      {"a matrix", ones({2, 3})},
      {"without columns", ones({3, 0})},
      {"of rank 8", ones({1, 1, 1, 1, 1, 1, 1, 3})},
      {"on the tape", ones({3}).set_requires_grad() * 1},
  };
  int thrown = 0;
  for (const auto& [name, f] : cases()) {
    int thrown_here = 0;
    for (const auto& [what, x] : operands) {
      const std::string message =
          message_of([&, f = f, x = x] { f(x.defined() && !x.requires_grad() ? x.clone() : x); });
      if (message.empty()) continue;
      ++thrown_here;
      EXPECT_EQ(message.rfind(str(name, ": "), 0), 0u)
          << name << " of a tensor that is " << what << ": " << message;
    }
    EXPECT_GT(thrown_here, 0) << name;
    thrown += thrown_here;
  }
  EXPECT_GT(thrown, 800);
}

TEST(Messages, AMissingGradientSaysWhoseAndWhy) {
  Tensor x = ones({2}).set_requires_grad().set_name("weight");
  EXPECT_FALSE(x.grad().defined());
  EXPECT_EQ(
      message_of([&] { x.grad().item(); }),
      "item: the tensor is undefined: it is the grad() of the tensor \"weight\" of shape (2,), which has no "
      "gradient: no backward() has reached it");
  EXPECT_EQ(message_of([&] { sum(ones({2}).grad()); }),
            "sum: argument 'x' is an undefined tensor: it is the grad() of the tensor of shape (2,), which "
            "does not "
            "require grad (call set_requires_grad() before the forward)");
  const Tensor y = x * 2;
  sum(y).backward();
  EXPECT_EQ(message_of([&] { y.grad().sum(); }),
            "sum: argument 'x' is an undefined tensor: it is the grad() of the tensor of shape (2,), which "
            "is not a "
            "leaf, so backward() keeps its gradient only after retain_grad()");
  const Tensor moved = std::move(x);
  EXPECT_EQ(message_of([&] { x.shape(); }),
            "shape: the tensor is undefined (default-constructed or moved from)");
  Tensor copy = y.grad();  // the reason travels with the handle
  EXPECT_NE(message_of([&] { copy.shape(); }).find("retain_grad()"), std::string::npos);
}

TEST(Messages, WordForWord) {
  const Tensor x = ones({2, 3}), leaf = ones({2}, {.dtype = f64}).set_requires_grad();
  constexpr int64_t far = int64_t{1} << 62;
  const std::vector<std::pair<std::string, std::function<void()>>> mistakes = {
      {"reshape: (2,3) has 6 elements, (4,2) has 8",
       [&] {
         x.reshape({4, 2});
       }},
      {"select: index 5 is out of range for dimension 0 of size 2; allowed are -2 to 1", [&] { x[5]; }},
      {"select: index 0 is out of range for dimension 0 of size 0; allowed are none",
       [&] { x.slice(0, 0, 0)[0]; }},
      {"exp: needs a floating dtype, got i64; allowed are f32, f64, bf16 and f16 (convert with to(vox::f32))",
       [&] { exp(x.to(i64)); }},
      {"add_: in-place writes are not recorded, and the target requires grad; use the ordinary op (x = x + "
       "y), or "
       "write to a clone() or under `auto guard = vox::no_grad();`",
       [&] { x.clone().set_requires_grad() += 1; }},
      {"backward: the output does not require grad: no input of its ops did, they ran under no_grad(), or it "
       "comes "
       "from a gradient, which the tape records only with {.create_graph = true}",
       [&] {
         Tensor w = x.clone().set_requires_grad();
         sum(w * w).backward();
         sum(w.grad()).backward();
       }},
      {"sum: dim 3 is out of range for rank 0; allowed are -1 to 0", [] { sum(zeros({}), 3); }},
      {"softmax: dim -2 is out of range for rank 0; allowed are -1 to 0", [] { softmax(zeros({}), -2); }},
      {"flip: dim 1 is out of range for rank 0; allowed are -1 to 0", [] { flip(zeros({}), 1); }},
      {"roll: dim 1 is out of range for rank 0; allowed are -1 to 0", [] { roll(zeros({}), 1, 1); }},
      {"squeeze: dim 1 is out of range for rank 0; allowed are -1 to 0", [] { zeros({}).squeeze(1); }},
      {"transpose: dim 1 is out of range for rank 0; allowed are -1 to 0", [] { zeros({}).transpose(0, 1); }},
      {"unsqueeze: dim 5 is out of range for rank 1; allowed are -2 to 1", [] { zeros({2}).unsqueeze(5); }},
      {"stack: dim 3 is out of range for rank 2; allowed are -3 to 2",
       [&] {
         stack({x, x}, 3);
       }},
      {"matmul: the batch dimensions of shapes (2,3,3) and (3,3,3), (2,) and (3,), do not broadcast; sizes "
       "must be "
       "equal or 1",
       [] {
         matmul(ones({2, 3, 3}), ones({3, 3, 3}));
       }},
      {"max_pool1d: the sizes of the input must be >= 1, except those of batch and channels, got (1,1,0)",
       [] {
         max_pool1d(ones({1, 1, 0}), {.kernel_size = 2});
       }},
      {"avg_pool2d: the input with its padding must not be smaller than kernel_size 3, got size 2 with "
       "padding 0",
       [] {
         avg_pool2d(ones({1, 4, 2}), {.kernel_size = 3, .ceil_mode = true});
       }},
      {"adaptive_avg_pool1d: output_size must be >= 1, got 0",
       [] {
         adaptive_avg_pool1d(ones({1, 1, 4}), 0);
       }},
      {"adaptive_max_pool2d: output_size must be >= 1, got (2,0)",
       [] {
         adaptive_max_pool2d(ones({1, 4, 4}), {2, 0});
       }},
      {"interpolate: the output sizes must be >= 1, got 0",
       [] {
         interpolate(ones({1, 1, 4}), {.size = 0});
       }},
      {"interpolate: D, H and W of the input must be >= 1, got (1,1,0)",
       [] {
         interpolate(ones({1, 1, 0}), {.size = 2});
       }},
      {"conv3d: padding must be below 2^62 on every axis, got (0,0,4611686018427387904)",
       [&] {
         conv3d(ones({1, 1, 2, 2, 2}), ones({1, 1, 1, 1, 1}), {}, {.padding = {0, 0, far}});
       }},
      {"conv2d: dilation * (kernel_size - 1) must fit 64 bits, got dilation (1,4611686018427387904) and "
       "kernel_size "
       "(3,3)",
       [&] {
         conv2d(ones({1, 1, 9, 9}), ones({1, 1, 3, 3}), {}, {.dilation = {1, far}});
       }},
      {"pad: padding: 4611686018427387906 + 4611686018427387904 overflows 64 bits",
       [&] {
         pad(ones({2}), {far, far});
       }},
      {"pad: padding: 4611686018427387906 + 4611686018427387904 overflows 64 bits",
       [&] {
         pad(ones({2}), {far, far}, PadMode::replicate);
       }},
      {"pad: mode reflect pads a dimension of size 2 by at most 1 at each end, got (2, 1)",
       [] {
         pad(ones({2}), {2, 1}, PadMode::reflect);
       }},
      {"pad: mode circular pads a dimension of size 2 by at most 2 at each end, got (0, 3)",
       [] {
         pad(ones({2}), {0, 3}, PadMode::circular);
       }},
      {"pad: an empty dimension can only be padded by a value, got shape (2,0)",
       [] {
         pad(ones({2, 0}), {1, 1}, PadMode::replicate);
       }},
      {"gradcheck: f must return a tensor, got an undefined one",
       [&] { autograd::gradcheck([](const auto&) { return Tensor(); }, {leaf}); }},
      {"gradgradcheck: f must return a tensor, got an undefined one",
       [&] { autograd::gradgradcheck([](const auto&) { return Tensor(); }, {leaf}); }},
      {"gradcheck: eps must be finite and > 0, got 0",
       [&] { autograd::gradcheck([](const auto& v) { return v[0] * 2; }, {leaf}, {.eps = 0}); }},
      {"gradgradcheck: eps must be finite and > 0, got -1",
       [&] { autograd::gradgradcheck([](const auto& v) { return v[0] * 2; }, {leaf}, {.eps = -1}); }},
      {"empty: a CPU device has index 0, got 3",
       [] {
         empty({2}, Device{DeviceType::cpu, 3});
       }},
  };
  for (const auto& [message, f] : mistakes) EXPECT_EQ(message_of(f), message);
}

}  // namespace
}  // namespace vox
