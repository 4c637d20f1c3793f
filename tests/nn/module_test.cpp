#include "tests/nn/layers.h"

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
  nn::Linear layer = linear(3, 2);
  nn::Sequential norm{nn::ReLU(), linear(2, 1)};
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
                m.register_parameter("", ones({1})), m.register_parameter("b.c", ones({1})),
                // A load could fail at them halfway.
                m.register_parameter("t", ones({1}).expand({3})),
                m.register_buffer("t", ones({1}).expand({3})));
  EXPECT_THROW(m.register_parameter("i", ones({1}, {.dtype = i64})), DTypeError);
  EXPECT_EQ(names_of(m.named_parameters()), (Names{"a"}));
}

TEST(ModuleNamesTest, ASharedChildIsListedOnceAndSavedUnderBothNames) {
  const auto layer = std::make_shared<nn::Linear>(linear(2, 2));
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
  const auto loop = std::make_shared<Loop>();
  loop->next = loop;
  EXPECT_ERRORS(ValueError, loop->parameters(), loop->train());
  loop->next = nullptr;
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
  EXPECT_TRUE(same_bits(net.layer.weight, ones({2, 3}, on(bf16))));
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

TEST(ModuleCastTest, AParameterMayBeAPartOfATensor) {
  struct : nn::Module {
    Tensor w = register_parameter("w", arange(6).to(f32).slice(0, 2, 5));
  } net;
  net.to(f64);
  EXPECT_EQ(net.w.detach().to_vector<double>(), (Doubles{2, 3, 4}));
}

TEST(ModuleSequentialTest, TheEmptyOneIsTheIdentity) {
  nn::Sequential net;
  const Tensor x = ones({2});
  EXPECT_EQ(net(x).impl(), x.impl());
  EXPECT_TRUE(net.state_dict().empty());
}

// What a call of a module notices: children that no list names, where an error was thrown, what hooks cannot
// see.

const Tensor pair = from_vector<float>({1, 2}, {1, 2});

/// Holds a layer in memory of its own, which the list does not name.
template <class Held>
struct Forgets : nn::Module {
  explicit Forgets(Held h) : held(std::move(h)) {}
  Held held;
  nn::Linear listed = linear(2, 2);
  VOXGRAD_MODULE(listed)
  Tensor forward(const Tensor& x) { return layer()(listed(x)); }
  auto& layer() {
    if constexpr (requires { held->weight; })
      return *held;
    else if constexpr (requires { held.begin()->second; })
      return held.begin()->second;
    else
      return held[0];
  }
};

template <class Held>
void expect_noticed(Held held) {
  Forgets<Held> net(std::move(held));
  EXPECT_NO_THROW(net(pair));  // nobody has asked for parameters
  optim::SGD sgd(net.parameters(), {.lr = 0.1});
  EXPECT_REFUSED(ValueError, net(pair),
                 "Linear(2, 2) is called, but no VOXGRAD_MODULE or list_children() names it");
  net.layer().eval();  // on purpose
  EXPECT_NO_THROW(net(pair));
}

TEST(ModuleCallsTest, AChildThatNoListNamesThrowsWhenItsParentIsKnown) {
  expect_noticed(nn::ModuleList<nn::Linear>{linear(2, 2)});
  expect_noticed(std::make_unique<nn::Linear>(linear(2, 2)));
  expect_noticed(nn::ModuleList<nn::Sequential>{nn::Sequential{linear(2, 2)}});  // its layers have their own
  std::map<std::string, nn::Linear> map;
  map.emplace("a", linear(2, 2));
  expect_noticed(std::move(map));
}

TEST(ModuleCallsTest, AListByHandThatForgets) {
  struct ByHand : nn::Module {
    nn::Linear a = linear(2, 2), b = linear(2, 2);
    void list_children(nn::Children& children) override { children.add("a", a); }
    Tensor operator()(const Tensor& x) { return nn::call_with_hooks(*this, x); }
    Tensor forward(const Tensor& x) { return b(a(x)); }
  } net;
  net.eval();
  EXPECT_THROW(net(pair), ValueError);
}

TEST(ModuleCallsTest, AFunctionInASequentialThatCallsAForgottenModule) {
  nn::Linear hidden = linear(2, 2);
  nn::Sequential net{linear(2, 2), [&](const Tensor& x) { return hidden(x); }};
  net.state_dict();
  EXPECT_THROW(net(pair), ValueError);
}

struct Growing : nn::Module {
  nn::Sequential body{linear(2, 2)};
  VOXGRAD_MODULE(body)
  Tensor forward(const Tensor& x) { return nn::ReLU()(body(x)); }  // a layer made on the spot
};

TEST(ModuleCallsTest, LayersThatWereAddedOrMovedOrHaveNoTensorsAreNoError) {
  Growing net;
  net.parameters();
  net.body.push_back(linear(2, 2));
  EXPECT_NO_THROW(net(pair));
  Growing moved = std::move(net);
  EXPECT_NO_THROW(moved(pair));
  moved.eval();
  EXPECT_NO_THROW(moved(pair));
  EXPECT_NO_THROW(nn::summary(moved, pair));
}

struct Block : nn::Module {
  nn::Conv3d conv{{.in_channels = 2, .out_channels = 2, .kernel_size = 3}};
  nn::Sequential adn{nn::InstanceNorm3d({.num_features = 2}), nn::ReLU()};
  VOXGRAD_MODULE(conv, adn)
  Tensor forward(const Tensor& x) { return adn(conv(x)); }
};
struct Unet : nn::Module {
  nn::ModuleList<Block> encoder{Block(), Block(), Block()};
  nn::Sequential head{
      nn::Sequential{nn::Identity(), nn::Conv3d({.in_channels = 2, .out_channels = 1, .kernel_size = 1})}};
  VOXGRAD_MODULE(encoder, head)
  Tensor forward(const Tensor& x) {
    Tensor y = x;
    for (Block& block : encoder) y = checkpoint([&](const Tensor& t) { return block(t); }, y);
    return cat({head(y), x}, 1);
  }
};
struct Pair : nn::Module {
  Unet unet;
  VOXGRAD_MODULE(unet)
  Tensor forward(const Tensor& x) { return unet(x); }
};

TEST(ModuleCallsTest, ErrorsNameThePathToTheLayer) {
  const auto with = [](int64_t size, bool grad) {
    return zeros({1, 2, size, size, size}).set_requires_grad(grad);
  };
  for (const bool grad : {false, true}) {
    Pair net;
    EXPECT_MESSAGE_BEGINS(ShapeError, net(with(6, grad)), "in unet.encoder.2.conv (Conv3d): conv3d: ");
    // An instance norm of one cell, joined with its ReLU.
    EXPECT_MESSAGE_BEGINS(ShapeError, net(with(7, grad)), "in unet.encoder.2.adn.0 (InstanceNorm3d): ");
    EXPECT_MESSAGE_BEGINS(ShapeError, net(with(9, grad)), "in unet (Unet): cat: ");
    EXPECT_MESSAGE_BEGINS(ShapeError, net.unet(with(9, grad)), "in Unet: cat: ");
    EXPECT_MESSAGE_BEGINS(ShapeError, net.unet.head(ones({1, 3, 1, 1, 1})), "in 1 (Conv3d): nn::Conv3d: ");
    EXPECT_MESSAGE_BEGINS(ShapeError, net.unet.encoder[0].conv(ones({1})), "nn::Conv3d: ");
  }
}

TEST(ModuleCallsTest, ErrorsOfHooksAndOfClassesOfTheUser) {
  struct OwnError : ValueError {
    using ValueError::ValueError;
  };
  Pair net;
  net.unet.encoder[1].conv.register_forward_hook(
      [](nn::Module&, auto, auto) { throw ValueError("the hook"); });
  EXPECT_MESSAGE(ValueError, net(zeros({1, 2, 9, 9, 9})), "in unet.encoder.1.conv (Conv3d): the hook");
  net.unet.encoder[0].conv.register_forward_hook([](nn::Module&, auto, auto) { throw OwnError("own"); });
  EXPECT_MESSAGE(OwnError, net(zeros({1, 2, 9, 9, 9})), "own");  // its class is kept
  net.unet.encoder[0].conv.register_forward_hook([](nn::Module&, auto, auto) {});
}

struct Tries : nn::Module {
  nn::Linear layer = linear(2, 2);
  VOXGRAD_MODULE(layer)
  Tensor forward(const Tensor& x) {
    try {
      layer(ones({3}));
    } catch (const ShapeError&) {
    }
    return x.reshape({5});
  }
};

TEST(ModuleCallsTest, AnErrorThatForwardHandlesIsNotNamedInTheNext) {
  Tries net;
  EXPECT_MESSAGE_BEGINS(ShapeError, net(pair), "in Tries: reshape: ");
}

struct Opaque {
  Tensor mean, variance;
};
struct Shown : Opaque {
  auto tensors() { return std::tie(mean, variance); }
};
template <class Result>
struct Encoder : nn::Module {
  VOXGRAD_MODULE()
  Result forward(const Tensor& x) {
    Result result;
    result.mean = x, result.variance = x * 2;
    return result;
  }
};

TEST(ModuleCallsTest, AHookSeesTheTensorsOfAStructOrItsCallIsAnError) {
  Encoder<Shown> shown;
  size_t seen = 0;
  shown.register_forward_hook([&](nn::Module&, auto, std::span<Tensor> out) {
    seen = out.size();
    out[1] = out[1] + 1;
  });
  EXPECT_EQ(shown(pair).variance.to_vector<float>(), (Floats{3, 5}));
  EXPECT_EQ(seen, 2u);

  Encoder<Opaque> opaque;
  EXPECT_NO_THROW(opaque(pair));
  opaque.register_forward_hook([](nn::Module&, auto, auto) {});
  const std::string message = message_of<ValueError>([&] { opaque(pair); });
  EXPECT_TRUE(
      has_parts(message, {"a forward hook cannot see the tensors of the Opaque that forward() returned"}));
}

TEST(ModuleCallsTest, SequentialWithNamesIsTappedWithoutLosingItsJoinedNorm) {
  const auto shared = std::make_shared<nn::Linear>(linear(2, 2));
  nn::Sequential net{{"conv", nn::Conv3d({.in_channels = 2, .out_channels = 2, .kernel_size = 1})},
                     {"adn", nn::Sequential{nn::InstanceNorm3d({.num_features = 2}), nn::ReLU()}},
                     {"last", [](const Tensor& x) { return x.flatten(1).slice(1, 0, 2); }},
                     {"out", shared}};
  net.push_back("twice", [](const Tensor& x) { return x * 2; });
  net.push_back(nn::Identity());
  std::vector<std::string> names = names_of(net.named_modules());
  EXPECT_EQ(names,
            (std::vector<std::string>{"", "conv", "adn", "adn.0", "adn.1", "last", "out", "twice", "5"}));
  EXPECT_EQ(net.size(), 6u);

  const Tensor x = normal({1, 2, 2, 2, 2}, {});
  names.clear();
  Tensor last;
  const Tensor y = net(x, [&](const std::string& name, const Tensor& output) {
    names.push_back(name);
    last = output;
  });
  EXPECT_EQ(names, (std::vector<std::string>{"conv", "adn", "last", "out", "twice", "5"}));
  EXPECT_TRUE(same_bits(y, last));
  EXPECT_TRUE(same_bits(y, net(x)));

  nn::Sequential joined{nn::BatchNorm1d({.num_features = 2}), nn::ReLU()};
  names.clear();
  joined(normal({4, 2}, {}), [&](const std::string& name, const Tensor&) { names.push_back(name); });
  EXPECT_EQ(names, std::vector<std::string>{"1"});  // one pass, so the norm alone has no output
}

struct Net : nn::Module {
  nn::Conv3d conv{{.in_channels = 2, .out_channels = 4, .kernel_size = 3, .stride = 2, .padding = 1}};
  nn::BatchNorm3d norm{{.num_features = 4}};
  nn::Sequential tail{nn::ConvTranspose3d({.in_channels = 4, .out_channels = 1, .kernel_size = 2}),
                      nn::Dropout(), nn::Flatten(), linear(27, 5)};
  nn::ReLU unused;
  Tensor gain = register_parameter("gain", ones({5}));
  VOXGRAD_MODULE(conv, norm, tail, unused)
  Tensor forward(const Tensor& x, const Tensor& y) { return gain * tail(norm(conv(x)) + norm(conv(y))); }
};

TEST(SummaryTest, NumbersByHand) {
  Net net;
  net.norm.eval();
  const Tensor x = ones({3, 2, 4, 4, 4});  // conv -> (3,4,2,2,2), transposed -> (3,1,3,3,3)
  const nn::Summary s = nn::summary(net, x, x);
  Ints calls;
  for (const nn::Summary::Row& row : s.rows) calls.push_back(row.calls);
  EXPECT_EQ(calls, (Ints{1, 2, 2, 1, 1, 1, 1, 0}));
  // Of conv: 4 * 2 * 27 + 4 parameters, 2 * 96 * 4 bytes and 2 * 96 * 54 multiplications; of tail.0: 96 * 8.
  EXPECT_EQ(str(s),
            "name    layer            output       parameters  bytes  multiply-adds\n"
            "        Net              (3,5)                 5      0              0\n"
            "conv    Conv3d           (3,4,2,2,2)         220    768         10,368\n"
            "norm    BatchNorm3d      (3,4,2,2,2)           8    768              0\n"
            "tail.0  ConvTranspose3d  (3,1,3,3,3)          33    324            768\n"
            "tail.1  Dropout          (3,1,3,3,3)           0      0              0\n"
            "tail.2  Flatten          (3,27)                0      0              0\n"
            "tail.3  Linear           (3,5)               140     60            405\n"
            "unused  ReLU             not called            0      0              0\n"
            "total                                        406  1,920         11,541");
  // The network is as it was.
  EXPECT_TRUE(net.is_training() && net.tail[1].is_training());
  EXPECT_FALSE(net.norm.is_training());
  EXPECT_EQ(net.norm.num_batches_tracked.item<int64_t>(), 0);
  EXPECT_FALSE(net.has_forward_hooks() || net.conv.has_forward_hooks());
  // The same after an error: Failures.ASummaryLeavesTheNetworkAsItWas.
}

}  // namespace
}  // namespace vox
