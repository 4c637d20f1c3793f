#include "tests/support/test.h"

// The engine: which node receives which gradient, how often, and which gradients share memory.

namespace vox {
namespace {

Tensor leaf(const Floats& values) {
  return from_vector<float>(values, {static_cast<int64_t>(values.size())}).set_requires_grad(true);
}
Floats grad_of(const Tensor& t) { return t.grad().to_vector<float>(); }
const void* memory(const Tensor& t) { return t.data<float>(); }

TEST(Engine, GradientsByHand) {
  const auto gradient = [](const Floats& values, auto f) {
    Tensor x = leaf(values);
    f(x).sum().backward();
    EXPECT_TRUE(x.grad().is_contiguous());
    return grad_of(x);
  };
  const auto diamond = [](const Tensor& x) {
    const Tensor shared = x * 3, left = shared * shared, right = shared * 5;
    return left + right;  // 9x^2 + 15x
  };
  EXPECT_EQ(gradient({5}, [](const Tensor& x) { return x; }), (Floats{1}));
  EXPECT_EQ(gradient({1, 2, 3}, [](const Tensor& x) { return x * x * 2; }), (Floats{4, 8, 12}));
  EXPECT_EQ(gradient({2}, diamond), (Floats{51}));
  EXPECT_EQ(gradient({1, 2},
                     [](const Tensor& x) {
                       return x.reshape({2, 1}).reshape({2}) + x;
                     }),
            (Floats{2, 2}));
  Tensor x = leaf({5});
  x.backward();  // the root itself
  EXPECT_EQ(grad_of(x), (Floats{1}));
}

TEST(Engine, EveryNodeOfASharedSubgraphRunsOnce) {
  Tensor x = leaf({1});
  Tensor y = x * 1;
  int calls = 0;
  y.register_hook([&](const Tensor&) { ++calls; });
  Tensor z = y;
  for (int i = 0; i < 30; ++i) z = z + z;  // 2^30 paths
  z.sum().backward();
  EXPECT_EQ(calls, 1);
  EXPECT_EQ(grad_of(x), (Floats{1 << 30}));
}

TEST(Engine, LeafUsedEarlyAndLateAccumulatesOnce) {
  Tensor x = leaf({2});
  int calls = 0;
  x.register_hook([&](const Tensor& g) {
    ++calls;
    EXPECT_EQ(g.to_vector<float>(), (Floats{16}));  // d(x^3 + 4x): complete when the hook sees it
  });
  Tensor y = x * x;
  Tensor z = y * x;
  (z + 4 * x).sum().backward();
  EXPECT_EQ(calls, 1);
}

TEST(Engine, BackwardAddsUp) {
  Tensor x = leaf({1, 2});
  (x * 3).sum().backward();
  (x * 4).sum().backward();
  EXPECT_EQ(grad_of(x), (Floats{7, 7}));
  x.zero_grad();
  EXPECT_FALSE(x.grad().defined());
}

TEST(Engine, GradientsOfTwoLeavesShareNoMemory) {
  Tensor a = leaf({1, 2}), b = leaf({3, 4});
  (a + b).sum().backward();
  EXPECT_NE(memory(a.grad()), memory(b.grad()));
  {
    auto guard = no_grad();
    a.grad().fill_(9);
  }
  EXPECT_EQ(grad_of(b), (Floats{1, 1}));
}

TEST(Engine, CallersGradientIsNeitherKeptNorChanged) {
  Tensor x = leaf({1, 2});
  Tensor y = x + 0;
  Tensor gy = from_vector<float>({10, 20}, {2});
  y.backward(gy, {.retain_graph = true});
  gy.fill_(-1);
  EXPECT_EQ(grad_of(x), (Floats{10, 20}));
  gy.fill_(1);
  y.backward(gy);
  EXPECT_EQ(grad_of(x), (Floats{11, 21}));
  EXPECT_EQ(gy.to_vector<float>(), (Floats{1, 1}));
}

TEST(Engine, CallersGradientIsNotChangedThroughAView) {
  const Tensor x = leaf({1, 2}), y = x.reshape({2, 1}), g = full({2, 1}, 3);
  for (int i = 0; i < 2; ++i) y.backward(g, {.retain_graph = true});
  EXPECT_EQ(g.to_vector<float>(), (Floats{3, 3}));
  EXPECT_EQ(grad_of(x), (Floats{6, 6}));
}

TEST(Engine, AGradientThatTheUserHoldsDoesNotChange) {
  Tensor x = leaf({1});
  (x * 2).sum().backward();
  const Tensor held = x.grad();
  (x * 3).sum().backward();
  EXPECT_EQ(held.to_vector<float>(), (Floats{2}));
  EXPECT_EQ(grad_of(x), (Floats{5}));
}

TEST(Engine, OnlyLeavesThatRequireGradReceiveIt) {
  Tensor x = leaf({1}), c = from_vector<float>({7}, {1});
  (x * c).sum().backward();
  EXPECT_EQ(grad_of(x), (Floats{7}));
  EXPECT_FALSE(c.grad().defined());
}

TEST(Engine, SecondBackwardNeedsRetainGraph) {
  Tensor x = leaf({3});
  Tensor y = (x * x).sum();
  y.backward({}, {.retain_graph = true});
  y.backward();
  EXPECT_EQ(grad_of(x), (Floats{12}));
  for (const char* word : {"retain_graph", "mul"}) EXPECT_REFUSED(GradError, y.backward(), word);
}

TEST(Engine, WritingASavedTensorIsNoticed) {
  Tensor x = leaf({3});
  Tensor c = from_vector<float>({2}, {1});
  Tensor y = (x * c).sum();
  c.fill_(5);
  EXPECT_THROW(y.backward(), GradError);
  Tensor through_view = (x * c).sum();
  c.slice(0, 0, 1).add_(c);
  EXPECT_THROW(through_view.backward(), GradError);
  Tensor through_detached = (x * x).sum();
  x.detach().fill_(1);
  EXPECT_THROW(through_detached.backward(), GradError);
  Tensor through_pointer = (x * c).sum();
  c.mutable_data<float>()[0] = 1;
  EXPECT_THROW(through_pointer.backward(), GradError);
  Tensor exp_saves_its_output = exp(x);
  exp_saves_its_output.detach().fill_(0);
  EXPECT_THROW(exp_saves_its_output.backward(), GradError);
}

TEST(Engine, AFactorOfAConstantIsNotSaved) {  // so a layer with a frozen weight keeps no input
  const auto expect_not_saved = [](const Shape& shape, Tensor constant, auto product) {
    Tensor x = ones(shape).set_requires_grad(true);
    const Tensor copy = x.clone(), y = product(copy, constant), swapped = product(constant, copy);
    copy.detach().fill_(7);
    y.sum().backward();
    const Tensor first = x.grad();
    x.zero_grad();
    swapped.sum().backward();
    EXPECT_TRUE(first.sum().item() != 0 && x.grad().sum().item() == first.sum().item());
    const Tensor needed = product(x.clone(), constant);
    constant.fill_(5);
    EXPECT_THROW(needed.sum().backward(), GradError);
  };
  expect_not_saved({3}, full({3}, 2), [](const Tensor& a, const Tensor& b) { return a * b; });
  expect_not_saved({2, 2}, full({2, 2}, 2), [](const Tensor& a, const Tensor& b) { return matmul(a, b); });
  expect_not_saved({1, 1, 2, 2, 2}, full({1, 1, 2, 2, 2}, 2),
                   [](const Tensor& a, const Tensor& b) { return conv3d(a, b, {}); });
  Tensor x = leaf({6}), numerator = x.clone();
  const Tensor quotient = numerator / from_vector<float>({2}, {1});
  numerator.detach().fill_(7);
  quotient.backward();
  EXPECT_EQ(grad_of(x), (Floats{0.5}));
}

TEST(Engine, ALeafWithOtherMemoryIsNoticed) {
  Tensor w = leaf({3}), x = leaf({2});
  Tensor y = (x * w).sum();
  detail::set_data(w, from_vector<float>({5}, {1}));  // as Module::to() there and back does
  EXPECT_THROW(y.backward(), GradError);
  Tensor again = (x * w).sum();
  x.zero_grad();
  again.backward();
  EXPECT_EQ(grad_of(x), (Floats{5}));
}

TEST(Engine, InPlaceWritesNeedNoGrad) {
  Tensor x = leaf({1, 2});
  Tensor y = x * 2, constant = from_vector<float>({1, 1}, {2});
  EXPECT_ERRORS(GradError, x.add_(constant), y.fill_(0), x.slice(0, 0, 1).fill_(0), y.reshape({2, 1}).mul_(2),
                constant.copy_(x), constant.add_(y), x.mutable_data<float>());
  for (const char* advice : {"no_grad()", "clone()"}) EXPECT_REFUSED(GradError, x.zero_(), advice);
  auto guard = no_grad();
  x.add_(constant);
  EXPECT_EQ(x.to_vector<float>(), (Floats{2, 3}));
  EXPECT_TRUE(x.requires_grad());
}

TEST(Engine, RootErrors) {
  Tensor x = leaf({1, 2});
  EXPECT_THROW((x * 2).backward(), GradError);                                   // not one element
  EXPECT_THROW(x.detach().sum().backward(), GradError);                          // not on the tape
  EXPECT_THROW((x * 2).backward(from_vector<float>({1}, {1})), ShapeError);      // wrong shape
  EXPECT_THROW((x * 2).backward(from_vector<double>({1, 1}, {2})), DTypeError);  // wrong dtype
  EXPECT_THROW(Tensor().backward(), ValueError);
  EXPECT_THROW((x * 2).set_requires_grad(false), GradError);
  EXPECT_THROW(from_vector<int64_t>({1}, {1}).set_requires_grad(true), DTypeError);
}

TEST(GradMode, NothingIsRecordedUnderNoGrad) {
  Tensor x = leaf({1});
  EXPECT_TRUE(grad_enabled());
  {
    auto guard = no_grad();
    EXPECT_FALSE((x * 2).requires_grad());
    auto inner = enable_grad();
    EXPECT_TRUE((x * 2).requires_grad());
  }
  EXPECT_TRUE((x * 2).requires_grad());
  EXPECT_FALSE((x * 2).detach().requires_grad());
  auto guard = no_grad();
  bool other = false;
  std::thread([&] { other = grad_enabled(); }).join();
  EXPECT_TRUE(other);
}

TEST(Hooks, LookAndReplace) {
  Tensor x = leaf({1, 2});
  Tensor y = x * 3;
  Floats seen;
  y.register_hook([&](const Tensor& g) { seen = g.to_vector<float>(); });
  const int64_t doubler = y.register_hook([](const Tensor& g) { return std::optional<Tensor>(g * 2); });
  x.register_hook([](const Tensor& g) { return std::optional<Tensor>(g + 1); });
  y.sum().backward({}, {.retain_graph = true});
  EXPECT_EQ(seen, (Floats{1, 1}));
  EXPECT_EQ(grad_of(x), (Floats{7, 7}));
  y.remove_hook(doubler);
  x.zero_grad();
  y.sum().backward();
  EXPECT_EQ(grad_of(x), (Floats{4, 4}));
  EXPECT_THROW(y.remove_hook(doubler), ValueError);
}

TEST(Hooks, AReplacementMustFit) {
  Tensor x = leaf({1, 2});
  Tensor y = x * 3;
  y.register_hook([](const Tensor&) { return std::optional<Tensor>(zeros({3})); });
  EXPECT_ERRORS(GradError, y.sum().backward(), x.detach().register_hook([](const Tensor&) {}));
}

TEST(Hooks, MustNotWriteIntoTheGradient) {
  Tensor x = leaf({1, 2}), y = x * 3, z = y + y * 1;
  y.register_hook([](const Tensor& g) { Tensor(g).mul_(2); });
  EXPECT_REFUSED(GradError, z.sum().backward(),
                 "must not write into its gradient, which other parts of the graph may share; return a new");
}

TEST(Hooks, AnEmptyFunctionIsRefusedAtTheCall) {
  Tensor x = leaf({1});
  using Replaces = std::function<Tensor(const Tensor&)>;
  using Looks = std::function<void(const Tensor&)>;
  for (const auto& register_empty : std::vector<std::function<void()>>{
           [&] { x.register_hook(Hook()); }, [&] { x.register_hook(Replaces()); },
           [&] { x.register_hook(Looks()); },
           [&] { x.register_hook(static_cast<void (*)(const Tensor&)>(nullptr)); }}) {
    EXPECT_EQ(message_of<ValueError>(register_empty), "register_hook: argument 'hook' is an empty function");
  }
  (x * 2).backward();
  EXPECT_EQ(grad_of(x), (Floats{2}));
}

TEST(Hooks, ANumberIsNeverUsedTwice) {
  Tensor x = leaf({1});
  const int64_t first = x.register_hook([](const Tensor&) {});
  x.remove_hook(first);
  int calls = 0;
  x.register_hook([&](const Tensor&) { ++calls; });
  EXPECT_THROW(x.remove_hook(first), ValueError) << "a stale number removes no other hook";
  (x * 2).backward();
  EXPECT_EQ(calls, 1);
}

TEST(Hooks, UndefinedTensorsAndReplacementsAreNamed) {
  EXPECT_THROW(Tensor().register_hook([](const Tensor&) {}), ValueError);
  Tensor x = leaf({1});
  x.register_hook([](const Tensor&) { return Tensor(); });
  EXPECT_REFUSED(GradError, (x * 2).backward(), "undefined");
}

TEST(SetGrad, RefusesWhatCannotBeAGradient) {
  Tensor x = leaf({1, 2});
  EXPECT_THROW(x.set_grad(x), GradError) << "it would own itself, and never be freed";
  EXPECT_REFUSED(GradError, x.set_grad(leaf({1, 2, 3})), "got (3,)");
  EXPECT_FALSE(x.grad().defined());
}

TEST(Hooks, MayRemoveOthersFromTheNextBackwardOn) {
  Tensor x = leaf({1});
  int runs = 0;
  int64_t second = -1;
  const int64_t first = x.register_hook([&](const Tensor&) -> std::optional<Tensor> {
    if (second >= 0) x.remove_hook(std::exchange(second, -1));
    return {};
  });
  second = x.register_hook([&](const Tensor&) -> std::optional<Tensor> { return ++runs, std::nullopt; });
  for (int i = 0; i < 2; ++i) (x * 2).backward();
  EXPECT_EQ(runs, 1);
  x.remove_hook(first);
}

TEST(Hooks, RetainGrad) {
  Tensor x = leaf({2});
  Tensor y = x * 3;
  y.retain_grad().retain_grad();  // twice is once
  Tensor z = y * y;
  z.sum().backward();
  EXPECT_EQ(grad_of(y), (Floats{12}));
  EXPECT_EQ(grad_of(x), (Floats{36}));
  EXPECT_FALSE(z.grad().defined());
}

TEST(Grad, LeavesAndNonLeavesWithoutTouchingGrad) {
  Tensor a = leaf({2}), b = leaf({3});
  Tensor ab = a * b;
  Tensor loss = (ab * ab).sum();
  const auto g = grad({loss}, {a, ab});
  EXPECT_EQ(g[0].to_vector<float>(), (Floats{36}));
  EXPECT_EQ(g[1].to_vector<float>(), (Floats{12}));
  EXPECT_FALSE(a.grad().defined());
  EXPECT_FALSE(b.grad().defined());
}

TEST(Grad, LeavesRetainedGradientsAlone) {
  Tensor x = leaf({2});
  Tensor y = x * 3;
  y.retain_grad();
  EXPECT_EQ(grad({(y * y).sum()}, {x})[0].to_vector<float>(), (Floats{36}));
  EXPECT_FALSE(y.grad().defined());
}

TEST(Grad, RunsOnlyWhatLeadsToTheInputs) {
  Tensor a = leaf({2}), b = leaf({3});
  Tensor left = a * 2, right = b * 2;
  int left_calls = 0, right_calls = 0;
  left.register_hook([&](const Tensor&) { ++left_calls; });
  right.register_hook([&](const Tensor&) { ++right_calls; });
  grad({(left * right).sum()}, {b});
  EXPECT_EQ(left_calls, 0);
  EXPECT_EQ(right_calls, 1);
}

TEST(Grad, StopsAtTheRequestedTensor) {
  Tensor x = leaf({2});
  Tensor y = x * 3;
  int x_calls = 0;
  x.register_hook([&](const Tensor&) { ++x_calls; });
  EXPECT_EQ(grad({(y * y).sum()}, {y})[0].to_vector<float>(), (Floats{12}));
  EXPECT_EQ(x_calls, 0);
}

TEST(Grad, SeveralOutputsAndWeights) {
  Tensor x = leaf({1, 2});
  const auto g =
      grad({x * 2, x * x}, {x},
           {.grad_outputs = {from_vector<float>({1, 10}, {2}), from_vector<float>({100, 1000}, {2})}});
  EXPECT_EQ(g[0].to_vector<float>(), (Floats{202, 4020}));
}

TEST(Grad, UnusedInputs) {
  Tensor x = leaf({1}), unused = leaf({1});
  EXPECT_THROW(grad({x * 2}, {x, unused}), GradError);
  const auto g = grad({x * 2}, {x, unused}, {.allow_unused = true});
  EXPECT_TRUE(g[0].defined());
  EXPECT_FALSE(g[1].defined());
  EXPECT_THROW(grad({x * 2}, {x.detach()}), GradError);
  EXPECT_THROW(grad({}, {x}), ValueError);
}

TEST(Grad, OutputIsInput) {
  Tensor x = leaf({1});
  EXPECT_EQ(grad({x}, {x})[0].to_vector<float>(), (Floats{1}));
}

TEST(Grad, ResultsShareNoMemory) {
  Tensor a = leaf({1}), b = leaf({1});
  Tensor gy = from_vector<float>({4}, {1});
  const auto g = grad({a + b}, {a, b}, {.grad_outputs = {gy}});
  EXPECT_NE(memory(g[0]), memory(g[1]));
  EXPECT_NE(memory(g[0]), memory(gy));
}

TEST(Grad, HigherOrders) {
  Tensor x = leaf({3});
  Tensor y = (x * x * x * x).sum();
  for (const float expected : {108.f, 108.f, 72.f, 24.f}) {  // 4x^3, 12x^2, 24x, 24 at 3
    y = grad({y}, {x}, {.create_graph = true})[0].sum();
    EXPECT_EQ(y.item(), expected);
  }
}

TEST(Grad, BackwardWithCreateGraphGivesADifferentiableGrad) {
  Tensor x = leaf({3});
  (x * x * x).sum().backward({}, {.create_graph = true});
  Tensor g = x.grad();
  EXPECT_TRUE(g.requires_grad());
  EXPECT_EQ(grad({g.sum()}, {x})[0].to_vector<float>(), (Floats{18}));
}

}  // namespace
}  // namespace vox
