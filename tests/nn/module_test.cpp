#include "tests/support/test.h"

namespace vox {
namespace {

using nn::StateDict;
using Names = std::vector<std::string>;

DEVICE_SUITE(ModuleTest);

/// gain * layer(x), with an unused buffer.
struct Scaled final : nn::Module {
  Tensor gain = register_parameter("gain", ones({1}));
  Tensor none = register_parameter("none", Tensor());
  Tensor count = register_buffer("count", zeros({}, {.dtype = i64}));
  Tensor no_buffer = register_buffer("no_buffer", Tensor());
  nn::Linear layer{{.in_features = 3, .out_features = 2}};
  nn::Sequential norm{nn::ReLU(), nn::Linear({.in_features = 2, .out_features = 1})};
  VOXGRAD_MODULE(layer, norm)
  Tensor forward(const Tensor& x) { return gain * norm(layer(x)); }
};

StateDict copies(const StateDict& state) {
  StateDict result;
  for (const auto& [name, t] : state) result[name] = t.detach().clone();
  return result;
}

TEST(ModuleNamesTest, DottedInOrderOfRegistration) {
  const Scaled net;
  EXPECT_EQ(names_of(net.named_parameters()),
            (Names{"gain", "layer.weight", "layer.bias", "norm.1.weight", "norm.1.bias"}));
  EXPECT_EQ(names_of(net.named_buffers()), (Names{"count"}));
  EXPECT_EQ(net.parameters().size(), 5u);
  EXPECT_EQ(net.state_dict().size(), 6u);
  EXPECT_FALSE(net.none.defined());
  for (const Tensor& p : net.parameters()) EXPECT_TRUE(p.requires_grad() && p.is_leaf());
  EXPECT_FALSE(net.count.requires_grad());
}

TEST(ModuleNamesTest, BadNamesAndTypesAreRefused) {
  struct Open final : nn::Module {
    using Module::register_buffer;
    using Module::register_parameter;
  } m;
  const Tensor a = m.register_parameter("a", ones({1}));
  EXPECT_ERRORS(ValueError, m.register_parameter("a", ones({1})), m.register_buffer("a", ones({1})),
                m.register_parameter("", ones({1})), m.register_parameter("b.c", ones({1})));
  EXPECT_THROW(m.register_parameter("i", ones({1}, {.dtype = i64})), DTypeError);
  EXPECT_EQ(names_of(m.named_parameters()), (Names{"a"}));
}

TEST(ModuleNamesTest, ASharedChildIsListedOnceAndSavedUnderBothNames) {
  const auto layer = std::make_shared<nn::Linear>(nn::Linear::Options{.in_features = 2, .out_features = 2});
  nn::Sequential net;
  net.push_back(layer);
  net.push_back(nn::ReLU());
  net.push_back(layer);
  EXPECT_EQ(names_of(net.named_parameters()), (Names{"0.weight", "0.bias"}));
  EXPECT_EQ(net.state_dict().size(), 4u);
  EXPECT_EQ(net.state_dict().at("0.weight").impl(), net.state_dict().at("2.weight").impl());
}

struct Loop final : nn::Module {
  std::shared_ptr<Loop> next;
  VOXGRAD_MODULE(next)
};

TEST(ModuleNamesTest, AModuleCannotContainItself) {
  const auto outer = std::make_shared<nn::Sequential>(), inner = std::make_shared<nn::Sequential>();
  EXPECT_THROW(outer->push_back(outer), ValueError);
  outer->push_back(inner);
  EXPECT_THROW(inner->push_back(outer), ValueError);
  EXPECT_EQ(inner->size(), 0u);

  const auto loop = std::make_shared<Loop>();
  loop->next = loop;
  EXPECT_ERRORS(ValueError, loop->parameters(), loop->train());
  loop->next = nullptr;
}

struct Expanded final : nn::Module {
  explicit Expanded(bool as_buffer) {
    const Tensor t = ones({1}).expand({3});
    as_buffer ? register_buffer("t", t) : register_parameter("t", t);
  }
};

TEST(ModuleLoadTest, ExpandedTensorsAreRefusedBeforeALoadCouldFailHalfway) {
  EXPECT_ERRORS(ValueError, Expanded(true), Expanded(false));
}

TEST(ModuleModeTest, TrainAndEvalReachAllChildren) {
  Scaled net;
  EXPECT_TRUE(net.is_training() && net.norm.is_training() && net.norm[0].is_training());
  net.eval();
  EXPECT_FALSE(net.is_training() || net.norm.is_training() || net.norm[1].is_training());
  net.train();
  EXPECT_TRUE(net.is_training() && net.layer.is_training());
}

TEST(ModuleLoadTest, StrictListsWhatIsMissingAndUnexpectedAndWritesNothing) {
  Scaled net;
  const StateDict before = copies(net.state_dict());
  StateDict other = copies(before);
  for (auto& [name, t] : other) t = t + (t.dtype() == i64 ? Scalar(1) : Scalar(0.5));
  other.erase("layer.bias");
  other["extra"] = ones({1});
  EXPECT_REFUSED(ValueError, net.load_state_dict(other), "missing: layer.bias");
  EXPECT_REFUSED(ValueError, net.load_state_dict(other), "unexpected: extra");
  for (const auto& [name, t] : before) EXPECT_TRUE(same_bits(t, net.state_dict().at(name))) << name;

  const auto result = net.load_state_dict(other, false);
  EXPECT_EQ(result.missing, (Names{"layer.bias"}));
  EXPECT_EQ(result.unexpected, (Names{"extra"}));
  EXPECT_TRUE(same_bits(net.layer.weight, other.at("layer.weight")));
  EXPECT_TRUE(same_bits(net.layer.bias, before.at("layer.bias")));
  EXPECT_EQ(net.count.item<int64_t>(), 1);
}

TEST(ModuleLoadTest, WrongShapesAreRefusedEvenIfNotStrictAndWriteNothing) {
  Scaled net;
  const StateDict before = copies(net.state_dict());
  const auto refuses = [&]<class E>(const char* name, const Tensor& bad, E) {
    StateDict state = copies(before);
    state["gain"] = full({1}, 9);  // sorts before the bad one
    state[name] = bad;
    for (bool strict : {true, false}) {
      EXPECT_THROW(net.load_state_dict(state, strict), E) << name;
      EXPECT_EQ(net.gain.item(), 1.f) << name;
    }
  };
  refuses("layer.weight", ones({3, 2}), ShapeError(""));
  refuses("layer.weight", Tensor(), ValueError(""));
  refuses("norm.1.bias", ones({}), ShapeError(""));
}

TEST_P(ModuleTest, LoadCastsDTypes) {
  Scaled net;
  net.to(device()).to(bf16);
  net.load_state_dict({{"gain", from_vector<float>({1 + 0x1p-20f}, {1})},
                       {"count", full({}, 7.9, {.dtype = f64})},
                       {"layer.weight", ones({2, 3}, {.dtype = f16})}},
                      false);
  EXPECT_EQ(net.gain.dtype(), bf16);
  EXPECT_EQ(net.gain.to(f32).item(), 1.f);
  EXPECT_EQ(net.count.item<int64_t>(), 7);
  EXPECT_TRUE(same_bits(net.layer.weight, ones({2, 3}, {.dtype = bf16, .device = device()})));
}

TEST_P(ModuleTest, ACastDropsGradients) {
  Scaled net;
  net.to(device());
  const Tensor weight = net.layer.weight;
  for (const DType dtype : {f64, f32}) {
    net.to(dtype);
    EXPECT_FALSE(weight.grad().defined());
    EXPECT_EQ(net.count.dtype(), i64);
    net(normal({4, 3}, on(dtype))).sum().backward();
    EXPECT_EQ(weight.grad().dtype(), dtype);
  }
  net.zero_grad();
  EXPECT_FALSE(weight.grad().defined());
  EXPECT_THROW(net.to(i64), DTypeError);
  EXPECT_EQ(weight.dtype(), f32);
}

TEST_P(ModuleTest, AGraphFromBeforeACastIsRefusedAndOneFromAfterItWorks) {
  Scaled net;
  net.to(device());
  const Tensor weight = net.layer.weight,
               before = (weight + 1).sum();  // saves nothing, so only the leaf knows
  net.to(f64);
  EXPECT_THROW(before.backward(), GradError);
  EXPECT_FALSE(weight.grad().defined());
  (weight + 1).sum().backward();  // while the old graph lives
  EXPECT_EQ(weight.grad().dtype(), f64);
}

TEST(ModuleSequentialTest, TheEmptyOneIsTheIdentity) {
  nn::Sequential net;
  const Tensor x = ones({2});
  EXPECT_EQ(net(x).impl(), x.impl());
  EXPECT_TRUE(net.state_dict().empty());
}

}  // namespace
}  // namespace vox
