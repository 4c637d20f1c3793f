#include "tests/support/test.h"

// What a call of a module notices: children that no list names, where an error was thrown, what hooks cannot
// see.

namespace vox {
namespace {

nn::Linear linear(int64_t in, int64_t out) { return nn::Linear({.in_features = in, .out_features = out}); }
const Tensor pair = from_vector<float>({1, 2}, {1, 2});

// ---- Children that no list names -------------------------------------------------------------------------

/// Calls `f` with every kind of member in memory of its own.
template <class F>
void for_each_holder(const F& f) {
  struct InVector {
    std::vector<nn::Linear> held;
    InVector() { held.push_back(linear(2, 2)); }
    nn::Linear& get() { return held[0]; }
  };
  struct InMap {
    std::map<std::string, nn::Linear> held;
    InMap() { held.emplace("a", linear(2, 2)); }
    nn::Linear& get() { return held.at("a"); }
  };
  struct InPointer {
    std::unique_ptr<nn::Linear> held = std::make_unique<nn::Linear>(linear(2, 2));
    nn::Linear& get() { return *held; }
  };
  struct InSequential {  // whose layers have memory of their own
    std::vector<nn::Sequential> held;
    InSequential() { held.push_back(nn::Sequential{linear(2, 2)}); }
    nn::Sequential& get() { return held[0]; }
  };
  f.template operator()<InVector>();
  f.template operator()<InMap>();
  f.template operator()<InPointer>();
  f.template operator()<InSequential>();
}

template <class Holder>
struct Forgets : nn::Module {
  Holder holder;
  nn::Linear listed = linear(2, 2);
  VOXGRAD_MODULE(listed)
  Tensor forward(const Tensor& x) { return holder.get()(listed(x)); }
};

TEST(ModuleCallsTest, AChildThatNoListNamesThrowsWhenItsParentIsKnown) {
  for_each_holder([]<class Holder>() {
    Forgets<Holder> net;
    EXPECT_NO_THROW(net(pair));  // nobody has asked for parameters
    optim::SGD sgd(net.parameters(), {.lr = 0.1});
    const std::string message = message_of<ValueError>([&] { net(pair); });
    EXPECT_TRUE(
        has_parts(message, {"Linear(2, 2) is called, but no VOXGRAD_MODULE or list_children() names it"}));
    net.holder.get().eval();  // on purpose
    EXPECT_NO_THROW(net(pair));
  });
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

// ---- Errors name the path --------------------------------------------------------------------------------

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

// ---- Hooks on modules that return structs ----------------------------------------------------------------

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

// ---- Sequential with names and taps ----------------------------------------------------------------------

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
  EXPECT_THROW(net.push_back("conv", nn::ReLU()), ValueError);
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

}  // namespace
}  // namespace vox
