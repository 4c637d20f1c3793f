#include <voxgrad/autograd/grad_mode.h>
#include <voxgrad/core/factories.h>
#include <voxgrad/nn/layers.h>
#include <voxgrad/nn/linear.h>
#include <voxgrad/nn/module.h>
#include <voxgrad/nn/norm.h>
#include <voxgrad/nn/sequential.h>
#include <voxgrad/ops/elementwise.h>

#include "tests/support/devices.h"
#include "tests/support/errors.h"
#include "tests/support/values.h"

namespace vox {
namespace {

using nn::StateDict;

class ModuleTest : public testing::DeviceTest {};
INSTANTIATE_TEST_SUITE_P(, ModuleTest, testing::devices(), testing::device_name);

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

std::vector<std::string> names(const std::vector<nn::Module::Named>& all) {
  std::vector<std::string> result;
  for (const auto& [name, t] : all) result.push_back(name);
  return result;
}

StateDict copies(const StateDict& state) {
  StateDict result;
  for (const auto& [name, t] : state) result[name] = t.detach().clone();
  return result;
}

TEST(ModuleNamesTest, DottedInOrderOfRegistration) {
  const Scaled net;
  EXPECT_EQ(names(net.named_parameters()),
            (std::vector<std::string>{"gain", "layer.weight", "layer.bias", "norm.1.weight", "norm.1.bias"}));
  EXPECT_EQ(names(net.named_buffers()), (std::vector<std::string>{"count"}));
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
  m.register_parameter("a", ones({1}));
  EXPECT_THROW(m.register_parameter("a", ones({1})), ValueError);
  EXPECT_THROW(m.register_buffer("a", ones({1})), ValueError);
  EXPECT_THROW(m.register_parameter("", ones({1})), ValueError);
  EXPECT_THROW(m.register_parameter("b.c", ones({1})), ValueError);
  EXPECT_THROW(m.register_parameter("i", ones({1}, {.dtype = i64})), DTypeError);
  EXPECT_EQ(names(m.named_parameters()), (std::vector<std::string>{"a"}));
}

TEST(ModuleNamesTest, ASharedChildIsListedOnceAndSavedUnderBothNames) {
  const auto layer = std::make_shared<nn::Linear>(nn::Linear::Options{.in_features = 2, .out_features = 2});
  nn::Sequential net;
  net.push_back(layer);
  net.push_back(nn::ReLU());
  net.push_back(layer);
  EXPECT_EQ(names(net.named_parameters()), (std::vector<std::string>{"0.weight", "0.bias"}));
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
  EXPECT_THROW(loop->parameters(), ValueError);
  EXPECT_THROW(loop->train(), ValueError);
  loop->next = nullptr;
}

struct Expanded final : nn::Module {
  explicit Expanded(bool as_buffer) {
    const Tensor t = ones({1}).expand({3});
    as_buffer ? register_buffer("t", t) : register_parameter("t", t);
  }
};

TEST(ModuleLoadTest, ExpandedTensorsAreRefusedBeforeALoadCouldFailHalfway) {
  EXPECT_THROW(Expanded(true), ValueError);
  EXPECT_THROW(Expanded(false), ValueError);
}

TEST(ModuleModeTest, TrainAndEvalReachAllChildren) {
  Scaled net;
  EXPECT_TRUE(net.is_training() && net.norm.is_training() && net.norm[0].is_training());
  net.eval();
  EXPECT_FALSE(net.is_training() || net.norm.is_training() || net.norm[1].is_training());
  net.train();
  EXPECT_TRUE(net.is_training() && net.layer.is_training());
}

TEST(ModuleMoveTest, AMovedModuleKeepsItsParameters) {
  Scaled net;
  const Tensor gain = net.gain;
  Scaled moved = std::move(net);
  EXPECT_EQ(moved.gain.impl(), gain.impl());
  EXPECT_EQ(moved.named_parameters()[0].second.impl(), gain.impl());
  EXPECT_EQ(moved.parameters().size(), 5u);
  static_assert(!std::is_copy_constructible_v<nn::Linear> && !std::is_copy_constructible_v<nn::Sequential>);
}

TEST_P(ModuleTest, StateDictHoldsHandlesAndLoadCopiesElements) {
  manual_seed(1);
  Scaled from, to;
  from.to(device());
  to.to(device());
  ASSERT_FALSE(testing::same_bits(from.layer.weight, to.layer.weight));
  const auto result = to.load_state_dict(from.state_dict());
  EXPECT_TRUE(result.missing.empty() && result.unexpected.empty());
  for (const auto& [name, t] : from.state_dict()) {
    EXPECT_TRUE(testing::same_bits(t, to.state_dict().at(name))) << name;
    EXPECT_NE(t.impl()->storage, to.state_dict().at(name).impl()->storage) << name;
  }
  {
    const auto guard = no_grad();
    to.state_dict().at("gain").fill_(3);
  }
  EXPECT_EQ(to.gain.item(), 3.f);
  EXPECT_EQ(from.gain.item(), 1.f);
}

TEST_P(ModuleTest, LoadsFromTheOtherDevice) {
  Scaled from, to;
  to.to(device());
  to.load_state_dict(from.state_dict());
  EXPECT_EQ(to.layer.weight.device(), device());
  EXPECT_TRUE(testing::same_bits(from.layer.weight, to.layer.weight));
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
  for (const auto& [name, t] : before) EXPECT_TRUE(testing::same_bits(t, net.state_dict().at(name))) << name;

  const auto result = net.load_state_dict(other, false);
  EXPECT_EQ(result.missing, (std::vector<std::string>{"layer.bias"}));
  EXPECT_EQ(result.unexpected, (std::vector<std::string>{"extra"}));
  EXPECT_TRUE(testing::same_bits(net.layer.weight, other.at("layer.weight")));
  EXPECT_TRUE(testing::same_bits(net.layer.bias, before.at("layer.bias")));
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
  EXPECT_TRUE(testing::same_bits(net.layer.weight, ones({2, 3}, {.dtype = bf16, .device = device()})));
}

TEST_P(ModuleTest, ToDTypeCastsParametersInPlaceOfTheirHandles) {
  Scaled net;
  net.to(device());
  const Tensor weight = net.layer.weight;
  const std::vector<float> values = weight.to_vector<float>();
  net(testing::normal({4, 3}, {.device = device()})).sum().backward();
  EXPECT_TRUE(weight.grad().defined());

  net.to(f64);
  EXPECT_EQ(weight.dtype(), f64);
  EXPECT_EQ(weight.device(), device());
  EXPECT_TRUE(weight.requires_grad() && weight.is_leaf());
  EXPECT_FALSE(weight.grad().defined());
  EXPECT_EQ(weight.to_vector<double>(), std::vector<double>(values.begin(), values.end()));
  EXPECT_EQ(net.count.dtype(), i64);
  EXPECT_EQ(net.gain.impl(), net.state_dict().at("gain").impl());

  net(testing::normal({4, 3}, {.dtype = f64, .device = device()})).sum().backward();
  EXPECT_EQ(weight.grad().dtype(), f64);
  net.zero_grad();
  EXPECT_FALSE(weight.grad().defined());
  EXPECT_THROW(net.to(i64), DTypeError);
  EXPECT_EQ(weight.dtype(), f64);
}

TEST_P(ModuleTest, ToDeviceMovesParametersAndBuffers) {
  Scaled net;
  const std::vector<float> values = net.layer.weight.to_vector<float>();
  for (Device there : {device(), Device::cpu()}) {
    net.to(there);
    for (const auto& [name, t] : net.state_dict()) EXPECT_EQ(t.device(), there) << name;
    EXPECT_EQ(net.layer.weight.device(), there);
    EXPECT_EQ(net.layer.weight.to_vector<float>(), values);
    EXPECT_EQ(net(ones({2, 3}, {.device = there})).device(), there);
  }
}

TEST_P(ModuleTest, SequentialAppliesItsLayersInOrder) {
  nn::Sequential net(nn::Linear({.in_features = 2, .out_features = 2, .bias = false}), nn::ReLU(),
                     nn::LeakyReLU(0.1));
  net.push_back(std::make_shared<nn::Linear>(nn::Linear::Options{.in_features = 2, .out_features = 1}));
  EXPECT_EQ(net.size(), 4u);
  net.load_state_dict({{"0.weight", from_vector<float>({1, 2, 3, -4}, {2, 2})},
                       {"3.weight", from_vector<float>({10, 100}, {1, 2})},
                       {"3.bias", from_vector<float>({1}, {1})}});
  net.to(device());
  // (1,1) -> (3,-1) -> (3,0) -> (3,0) -> 31; (0,-1) -> (-2,4) -> (0,4) -> 401
  EXPECT_EQ(net(from_vector<float>({1, 1, 0, -1}, {2, 2}, device())).to_vector<float>(),
            (std::vector<float>{31, 401}));
  EXPECT_THROW(net[4], ValueError);
  EXPECT_EQ(&net[0], &net[0]);
}

TEST(ModuleSequentialTest, TheEmptyOneIsTheIdentity) {
  nn::Sequential net;
  const Tensor x = ones({2});
  EXPECT_EQ(net(x).impl(), x.impl());
  EXPECT_TRUE(net.state_dict().empty());
}

}  // namespace
}  // namespace vox
