#include <gtest/gtest.h>

#include <voxgrad/voxgrad.h>

#include "tests/support/errors.h"

namespace {

using vox::from_vector;
using vox::FunctionContext;
using vox::Tensor;
using Tensors = std::vector<Tensor>;

struct ScaledProduct : vox::Function<ScaledProduct> {
  static constexpr const char* name = "scaled_product";
  double scale = 1;

  explicit ScaledProduct(double s) : scale(s) {}
  Tensor forward(FunctionContext& ctx, const Tensors& inputs) {
    ctx.save_for_backward(inputs);
    return inputs[0] * inputs[1] * scale;
  }
  Tensors backward(FunctionContext& ctx, const Tensor& g) {
    const Tensors x = ctx.saved();
    return {ctx.needs_grad(0) ? g * x[1] * scale : Tensor(), ctx.needs_grad(1) ? g * x[0] * scale : Tensor()};
  }
};

struct SavesItsOutput : vox::Function<SavesItsOutput> {
  static constexpr const char* name = "my_exp";
  Tensor forward(FunctionContext& ctx, const Tensors& inputs) {
    Tensor y = vox::exp(inputs[0]);
    ctx.save_for_backward({y});
    return y;
  }
  Tensors backward(FunctionContext& ctx, const Tensor& g) { return {g * ctx.saved()[0]}; }
};

struct WrongShape : vox::Function<WrongShape> {
  static constexpr const char* name = "wrong_shape";
  Tensor forward(FunctionContext&, const Tensors& inputs) { return inputs[0] * 2; }
  Tensors backward(FunctionContext&, const Tensor&) { return {vox::zeros({7})}; }
};

struct WrongCount : vox::Function<WrongCount> {
  static constexpr const char* name = "wrong_count";
  Tensor forward(FunctionContext&, const Tensors& inputs) { return inputs[0] * 2; }
  Tensors backward(FunctionContext&, const Tensor& g) { return {g, g}; }
};

struct Identity : vox::Function<Identity> {
  static constexpr const char* name = "identity";
  Tensor forward(FunctionContext&, const Tensors& inputs) { return inputs[0]; }
  Tensors backward(FunctionContext&, const Tensor& g) { return {g * -1}; }
};

struct WrongOnce : vox::Function<WrongOnce> {
  static constexpr const char* name = "wrong_once";
  Tensor forward(FunctionContext&, const Tensors& inputs) { return inputs[0] * 2; }
  Tensors backward(FunctionContext&, const Tensor& g) { return {g * 2.1}; }
};

struct WrongTwice : vox::Function<WrongTwice> {  // right once, but backward treats x as a constant
  static constexpr const char* name = "wrong_twice";
  Tensor forward(FunctionContext& ctx, const Tensors& inputs) {
    ctx.save_for_backward({inputs[0].detach()});
    return inputs[0] * inputs[0];
  }
  Tensors backward(FunctionContext& ctx, const Tensor& g) { return {g * ctx.saved()[0] * 2}; }
};

TEST(Function, ForwardAndBackward) {
  Tensor a = from_vector<float>({1, 2}, {2}).set_requires_grad(true), b = from_vector<float>({3, 4}, {2});
  Tensor y = ScaledProduct(10).apply({a, b});
  EXPECT_EQ(y.to_vector<float>(), (std::vector<float>{30, 80}));
  y.sum().backward();
  EXPECT_EQ(a.grad().to_vector<float>(), (std::vector<float>{30, 40}));
  EXPECT_FALSE(b.grad().defined());
}

TEST(Function, IsDifferentiableTwice) {
  Tensor a = from_vector<double>({1, 2}, {2}).set_requires_grad(true);
  Tensor b = from_vector<double>({3, 4}, {2}).set_requires_grad(true);
  const auto product = [](const Tensors& x) { return ScaledProduct(0.5).apply(x); };
  EXPECT_TRUE(vox::autograd::gradcheck(product, {a, b}));
  EXPECT_TRUE(vox::autograd::gradgradcheck(product, {a, b}));
  const auto own_exp = [](const Tensors& x) { return SavesItsOutput().apply(x); };
  EXPECT_TRUE(vox::autograd::gradcheck(own_exp, {a}));
  EXPECT_TRUE(vox::autograd::gradgradcheck(own_exp, {a}));
}

TEST(Function, SavedOutputMakesNoCycle) {
  Tensor x = from_vector<float>({0}, {1}).set_requires_grad(true);
  std::weak_ptr<vox::Storage> storage;
  {
    Tensor y = SavesItsOutput().apply({x});
    storage = y.impl()->storage;
  }
  EXPECT_TRUE(storage.expired());
}

TEST(Function, MistakesAreNamed) {
  Tensor x = from_vector<float>({1}, {1}).set_requires_grad(true);
  EXPECT_THROW(WrongShape().apply({x}).backward(), vox::GradError);
  EXPECT_THROW(WrongCount().apply({x}).backward(), vox::GradError);
}

struct ReturnsItsMember : vox::Function<ReturnsItsMember> {
  static constexpr const char* name = "returns_its_member";
  Tensor member;
  explicit ReturnsItsMember(Tensor t) : member(std::move(t)) {}
  Tensor forward(FunctionContext&, const Tensors&) { return member; }
  Tensors backward(FunctionContext&, const Tensor& g) { return {g * 3}; }
};

struct ReturnsAnIndex : vox::Function<ReturnsAnIndex> {
  [[maybe_unused]] static constexpr const char* name = "returns_an_index";
  Tensor forward(FunctionContext&, const Tensors& inputs) { return vox::argmax(inputs[0]); }
  Tensors backward(FunctionContext&, const Tensor&) { return {Tensor()}; }
};

struct AsksTooEarly : vox::Function<AsksTooEarly> {
  static constexpr const char* name = "asks_too_early";
  Tensor forward(FunctionContext& ctx, const Tensors& inputs) { return inputs[0] * ctx.needs_grad(0); }
  Tensors backward(FunctionContext&, const Tensor& g) { return {g}; }
};

struct AsksTooFar : vox::Function<AsksTooFar> {
  static constexpr const char* name = "asks_too_far";
  Tensor forward(FunctionContext&, const Tensors& inputs) { return inputs[0] * 2; }
  Tensors backward(FunctionContext& ctx, const Tensor& g) { return {ctx.needs_grad(1) ? g : Tensor()}; }
};

TEST(Function, LeavesTheTensorThatForwardHandsOutAlone) {
  const Tensor constant = vox::ones({1});
  Tensor x = from_vector<float>({1}, {1}).set_requires_grad(true);
  for (int i = 0; i < 2; ++i) ReturnsItsMember(constant).apply({x}).backward();
  EXPECT_EQ(x.grad().item(), 6.f);
  EXPECT_FALSE(constant.requires_grad());
}

TEST(Function, WholeNumbersAreNotRecorded) {
  Tensor x = from_vector<float>({1, 5}, {2}).set_requires_grad(true);
  const Tensor index = ReturnsAnIndex().apply({x});
  EXPECT_EQ(index.item<int64_t>(), 1);
  EXPECT_FALSE(index.requires_grad());
}

TEST(Function, NeedsGradIsCheckedInsteadOfUndefined) {
  Tensor x = from_vector<float>({1}, {1}).set_requires_grad(true);
  EXPECT_REFUSED(vox::GradError, AsksTooEarly().apply({x}), "needs_grad: may be called only in backward");
  EXPECT_REFUSED(vox::ValueError, AsksTooFar().apply({x}).backward(), "needs_grad: input 1 of 1");
}

struct SavesNothing : vox::Function<SavesNothing> {
  static constexpr const char* name = "saves_nothing";
  Tensor forward(FunctionContext&, const Tensors& inputs) { return inputs[0] * 2; }
  Tensors backward(FunctionContext& ctx, const Tensor&) { return {ctx.saved()[0]}; }
};

struct WritesItsGradient : vox::Function<WritesItsGradient> {
  static constexpr const char* name = "writes_its_gradient";
  Tensor forward(FunctionContext&, const Tensors& inputs) { return inputs[0] * 2; }
  Tensors backward(FunctionContext&, const Tensor& g) { return {Tensor(g).mul_(2)}; }
};

TEST(Function, WhatWasNotSavedIsRefused) {
  Tensor x = from_vector<float>({1}, {1}).set_requires_grad(true);
  EXPECT_REFUSED(vox::GradError, SavesNothing().apply({x}).backward(),
                 "FunctionContext::saved: nothing was saved (call save_for_backward in forward");
}

TEST(Function, MustNotWriteIntoItsGradient) {
  Tensor x = from_vector<float>({1}, {1}).set_requires_grad(true);
  EXPECT_REFUSED(vox::GradError, (WritesItsGradient().apply({x}) + x).backward(),
                 "must not write into its gradient, which other parts of the graph may share; return a new");
}

TEST(Function, MayReturnItsInput) {
  Tensor x = from_vector<float>({1}, {1}).set_requires_grad(true);
  Tensor y = Identity().apply({x});
  EXPECT_TRUE(x.is_leaf());
  y.backward();
  EXPECT_EQ(x.grad().item(), -1.f);
}

TEST(Gradcheck, FindsAWrongGradient) {
  Tensor x = from_vector<double>({1, 2}, {2}).set_requires_grad(true);
  EXPECT_THROW(vox::autograd::gradcheck([](const Tensors& t) { return WrongOnce().apply(t); }, {x}),
               vox::GradError);
}

TEST(Gradcheck, FindsAWrongSecondGradient) {
  Tensor x = from_vector<double>({1, 2}, {2}).set_requires_grad(true);
  const auto f = [](const Tensors& t) { return WrongTwice().apply(t); };
  EXPECT_TRUE(vox::autograd::gradcheck(f, {x}));
  EXPECT_THROW(vox::autograd::gradgradcheck(f, {x}), vox::GradError);
}

TEST(Gradcheck, RefusesWhatItCannotCheck) {
  const auto f = [](const Tensors& t) { return t[0] * 2; };
  EXPECT_THROW(vox::autograd::gradcheck(f, {vox::ones({2}, {.dtype = vox::f64})}), vox::GradError);
  EXPECT_THROW(vox::autograd::gradcheck(f, {vox::ones({2}).set_requires_grad(true)}), vox::DTypeError);
  const Tensor x = vox::ones({2}, {.dtype = vox::f64}).set_requires_grad(true);
  EXPECT_THROW(vox::autograd::gradcheck({}, {x}), vox::ValueError);
  EXPECT_THROW(vox::autograd::gradgradcheck({}, {x}), vox::ValueError);
}

TEST(Tape, ShowsWhatBackwardWillDo) {
  Tensor x = vox::ones({2, 3}).set_requires_grad(true);
  Tensor loss = (x * x).sum();
  const std::string text = vox::tape(loss);
  EXPECT_NE(text.find("sum"), std::string::npos) << text;
  EXPECT_NE(text.find("saves 24 B"), std::string::npos) << text;  // x twice, in the same 6 * 4 bytes
  EXPECT_LT(text.find("sum"), text.find("mul"));
  EXPECT_LT(text.find("mul"), text.find("AccumulateGrad"));
  const std::string leaf = text.substr(text.rfind('#', text.find("AccumulateGrad")));
  const std::string number = leaf.substr(0, leaf.find(' '));
  EXPECT_NE(text.find("(2,3)  saves 24 B  -> " + number + " " + number), std::string::npos) << text;
  EXPECT_EQ(vox::tape(x.detach()), "(not on the tape)\n");
}

TEST(Tape, CountsTheMemoryThatANodeKeepsOnce) {
  const Tensor x = vox::ones({2, 3}).set_requires_grad(true), y = vox::ones({2, 3}).set_requires_grad(true);
  const auto saves = [](const Tensor& output, const char* bytes) {
    const std::string text = vox::tape(output);  // the first line is the output's op
    return text.substr(0, text.find('\n')).find(std::string("saves ") + bytes + " B") != std::string::npos;
  };
  EXPECT_TRUE(saves(x * x, "24")) << vox::tape(x * x);
  EXPECT_TRUE(saves(x * y, "48")) << vox::tape(x * y);
  EXPECT_TRUE(saves(x * x.detach(), "24")) << vox::tape(x * x.detach());  // two tensors, one memory
  const Tensor rows = x.select(0, 0) * x.select(0, 1);                    // views keep all of x
  EXPECT_TRUE(saves(rows, "24")) << vox::tape(rows);
  const Tensor z = x * x;
  z.sum().backward();
  EXPECT_TRUE(saves(z, "0")) << vox::tape(z);  // backward has freed it
}

TEST(Tape, OfALeafThatNoOpHasUsed) {
  Tensor x = vox::ones({2, 3}).set_requires_grad(true);
  EXPECT_NE(vox::tape(x).find("AccumulateGrad  (2,3)"), std::string::npos) << vox::tape(x);
  EXPECT_EQ(vox::tape({}), "(not on the tape)\n");
}

}  // namespace
