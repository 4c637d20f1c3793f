#include <voxgrad/autograd/record.h>

#include "tests/support/test.h"

namespace vox {
namespace {

using Tensors = std::vector<Tensor>;

struct ScaledProduct : Function<ScaledProduct> {
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

struct SavesItsOutput : Function<SavesItsOutput> {
  static constexpr const char* name = "my_exp";
  Tensor forward(FunctionContext& ctx, const Tensors& inputs) {
    Tensor y = exp(inputs[0]);
    ctx.save_for_backward({y});
    return y;
  }
  Tensors backward(FunctionContext& ctx, const Tensor& g) { return {g * ctx.saved()[0]}; }
};

/// A function of two lambdas; forward doubles its input, unless it is given.
struct Own : Function<Own> {
  static constexpr const char* name = "own";
  using Backward = std::function<Tensors(FunctionContext&, const Tensor&)>;
  using Forward = std::function<Tensor(FunctionContext&, const Tensors&)>;
  Backward on_backward;
  Forward on_forward;

  explicit Own(
      Backward b, Forward f = [](FunctionContext&, const Tensors& in) { return in[0] * 2; })
      : on_backward(std::move(b)), on_forward(std::move(f)) {}
  Tensor forward(FunctionContext& ctx, const Tensors& inputs) { return on_forward(ctx, inputs); }
  Tensors backward(FunctionContext& ctx, const Tensor& g) { return on_backward(ctx, g); }
};

Tensors tripled(FunctionContext&, const Tensor& g) { return {g * 3}; }

Tensor leaf(const Doubles& values, DType dtype = f32) {
  return from_vector(values, {static_cast<int64_t>(values.size())}).to(dtype).set_requires_grad();
}

TEST(Function, ForwardAndBackward) {
  Tensor a = leaf({1, 2}), b = from_vector<float>({3, 4}, {2});
  Tensor y = ScaledProduct(10).apply({a, b});
  EXPECT_EQ(y.to_vector<float>(), (Floats{30, 80}));
  y.sum().backward();
  EXPECT_EQ(a.grad().to_vector<float>(), (Floats{30, 40}));
  EXPECT_FALSE(b.grad().defined());
}

TEST(Function, IsDifferentiableTwice) {
  const Tensor a = leaf({1, 2}, f64), b = leaf({3, 4}, f64);
  const auto product = [](const Tensors& x) { return ScaledProduct(0.5).apply(x); };
  expect_gradients(product, {a, b});
  const auto own_exp = [](const Tensors& x) { return SavesItsOutput().apply(x); };
  expect_gradients(own_exp, {a});
}

TEST(Function, SavedOutputMakesNoCycle) {
  Tensor x = leaf({0});
  std::weak_ptr<Storage> storage;
  {
    Tensor y = SavesItsOutput().apply({x});
    storage = y.impl()->storage;
  }
  EXPECT_TRUE(storage.expired());
}

TEST(Function, MistakesOfBackwardAreNamed) {
  const auto refused = [](const Own::Backward& backward) {
    const Tensor x = leaf({1});
    return message_of<GradError>([&] { (Own(backward).apply({x}) + x).backward(); });
  };
  EXPECT_TRUE(has_parts(refused([](auto&, auto&) { return Tensors{zeros({7})}; }), {"own"}));
  EXPECT_TRUE(has_parts(refused([](auto&, auto& g) {
                          return Tensors{g, g};
                        }),
                        {"returned 2 gradients for 1 inputs"}));
  EXPECT_TRUE(has_parts(refused([](auto& ctx, auto&) { return ctx.saved(); }),
                        {"FunctionContext::saved: nothing was saved (call save_for_backward in forward"}));
  EXPECT_TRUE(has_parts(
      refused([](auto&, auto& g) { return Tensors{Tensor(g).mul_(2)}; }),
      {"must not write into its gradient, which other parts of the graph may share; return a new"}));
}

struct Returns final : autograd::Node {
  autograd::Gradients gradients;
  const char* name() const override { return "returns"; }
  autograd::Gradients backward(autograd::Gradients) override { return gradients; }
};

TEST(Function, MistakesOfNodesAreNamed) {
  const auto refused = [](const autograd::Gradients& gradients) {
    const Tensor x = leaf({1}), y = ones({1});
    autograd::record<Returns>({x}, y)->gradients = gradients;
    return message_of<GradError>([&] { y.backward(); });
  };
  EXPECT_TRUE(has_parts(refused({Tensor()}), {"returned an undefined tensor as a gradient"}));
  EXPECT_TRUE(has_parts(refused({}), {"returned 0 gradients for 1 inputs"}));
}

TEST(Function, NeedsGradIsCheckedInsteadOfUndefined) {
  const Own too_early(tripled,
                      [](auto& ctx, auto& inputs) { return ctx.needs_grad(0) ? inputs[0] : Tensor(); });
  const Own too_far([](auto& ctx, auto& g) { return Tensors{ctx.needs_grad(1) ? g : Tensor()}; });
  EXPECT_REFUSED(GradError, too_early.apply({leaf({1})}), "needs_grad: may be called only in backward");
  EXPECT_REFUSED(ValueError, too_far.apply({leaf({1})}).backward(), "needs_grad: input 1 of 1");
}

TEST(Function, LeavesTheTensorThatForwardHandsOutAlone) {
  const Tensor constant = ones({1}), x = leaf({1});
  for (int i = 0; i < 2; ++i) Own(tripled, [&](auto&, auto&) { return constant; }).apply({x}).backward();
  EXPECT_EQ(x.grad().item(), 6.f);
  EXPECT_FALSE(constant.requires_grad());
}

TEST(Function, WholeNumbersAreNotRecorded) {
  const Tensor index = Own(tripled, [](auto&, auto& in) { return argmax(in[0]); }).apply({leaf({1, 5})});
  EXPECT_EQ(index.item<int64_t>(), 1);
  EXPECT_FALSE(index.requires_grad());
}

TEST(Function, MustReturnATensor) {
  EXPECT_MESSAGE(ValueError, Own(tripled, [](auto&, auto&) { return Tensor(); }).apply({leaf({1})}),
                 "own: forward returned an undefined tensor");
}

TEST(Function, MayReturnItsInput) {
  Tensor x = leaf({1});
  Tensor y = Own(tripled, [](auto&, auto& inputs) { return inputs[0]; }).apply({x});
  EXPECT_TRUE(x.is_leaf());
  y.backward();
  EXPECT_EQ(x.grad().item(), 3.f);
}

TEST(Gradcheck, FindsWrongGradients) {
  const Tensor x = leaf({1, 2}, f64);
  const auto wrong_once = [](const Tensors& t) {
    return Own([](auto&, auto& g) { return Tensors{g * 2.1}; }).apply(t);
  };
  EXPECT_THROW(autograd::gradcheck(wrong_once, {x}), GradError);
  // Right once, but backward treats x as a constant.
  const auto wrong_twice = [](const Tensors& t) {
    const auto square = [](FunctionContext& ctx, const Tensors& in) {
      ctx.save_for_backward({in[0].detach()});
      return in[0] * in[0];
    };
    return Own([](auto& ctx, auto& g) { return Tensors{g * ctx.saved()[0] * 2}; }, square).apply(t);
  };
  EXPECT_TRUE(autograd::gradcheck(wrong_twice, {x}));
  try {
    autograd::gradgradcheck(wrong_twice, {x});
    FAIL();
  } catch (const GradError& error) {
    EXPECT_TRUE(std::string_view(error.what()).starts_with("gradgradcheck: gradcheck: d output[0]"))
        << error.what();
  }
}

TEST(Gradcheck, AllowsADifferenceOfTheTolerance) {
  const auto f = [](const Tensors& t) { return Own([](auto&, auto& g) { return Tensors{g * 3}; }).apply(t); };
  const autograd::GradcheckOptions exact{.eps = 0.5, .atol = 1, .rtol = 0};
  EXPECT_TRUE(autograd::gradcheck(f, {leaf({1}, f64)}, exact));  // 3, not 2
}

TEST(Gradcheck, RefusesWhatItCannotCheck) {
  const auto f = [](const Tensors& t) { return t[0] * 2; };
  EXPECT_THROW(autograd::gradcheck(f, {ones({2}, {.dtype = f64})}), GradError);
  EXPECT_THROW(autograd::gradcheck(f, {leaf({1, 1})}), DTypeError);
  const Tensor strided = ones({2, 3}, {f64}).transpose(0, 1).set_requires_grad();
  EXPECT_MESSAGE(GradError, autograd::gradcheck(f, {strided}),
                 "gradcheck: the inputs must be contiguous (take views of them inside the function)");
  EXPECT_ERRORS(ValueError, autograd::gradcheck(f, {leaf({1}, f64)}, {.atol = inf}),
                autograd::gradcheck(f, {leaf({1}, f64)}, {.rtol = -1}),
                autograd::gradcheck({}, {leaf({1}, f64)}), autograd::gradgradcheck({}, {leaf({1}, f64)}));
}

TEST(Tape, ShowsWhatBackwardWillDo) {
  Tensor x = ones({2, 3}).set_requires_grad(true);
  Tensor loss = (x * x).sum();
  const std::string text = tape(loss);
  EXPECT_TRUE(has_parts(text, {"sum"}));
  EXPECT_TRUE(has_parts(text, {"saves 24 B"}));  // x twice, in the same 6 * 4 bytes
  EXPECT_LT(text.find("sum"), text.find("mul"));
  EXPECT_LT(text.find("mul"), text.find("AccumulateGrad"));
  const std::string leaf = text.substr(text.rfind('#', text.find("AccumulateGrad")));
  const std::string number = leaf.substr(0, leaf.find(' '));
  EXPECT_TRUE(has_parts(text, {"(2,3)  saves 24 B  -> " + number + " " + number}));
  EXPECT_EQ(tape(x.detach()), "(not on the tape)\n");
}

TEST(Tape, CountsTheMemoryThatANodeKeepsOnce) {
  const Tensor x = ones({2, 3}).set_requires_grad(true), y = ones({2, 3}).set_requires_grad(true);
  const auto saves = [](const Tensor& output, const char* bytes) {
    const std::string text = tape(output);  // the first line is the output's op
    return text.substr(0, text.find('\n')).find(std::string("saves ") + bytes + " B") != std::string::npos;
  };
  EXPECT_TRUE(saves(x * x, "24")) << tape(x * x);
  EXPECT_TRUE(saves(x * y, "48")) << tape(x * y);
  EXPECT_TRUE(saves(x * x.detach(), "24")) << tape(x * x.detach());  // two tensors, one memory
  const Tensor rows = x.select(0, 0) * x.select(0, 1);               // views keep all of x
  EXPECT_TRUE(saves(rows, "24")) << tape(rows);
  const Tensor z = x * x;
  z.sum().backward();
  EXPECT_TRUE(saves(z, "0")) << tape(z);  // backward has freed it
}

TEST(Tape, OfALeafThatNoOpHasUsed) {
  Tensor x = ones({2, 3}).set_requires_grad(true);
  EXPECT_NE(tape(x).find("AccumulateGrad  (2,3)"), std::string::npos) << tape(x);
  EXPECT_EQ(tape({}), "(not on the tape)\n");
}

}  // namespace
}  // namespace vox
