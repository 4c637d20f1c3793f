#include "tests/nn/layers.h"

// Modules as a user writes them: members, VOXGRAD_MODULE and forward.

namespace vox {
namespace {

using Names = std::vector<std::string>;
struct UNetBlock : nn::Module {
  nn::Conv3d a{{.in_channels = 8, .out_channels = 4, .kernel_size = 3, .padding = 1}};
  nn::BatchNorm3d n{{.num_features = 4}};
  VOXGRAD_MODULE(a, n)
  Tensor forward(const Tensor& x, const Tensor& skip) { return relu(n(a(cat({x, skip}, 1)))); }
};

TEST(OwnModulesTest, SeveralInputsAndPyTorchsNames) {
  UNetBlock block;
  const Tensor x = normal({2, 3, 4, 4, 4}, {}), skip = normal({2, 5, 4, 4, 4}, {});
  const Tensor y = block(x, skip);
  EXPECT_EQ(y.shape(), Shape({2, 4, 4, 4, 4}));
  EXPECT_EQ(block.parameters().size(), 4u);
  EXPECT_EQ(names_of(block.state_dict()), (Names{"a.bias", "a.weight", "n.bias", "n.num_batches_tracked",
                                                 "n.running_mean", "n.running_var", "n.weight"}));
  EXPECT_EQ(block.state_dict().at("a.weight").impl(), block.a.weight.impl());
  EXPECT_EQ(block.n.num_batches_tracked.item<int64_t>(), 1);
}

TEST(OwnModulesTest, AMovedModuleTrains) {
  UNetBlock block;
  const Tensor x = normal({2, 4, 4, 4, 4}, {});
  const Tensor weight = block.a.weight;
  optim::SGD sgd(block.parameters(), {.lr = 0.1});
  auto moved = std::make_unique<UNetBlock>(std::move(block));
  block = UNetBlock();  // its old place holds another one
  moved->to(f64).eval();
  EXPECT_EQ(weight.dtype(), f64);
  EXPECT_FALSE(moved->a.is_training());
  EXPECT_TRUE(block.a.is_training());
  EXPECT_EQ(moved->state_dict().at("a.weight").impl(), weight.impl());
  EXPECT_NE(block.state_dict().at("a.weight").impl(), weight.impl());

  moved->train();
  const Tensor before = weight.detach().clone();
  (*moved)(x.to(f64), x.to(f64)).sum().backward();
  sgd.step();
  EXPECT_FALSE(same_bits(moved->a.weight, before));
  block = std::move(*moved);
  EXPECT_EQ(block.named_parameters()[0].second.impl(), weight.impl());
  static_assert(!std::is_copy_constructible_v<UNetBlock> && !std::is_copy_constructible_v<nn::Residual>);
  static_assert(!std::is_copy_constructible_v<nn::Linear> && !std::is_copy_constructible_v<nn::Sequential>);
}

struct Lists : nn::Module {
  std::vector<nn::Linear> down;
  nn::ModuleList<UNetBlock> blocks{UNetBlock(), UNetBlock()};
  std::optional<nn::Linear> shortcut, none;
  std::unique_ptr<nn::Module> any = std::make_unique<nn::Linear>(linear(1, 1));
  std::shared_ptr<nn::Linear> absent;
  std::vector<std::vector<nn::Linear>> nested;
  VOXGRAD_MODULE(down, blocks, shortcut, none, any, absent, nested, private_)

  Lists() {
    for (int64_t i = 0; i < 2; ++i) down.push_back(linear(i + 1, i + 2));
    shortcut = linear(1, 3, false);
    nested.resize(2);
    nested[1].emplace_back(linear(1, 1, false));
  }
  Tensor forward(Tensor x) {
    const Tensor start = x;
    for (auto& layer : down) x = layer(x);
    return x + (*shortcut)(start);
  }

 private:
  nn::Linear private_ = linear(1, 1, false);
};

TEST(OwnModulesTest, ListsAndOptionalMembers) {
  Lists net;
  EXPECT_EQ(names_of(net.named_parameters()),
            (Names{"down.0.weight", "down.0.bias", "down.1.weight", "down.1.bias", "blocks.0.a.weight",
                   "blocks.0.a.bias", "blocks.0.n.weight", "blocks.0.n.bias", "blocks.1.a.weight",
                   "blocks.1.a.bias", "blocks.1.n.weight", "blocks.1.n.bias", "shortcut.weight", "any.weight",
                   "any.bias", "nested.1.0.weight", "private.weight"}));
  EXPECT_EQ(net(ones({5, 1})).shape(), Shape({5, 3}));
  net.eval();
  EXPECT_FALSE(net.blocks[1].n.is_training());
  EXPECT_FALSE(net.down[0].is_training());
}

struct Named {};  // a user's class with the name of a member of Sequential
struct Numbered : nn::Module {
  nn::NumberedList<nn::Linear> enc{linear(1, 2), linear(2, 1, false)};
  VOXGRAD_MODULE(enc)
  Tensor forward(const Tensor& x, Named) { return add(enc[1](enc[0](x)), x); }  // an op, not a member
};

TEST(OwnModulesTest, NumbersWithoutADot) {
  Numbered net;
  EXPECT_EQ(names_of(net.state_dict()), (Names{"enc0.bias", "enc0.weight", "enc1.weight"}));
  EXPECT_EQ(net(ones({3, 1}), Named()).shape(), Shape({3, 1}));
}

TEST(OwnModulesTest, ANetOwnsAModuleOfAnyClass) {
  const auto build = [](bool deep) -> nn::Net {
    if (deep) return nn::Sequential{linear(2, 3), nn::ReLU()};
    return linear(2, 3);
  };
  nn::Net deep = build(true), flat = build(false);
  EXPECT_EQ(names_of(deep->state_dict()), (Names{"0.bias", "0.weight"}));
  EXPECT_EQ(names_of(flat->state_dict()), (Names{"bias", "weight"}));
  flat->load_state_dict({{"weight", deep->state_dict().at("0.weight")}, {"bias", zeros({3})}});
  deep->load_state_dict({{"0.bias", zeros({3})}}, false);
  const Tensor x = normal({4, 2}, {});
  EXPECT_TRUE(same_bits(deep(x), relu(flat(x))));
  struct Owner : nn::Module {
    explicit Owner(nn::Net net) : body(std::move(net)) {}
    nn::Net body;
    void list_children(nn::Children& children) override { children.add("body", body); }
  } owner(std::move(flat));
  EXPECT_EQ(names_of(owner.state_dict()), (Names{"body.bias", "body.weight"}));
  EXPECT_FALSE(flat);
}

struct Many : nn::Module {
  nn::ReLU a0, a1, a2, a3, a4, a5, a6, a7, a8, a9, b0, b1, b2, b3, b4, b5, b6, b7, b8, b9, c0, c1, c2, c3, c4,
      c5, c6, c7, c8, c9, d0, d1, d2, d3, d4, d5, d6, d7, d8, d9;
  VOXGRAD_MODULE(a0, a1, a2, a3, a4, a5, a6, a7, a8, a9, b0, b1, b2, b3, b4, b5, b6, b7, b8, b9, c0, c1, c2,
                 c3, c4, c5, c6, c7, c8, c9, d0, d1, d2, d3, d4, d5, d6, d7, d8, d9)
};

TEST(OwnModulesTest, FortyMembers) {
  Many many;
  const auto all = many.named_modules();
  ASSERT_EQ(all.size(), 41u);
  EXPECT_EQ(all[0].first, "");
  EXPECT_EQ(all[23].first, "c2");
  EXPECT_EQ(all[40].second, &many.d9);
}

struct Clash : nn::Module {
  Tensor w = register_parameter("a", ones({1}));
  nn::ReLU a;
  VOXGRAD_MODULE(a)
};
struct Clash2 : nn::Module {
  nn::ReLU a, a_;
  VOXGRAD_MODULE(a, a_)
};

TEST(OwnModulesTest, ANameIsUsedOnce) {
  EXPECT_ERRORS(ValueError, Clash().state_dict(), Clash2().state_dict());
}

struct Forgets : nn::Module {
  nn::Linear a = linear(1, 1);
  std::optional<nn::Linear> b;
  std::unique_ptr<nn::Linear> hidden = std::make_unique<nn::Linear>(linear(1, 1));
  VOXGRAD_MODULE(a)
};
struct HoldsIt : nn::Module {
  nn::Residual residual{nn::ReLU()};
  std::vector<Forgets> list = std::vector<Forgets>(1);
  VOXGRAD_MODULE(residual, list)
};

TEST(OwnModulesTest, AMemberThatIsNotListedIsAnError) {
  HoldsIt net;
  EXPECT_EQ(net.parameters().size(), 2u);
  net.list[0].b.emplace(linear(1, 1));
  for (nn::Module* m : {static_cast<nn::Module*>(&net), static_cast<nn::Module*>(&net.list[0])}) {
    EXPECT_ERRORS(ValueError, m->parameters(), m->eval());
  }
  net.list[0].b.reset();
  EXPECT_EQ(net.parameters().size(), 2u);
}

struct Split : nn::Module {
  VOXGRAD_MODULE()
  std::pair<Tensor, Tensor> forward(const Tensor& x, int64_t at) {
    return {x.slice(0, 0, at), x.slice(0, at, x.size(0))};
  }
};

TEST(OwnModulesTest, ForwardHooksSeeTensorsAndMayReplaceResults) {
  Split split;
  std::vector<Shape> seen;
  const int64_t id =
      split.register_forward_hook([&](nn::Module& module, std::span<const Tensor> in, std::span<Tensor> out) {
        EXPECT_EQ(&module, &split);
        for (const Tensor& t : in) seen.push_back(t.shape());
        for (const Tensor& t : out) seen.push_back(t.shape());
        out[1] = out[1] * 10;
      });
  const Tensor x = from_vector<float>({1, 2, 3}, {3});
  EXPECT_EQ(split(x, 1).second.to_vector<float>(), (Floats{20, 30}));
  EXPECT_EQ(seen, (std::vector<Shape>{{3}, {1}, {2}}));
  EXPECT_EQ(split.forward(x, 1).second.to_vector<float>(), (Floats{2, 3}));

  split.register_forward_hook(
      [](nn::Module&, std::span<const Tensor>, std::span<Tensor> out) { out[1] = out[1] + 1; });
  EXPECT_EQ(split(x, 1).second.to_vector<float>(), (Floats{21, 31}));
  split.remove_forward_hook(id);
  EXPECT_EQ(split(x, 1).second.to_vector<float>(), (Floats{3, 4}));
  EXPECT_ERRORS(ValueError, split.remove_forward_hook(id), split.register_forward_hook({}));
}

TEST(OwnModulesTest, AHookMayRemoveItselfAndFollowsItsModule) {
  nn::ReLU relu;
  int calls = 0;
  int64_t id = -1;
  id = relu.register_forward_hook([&](nn::Module& m, auto, auto) {
    ++calls;
    m.remove_forward_hook(id);
  });
  nn::ReLU moved = std::move(relu);
  moved(ones({1}));
  moved(ones({1}));
  EXPECT_EQ(calls, 1);
}

TEST(OwnModulesTest, SequentialCallsTheHooksOfLayersThatItWouldJoin) {
  nn::Sequential net{nn::BatchNorm1d({.num_features = 2}), nn::ReLU()};
  const Tensor x = normal({4, 2}, {});
  const Tensor joined = net(x);
  for (const size_t layer : {0u, 1u}) {
    Tensor seen;
    const int64_t id =
        net[layer].register_forward_hook([&](nn::Module&, auto, std::span<Tensor> out) { seen = out[0]; });
    EXPECT_TRUE(same_bits(net(x), joined));
    ASSERT_TRUE(seen.defined());
    EXPECT_EQ(same_bits(seen, joined), layer == 1);
    net[layer].remove_forward_hook(id);
  }
}

TEST(OwnModulesTest, ApplyReachesChildrenFirst) {
  const auto shared = std::make_shared<nn::Linear>(linear(2, 2));
  nn::Sequential net{shared, nn::ReLU(), shared};
  Names seen;
  net.apply([&](nn::Module& m) {
    seen.push_back(m.describe());
    if (auto* linear = dynamic_cast<nn::Linear*>(&m)) linear->weight.detach().fill_(3);
  });
  EXPECT_EQ(seen, (Names{"Linear(2, 2)", "ReLU", "Sequential"}));
  EXPECT_EQ(shared->weight.to_vector<float>(), (Floats{3, 3, 3, 3}));
}

TEST(OwnModulesTest, PrintsATree) {
  struct Net : nn::Module {
    UNetBlock block;
    Tensor gain = register_parameter("gain", ones({1}));
    nn::Sequential head{nn::Dropout({.p = 0.1}), linear(4, 2, false)};
    void list_children(nn::Children& children) override { children.add("block, head", block, head); }
  };
  std::ostringstream out;
  out << Net();
  EXPECT_EQ(out.str(),
            "Net: gain (1,); 885 parameters\n"
            "  block: UNetBlock; 876 parameters\n"
            "    a: Conv3d(8, 4, kernel_size=(3,3,3), padding=(1,1,1)): weight (4,8,3,3,3), bias (4,); 868 "
            "parameters\n"
            "    n: BatchNorm3d(4, eps=1e-05): weight (4,), bias (4,); 8 parameters\n"
            "  head: Sequential; 8 parameters\n"
            "    0: Dropout(0.1)\n"
            "    1: Linear(4, 2, bias=false): weight (2,4); 8 parameters");
}

TEST(OwnModulesTest, SequentialTakesModulesAndFunctions) {
  nn::Sequential net{nn::Identity(), [](const Tensor& x) { return x * 2; }, relu, nn::Flatten(),
                     nn::Sequential{nn::Flatten(0)}};
  EXPECT_EQ(net(from_vector<float>({1, -2, 3, 4, -5, 6, 7, 8}, {2, 2, 2})).to_vector<float>(),
            (Floats{2, 0, 6, 8, 0, 12, 14, 16}));
  EXPECT_ERRORS(ValueError, net[5], net.push_back(std::shared_ptr<nn::ReLU>()),
                net.push_back(std::function<Tensor(const Tensor&)>()));
  EXPECT_EQ(net.size(), 5u);
  net.push_back(std::make_unique<nn::ReLU>());
  nn::Sequential moved = std::move(net);
  EXPECT_EQ(moved.size(), 6u);
}

TEST(OwnModulesTest, ResidualAddsItsInput) {
  nn::Residual net{linear(2, 2, false), nn::ReLU()};
  EXPECT_EQ(names_of(net.state_dict()), (Names{"body.0.weight"}));
  net.load_state_dict({{"body.0.weight", from_vector<float>({1, 0, 0, -1}, {2, 2})}});
  EXPECT_EQ(net(from_vector<float>({3, 4}, {1, 2})).to_vector<float>(), (Floats{6, 4}));
  nn::Residual wrong{linear(2, 1)};
  EXPECT_THROW(wrong(ones({3, 2})), ShapeError);
}

struct Running : nn::Module {
  Tensor mean = register_buffer("mean", zeros({2}));
  Tensor scale = register_parameter("scale", ones({2}));
  VOXGRAD_MODULE()
  Tensor forward(const Tensor& x) { return x * scale; }
};
struct Tied : nn::Module {
  nn::Linear a = linear(2, 2), b = linear(2, 2);
  VOXGRAD_MODULE(a, b)
  Tensor forward(const Tensor& x) { return b(a(x)); }
};
TEST(OwnModulesTest, AMemberThatHoldsAnotherTensorThanTheRegisteredOneIsRefused) {
  Running net;
  net.mean = net.mean * 0.9;
  EXPECT_ERRORS(ValueError, net.state_dict(), net.named_buffers(), net.to(f64));
  EXPECT_EQ(net.parameters().size(), 1u);
  net.scale = ones({2});
  EXPECT_THROW(net.parameters(), ValueError);

  Tied tied;
  tied.b.weight = tied.a.weight;
  EXPECT_THROW(tied.state_dict(), ValueError);
}

TEST(OwnModulesTest, ANetThatWasMovedAwayIsRefused) {
  nn::Net a = nn::Net(nn::ReLU());
  const nn::Net b = std::move(a);
  EXPECT_FALSE(a);
  EXPECT_ERRORS(ValueError, a(ones({1})), a->parameters(), *a);
}

TEST(OwnModulesTest, SequentialRefusesNamesAndItself) {
  nn::Sequential net;
  EXPECT_ERRORS(ValueError, net.push_back("a.b", nn::ReLU()), net.push_back("", nn::ReLU()));
  net.push_back("a", nn::ReLU());
  EXPECT_THROW(net.push_back("a", nn::ReLU()), ValueError);
  const auto outer = std::make_shared<nn::Sequential>(), inner = std::make_shared<nn::Sequential>();
  outer->push_back(inner);
  EXPECT_ERRORS(ValueError, inner->push_back(outer), inner->push_back(inner));
  EXPECT_EQ(inner->size(), 0u);
}

}  // namespace
}  // namespace vox
