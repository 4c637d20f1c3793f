#include "tests/support/test.h"

namespace vox {
namespace {

using optim::Adam;
using optim::AdamW;
using optim::Optimizer;
using optim::RMSprop;
using optim::SGD;

DEVICE_SUITE(OptimTest);

using Parameters = std::vector<Tensor>;
using Make = std::function<std::unique_ptr<Optimizer>(const Parameters&)>;

/// Makes optimisers with these options.
template <class Opt>
Make maker(const typename Opt::Options& options = {}) {
  return [options](const Parameters& p) { return std::make_unique<Opt>(p, options); };
}

Tensor parameter(const Doubles& values, Device device) {
  return from_vector(values, {static_cast<int64_t>(values.size())}, device).set_requires_grad(true);
}

/// PyTorch's parameters (torch 1.13, f64) after 20 steps with these gradients; q has none in every third, so
/// its updates are fewer.
void expect_torch(Device device, const Make& make, const Doubles& expected) {
  Tensor p = parameter({1, -2, 0.5, 3}, device), q = parameter({0.25, -1.5}, device);
  const auto optimizer = make({p, q});
  for (int t = 0; t < 20; ++t) {
    Doubles of_p, of_q;
    for (int i = 0; i < 4; ++i) of_p.push_back(std::sin(1.7 * t + i) * (i + 1));
    for (int i = 0; i < 2; ++i) of_q.push_back(std::cos(0.9 * t + i));
    p.set_grad(from_vector(of_p, {4}, device));
    q.set_grad(t % 3 == 1 ? Tensor() : from_vector(of_q, {2}, device));
    optimizer->step();
    EXPECT_EQ(p.grad().to_vector<double>(), of_p) << "the gradient is not the optimiser's to change";
  }
  EXPECT_EQ(optimizer->steps(), 20);
  Doubles got = p.to_vector<double>();
  for (const double v : q.to_vector<double>()) got.push_back(v);
  for (size_t i = 0; i < got.size(); ++i) EXPECT_NEAR(got[i], expected[i], 1e-13) << i;
}

TEST_P(OptimTest, TwentyStepsArePyTorchs) {
  const Adam::Options adam{.lr = 0.02, .beta1 = 0.8, .beta2 = 0.95, .eps = 1e-6, .weight_decay = 0.1};
  const AdamW::Options adamw{.lr = 0.02, .beta1 = 0.8, .beta2 = 0.95, .eps = 1e-6, .weight_decay = 0.1};
  expect_torch(device(), maker<SGD>({.lr = 0.05}),
               {0.9726288691634637, -2.1269085376598573, 0.37640646591368593, 3.0757427514337734,
                0.2815519540224079, -1.4519128762137714});
  expect_torch(device(), maker<SGD>({.lr = 0.05, .weight_decay = 0.1}),
               {0.8791486749509054, -1.930192431356209, 0.3326071622446413, 2.783312655788754,
                0.266870307937704, -1.3581876618627666});
  expect_torch(device(), maker<SGD>({.lr = 0.05, .momentum = 0.9}),
               {0.8183454493549465, -2.604818887314317, 0.06460853358957996, 3.58232307261034,
                0.16024806809346012, -1.3459269589466765});
  expect_torch(device(), maker<SGD>({.lr = 0.05, .momentum = 0.9, .weight_decay = 0.1}),
               {0.3579963816012004, -1.3901311672579897, -0.07290599309392087, 1.8447592281646203,
                0.10717275659441335, -0.9207153670591278});
  expect_torch(device(), maker<SGD>({.lr = 0.05, .momentum = 0.9, .weight_decay = 0.1, .nesterov = true}),
               {0.34086947138882784, -1.396640015370553, -0.14495707148056053, 1.7827708595858602,
                0.14712060175199076, -0.8568553184752556});
  expect_torch(device(), maker<Adam>(),
               {0.9983887480068737, -2.0029281249333892, 0.4984817033871348, 3.000404332469807,
                0.24852314731763153, -1.4996767482007067});
  expect_torch(device(), maker<Adam>(adam),
               {0.9062217452394746, -1.998031633689214, 0.46564697180813536, 2.963130952910128,
                0.21991525604013892, -1.449654344763817});
  expect_torch(device(), maker<AdamW>(),
               {0.9981890178934475, -2.002527694051216, 0.49838195970004495, 2.9998043570768407,
                0.2484908177724772, -1.499481745806213});
  expect_torch(device(), maker<AdamW>(adamw),
               {0.9361680752152566, -1.9687167350474395, 0.4550662344748334, 2.8848357634527724,
                0.22169719264976878, -1.454680884246762});
}

// The formula of torch.optim.RMSprop, evaluated in Python.
TEST_P(OptimTest, TwentyStepsOfRmsprop) {
  const RMSprop::Options options{.lr = 0.02, .alpha = 0.9, .eps = 1e-6, .weight_decay = 0.1};
  RMSprop::Options momentum = options, centered = options;
  momentum.momentum = 0.8, centered.centered = true;
  expect_torch(device(), maker<RMSprop>(),
               {0.9456522613955495, -2.114014643941586, 0.4444121840565175, 2.958394455500553,
                0.24727649053168382, -1.4851202188367585});
  expect_torch(device(), maker<RMSprop>(options),
               {0.8480884567023923, -2.0137759986782693, 0.45066143797193337, 2.9262624511878554,
                0.24452747631296734, -1.4281856977532128});
  expect_torch(device(), maker<RMSprop>(momentum),
               {0.38826630919918503, -2.028431805629681, 0.33689160575972643, 2.673519750498959,
                0.12575258089984587, -1.313507922355063});
  expect_torch(device(), maker<RMSprop>(centered),
               {0.837406628522929, -2.017508537174658, 0.44652830824225714, 2.922636232566045,
                0.24081978280035973, -1.4243822796992989});
}

/// A leaf of n numbers at an offset in memory that is not a multiple of 16 bytes.
Tensor unaligned(int64_t n, DType dtype, Device device, uint64_t seed) {
  return normal({n + 1}, {f64, device}, seed).to(dtype).slice(0, 1, n + 1).detach().set_requires_grad();
}

// One optimiser of many parameters leaves the bits of one optimiser for each.
TEST_P(OptimTest, ParametersInOneListAreIndependent) {
  const Ints sizes{0, 1, 3, 1000, 5000, 70'001};
  const auto make = [&] {
    Parameters parameters;
    for (const DType dtype : {f32, f64, bf16, f16}) {
      for (uint64_t k = 0; k < 24; ++k) {
        const int64_t n = sizes[k % sizes.size()];
        parameters.push_back(k < 6 ? unaligned(n, dtype, device(), k)
                                   : normal({n}, on(f64), k).to(dtype).set_requires_grad());
      }
    }
    parameters.push_back(normal({40, 30}, on(f64)).transpose(0, 1).set_requires_grad());
    return parameters;
  };
  const auto check = [&](const Make& make_optimizer) {
    const Parameters together = make(), alone = make();
    const auto optimizer = make_optimizer(together);
    std::vector<std::unique_ptr<Optimizer>> optimizers;
    for (const Tensor& p : alone) optimizers.push_back(make_optimizer({p}));
    for (uint64_t step = 0; step < 3; ++step) {
      for (size_t i = 0; i < together.size(); ++i) {
        Tensor a = together[i], b = alone[i], g;
        if (i % 7 != step) {
          const bool is_strided = i % 5 == 0 && a.rank() == 1;
          const Shape shape = is_strided ? Shape{a.numel(), 2} : a.shape();
          g = normal(shape, on(f64), 50 * step + i).to(a.dtype());
          if (is_strided) g = g.select(1, 0);
        }
        a.set_grad(g), b.set_grad(g);
        if (g.defined()) optimizers[i]->step();
      }
      optimizer->step();
    }
    for (size_t i = 0; i < together.size(); ++i)
      EXPECT_TRUE(same_bits(together[i].detach(), alone[i].detach())) << "parameter " << i;
  };
  check(maker<SGD>({.lr = 0.1}));
  check(maker<SGD>({.lr = 0.1, .momentum = 0.9}));
  check(maker<AdamW>({.lr = 0.1}));
  check(maker<RMSprop>({.lr = 0.1, .momentum = 0.5}));
}

TEST_P(OptimTest, AStepInvalidatesGraphsThatSavedTheParameter) {
  Tensor p = parameter({1, 2}, device());
  SGD optimizer({p}, {.lr = 1});
  Tensor y = (p * p).sum();
  p.set_grad(ones({2}, on(f64)));
  optimizer.step();
  EXPECT_THROW(y.backward(), GradError);
}

TEST_P(OptimTest, AGradientMayShareTheMemoryOfAParameter) {
  Tensor p = parameter({1, 2}, device()), q = parameter({3, 4}, device());
  SGD optimizer({p, q}, {.lr = 0.5});
  p.set_grad(q.detach()), q.set_grad(p.detach());
  optimizer.step();
  EXPECT_EQ(p.to_vector<double>(), (Doubles{-0.5, 0}));
  EXPECT_EQ(q.to_vector<double>(), (Doubles{2.5, 3}));
}

TEST_P(OptimTest, StateFollowsParametersThatAreCast) {
  nn::Linear net({.in_features = 2, .out_features = 1, .tensor = {.device = GetParam()}});
  SGD sgd(net.parameters(), {.lr = 0.5, .momentum = 0.5});
  const auto step = [&](DType dtype) {
    net.zero_grad();
    net(ones({1, 2}, {.dtype = dtype, .device = GetParam()})).sum().backward();
    sgd.step();
  };
  const double before = net.bias.item<float>();
  step(f32);
  net.to(f64);
  step(f64);
  EXPECT_NEAR(net.bias.item<double>(), before - 0.5 * 1 - 0.5 * 1.5, 1e-6) << "momentum was kept";
}

/// One step from the same numbers in 16 bits and in f32: equal except for the rounding of the parameter.
void check_steps(DType half, Device device, const Make& make) {
  Tensor narrow = normal({40}, {f32, device}).to(half).set_requires_grad(true);
  Tensor wide = narrow.detach().to(f32).set_requires_grad(true);
  const auto narrow_optimizer = make({narrow}), wide_optimizer = make({wide});
  for (unsigned step = 0; step < 3; ++step) {
    const Tensor g = normal({40}, {f32, device}, step + 9).to(half);
    narrow.set_grad(g), wide.set_grad(g.to(f32));
    narrow_optimizer->step(), wide_optimizer->step();
    EXPECT_TRUE(same_bits(narrow.detach(), wide.detach().to(half))) << "step " << step;
    const auto guard = no_grad();
    wide.copy_(narrow);
  }
  const auto state = narrow_optimizer->state_dict(), expected = wide_optimizer->state_dict();
  ASSERT_EQ(state.size(), expected.size());
  for (const auto& [name, t] : state) {
    EXPECT_TRUE(is_floating(t.dtype()) ? t.dtype() == f32 : t.dtype() == i64) << name;
    EXPECT_TRUE(same_bits(t, expected.at(name))) << name;
  }
  narrow_optimizer->load_state_dict(state);
}

TEST_P(OptimTest, SixteenBitsAreUpdatedInF32) {
  for (const DType half : {bf16, f16}) {
    check_steps(half, device(),
                maker<SGD>({.lr = 0.1, .momentum = 0.9, .weight_decay = 0.01, .nesterov = true}));
    check_steps(half, device(), maker<Adam>({.lr = 0.01, .weight_decay = 0.1}));
    check_steps(half, device(), maker<AdamW>({.lr = 0.01}));
    check_steps(half, device(), maker<RMSprop>({.centered = true}));
  }
}

TEST_P(OptimTest, SixteenBitsTrainAndStay) {
  for (const DType half : {bf16, f16}) {
    manual_seed(1);
    nn::Sequential net{
        nn::Conv3d({.in_channels = 1, .out_channels = 8, .kernel_size = 3, .padding = 1}),
        nn::BatchNorm3d({.num_features = 8}), nn::ReLU(),
        nn::ConvTranspose3d(
            {.in_channels = 8, .out_channels = 1, .kernel_size = 4, .stride = 2, .padding = 1})};
    net.to(half).to(device());
    Adam adam(net.parameters(), {.lr = 1e-2});
    const Tensor small = rand({2, 1, 4, 4, 4}, on(half)), big = interpolate(small, {.size = 8});
    float first = 0, last = 0;
    for (int step = 0; step < 60; ++step) {
      adam.zero_grad();
      Tensor loss = mse_loss(net(small), big);
      EXPECT_EQ(loss.dtype(), half);
      loss.backward();
      for (const Tensor& p : net.parameters()) ASSERT_EQ(p.grad().dtype(), half);
      adam.step();
      last = loss.detach().to(f32).item();
      if (step == 0) first = last;
    }
    EXPECT_LT(last, 0.1f * first) << half;
  }
}

TEST_P(OptimTest, AResumedRunHasTheBitsOfAnUnbrokenOne) {
  const TemporaryFolder folder;
  for (const Make& make_optimizer :
       {maker<SGD>({.lr = 0.01}), maker<SGD>({.lr = 0.01, .momentum = 0.9, .nesterov = true}),
        maker<Adam>({.lr = 0.01, .weight_decay = 0.01}), maker<AdamW>({.lr = 0.01}),
        maker<RMSprop>({.momentum = 0.9})}) {
    Tensor whole = normal({3, 4}, on(f32)).set_requires_grad(), part;
    const auto unbroken = make_optimizer({whole});
    std::unique_ptr<Optimizer> resumed;
    for (unsigned step = 0; step < 6; ++step) {
      if (step == 3) {
        part = whole.detach().clone().set_requires_grad();
        resumed = make_optimizer({part});
        nn::save(folder / "optimizer", unbroken->state_dict());
        resumed->load_state_dict(nn::load(folder / "optimizer").tensors);
        EXPECT_EQ(resumed->steps(), 3);
      }
      const Tensor g = normal({3, 4}, on(f32), step);
      whole.set_grad(g), unbroken->step();
      if (resumed) part.set_grad(g), resumed->step();
    }
    EXPECT_TRUE(same_bits(whole, part));
  }
}

TEST_P(OptimTest, TheStateIsACopyByName) {
  Tensor p = parameter({1, 2}, device()), untouched = parameter({1}, device());
  Adam optimizer({p, untouched});
  p.set_grad(make({10, 20}, {2}));
  optimizer.step();
  const Optimizer::State state = optimizer.state_dict();
  ASSERT_EQ(state.size(), 4u);
  EXPECT_EQ(state.at("step").item<int64_t>(), 1);
  EXPECT_EQ(state.at("updates").to_vector<int64_t>(), (Ints{1, 0}));
  EXPECT_NEAR(state.at("0.exp_avg").to_vector<double>()[1], 2, 1e-12);
  EXPECT_NEAR(state.at("0.exp_avg_sq").to_vector<double>()[0], 0.1, 1e-12);
  for (int i = 0; i < 2; ++i) {  // neither what was saved nor what is loaded is shared
    optimizer.step();
    EXPECT_EQ(state.at("step").item<int64_t>(), 1);
    EXPECT_NEAR(state.at("0.exp_avg").to_vector<double>()[1], 2, 1e-12);
    optimizer.load_state_dict(state);
  }
}

TEST(OptimStateTest, AForeignStateIsRefusedAndChangesNothing) {
  Tensor p = parameter({1, 2}, Device::cpu());
  Adam optimizer({p});
  p.set_grad(ones({2}, {.dtype = f64}));
  optimizer.step();
  const Optimizer::State good = optimizer.state_dict();
  const auto refuses = [&]<class E>(const char* what, E, auto change) {
    Optimizer::State state = good;
    state["step"] = full({}, 8, {.dtype = i64});
    change(state);
    EXPECT_THROW(optimizer.load_state_dict(state), E) << what;
    EXPECT_EQ(optimizer.steps(), 1) << what;
    EXPECT_TRUE(same_bits(optimizer.state_dict().at("0.exp_avg"), good.at("0.exp_avg"))) << what;
  };
  using State = Optimizer::State;
  const ValueError value("");
  refuses("no step", value, [](State& s) { s.erase("step"); });
  refuses("no updates", value, [](State& s) { s.erase("updates"); });
  refuses("negative step", value, [](State& s) { s["step"] = full({}, -1, {.dtype = i64}); });
  refuses("a step that the next would overflow", value,
          [](State& s) { s["step"] = full({}, INT64_MAX, {.dtype = i64}); });
  refuses("step of f32", DTypeError(""), [](State& s) { s["step"] = ones({}); });
  refuses("updates of two", value, [](State& s) { s["updates"] = ones({2}, {.dtype = i64}); });
  refuses("more updates than steps", value, [](State& s) { s["updates"] = full({1}, 9, {.dtype = i64}); });
  refuses("another parameter", value, [](State& s) { s["1.exp_avg"] = ones({2}, {.dtype = f64}); });
  refuses("another optimiser", value, [](State& s) { s["0.momentum"] = ones({2}, {.dtype = f64}); });
  refuses("half of the buffers", value, [](State& s) { s.erase("0.exp_avg_sq"); });
  refuses("shape", ShapeError(""), [](State& s) { s["0.exp_avg"] = ones({3}, {.dtype = f64}); });
  refuses("dtype", DTypeError(""), [](State& s) { s["0.exp_avg"] = ones({2}); });
  refuses("undefined", value, [](State& s) { s["0.exp_avg"] = Tensor(); });
  optimizer.load_state_dict(good);

  const auto message = [&](const char* key, const Tensor& entry) {
    Optimizer::State state = good;
    state[key] = entry;
    return message_of([&] { optimizer.load_state_dict(state); });
  };
  const std::string name = "Optimizer::load_state_dict: ";
  EXPECT_EQ(message("step", ones({7}, {.dtype = i64})),
            name + "'step': item: needs exactly one element, got shape (7,)");
  EXPECT_EQ(message("step", ones({})), name + "'step' must have dtype i64, got f32");
  EXPECT_EQ(message("updates", ones({1})).find(name + "'updates': to_vector: "), 0u);
}

TEST(OptimStateTest, ParametersAndOptionsAreChecked) {
  const Tensor p = parameter({1}, Device::cpu());
  EXPECT_ERRORS(ValueError, SGD({}), SGD({Tensor()}), SGD({p}, {.lr = -1}), SGD({p}, {.lr = NAN}),
                SGD({p}, {.lr = 1, .momentum = -0.1}), SGD({p}, {.lr = 1, .nesterov = true}),
                Adam({p}, {.beta1 = 1}), Adam({p}, {.beta2 = -0.1}), Adam({p}, {.eps = -1}));
  EXPECT_NO_THROW(Adam({p}, {.eps = 0}));
  EXPECT_ERRORS(ValueError, AdamW({p}, {.weight_decay = -1}), RMSprop({p}, {.alpha = 1.5}),
                RMSprop({p}, {.momentum = 0.5, .centered = true}),
                RMSprop({p}).add_group({parameter({1}, Device::cpu())}, {.momentum = 0.5}));
  SGD optimizer({p}, {.lr = 0.5});
  EXPECT_THROW(optimizer.set_lr(INFINITY), ValueError);
  EXPECT_EQ(optimizer.lr(), 0.5);
}

TEST(OptimStateTest, FrozenParametersAreSkipped) {
  Tensor p = parameter({1, 2}, Device::cpu()), q = parameter({3, 4}, Device::cpu()), plain = ones_like(p);
  AdamW optimizer({p, q, plain}, {.lr = 0.1});
  const auto step = [&] {
    optimizer.zero_grad();
    sum(p * q).backward();
    optimizer.step();
  };
  step();
  const Tensor before = q.detach().clone();
  q.set_requires_grad(false);
  q.set_grad(ones_like(q));  // of an earlier step
  sum(p).backward();
  optimizer.step();
  EXPECT_TRUE(same_bits(q, before));
  p.set_requires_grad(false);
  EXPECT_THROW(optimizer.step(), GradError);
  p.set_requires_grad();
  q.set_requires_grad();
  step();
  EXPECT_FALSE(same_bits(q.detach(), before));
  EXPECT_TRUE(same_bits(plain, ones_like(plain)));
  EXPECT_EQ(optimizer.state_dict().at("updates").to_vector<int64_t>(), (Ints{3, 2, 0}));
}

TEST(OptimStateTest, ErrorsSayWhichParameter) {
  const Tensor p = parameter({1}, Device::cpu());
  Tensor named = ones({2});
  named.set_name("head.bias");
  const auto making = [](const Parameters& parameters) { return [=] { SGD optimizer(parameters); }; };
  EXPECT_EQ(
      message_of<ValueError>(making({p, named, named})),
      "Optimizer: parameter 2 'head.bias' of shape (2,) is given twice; each step would update it twice");
  EXPECT_EQ(message_of<GradError>(making({p, p * 2.0})),
            "Optimizer: parameter 1 of shape (1,) must be a leaf, but is the result of an op");
  EXPECT_EQ(message_of<DTypeError>(making({p, zeros({2}, {i64})})),
            "Optimizer: parameter 1 of shape (2,) must have a floating dtype, got i64");
  EXPECT_EQ(message_of<ValueError>(making({p, p})),
            "Optimizer: parameter 1 of shape (1,) is given twice; each step would update it twice");
  EXPECT_EQ(message_of<ValueError>(making({p, zeros({1}).expand({4}).set_requires_grad()})),
            "Optimizer: several elements of parameter 1 share one place in memory (shape (4,), strides "
            "(0,)), as in an expanded tensor; write to a clone()");
  const Tensor strided = zeros({2, 3}).transpose(0, 1).slice(1, 0, 1).detach();
  EXPECT_NO_THROW(SGD({p, Tensor(strided).set_requires_grad()}));
  SGD sgd({p});
  EXPECT_MESSAGE(GradError, sgd.step(),
                 "Optimizer::step: none of the 1 parameters has a gradient; call backward() on a loss that "
                 "depends on them first");
  EXPECT_EQ(sgd.steps(), 0);
}

TEST_P(OptimTest, GroupsHaveOptionsOfTheirOwn) {
  Tensor p = parameter({1, 2}, device()), q = parameter({3}, device()), r = parameter({4}, device());
  SGD sgd({p}, {.lr = 0.5});
  sgd.add_group({q, r}, {.lr = 0.25, .momentum = 0.5, .weight_decay = 1});
  const auto step = [&] {
    p.set_grad(ones({2}, p.options())), q.set_grad(ones({1}, q.options()));
    sgd.step();
  };
  step();  // q: g = 1 + 3, m = 4
  EXPECT_EQ(p.to_vector<double>(), (Doubles{0.5, 1.5}));
  EXPECT_EQ(q.to_vector<double>(), (Doubles{2}));
  step();  // q: g = 1 + 2, m = 2 + 3
  EXPECT_EQ(q.to_vector<double>(), (Doubles{0.75}));
  EXPECT_EQ(r.to_vector<double>(), (Doubles{4}));
  const auto state = sgd.state_dict();
  EXPECT_TRUE(state.contains("1.momentum") && !state.contains("0.momentum"));
  sgd.load_state_dict(state);

  EXPECT_EQ(sgd.lr(), 0.5);
  EXPECT_EQ(sgd.lr(1), 0.25);
  sgd.set_lr(0, 1);
  step();
  EXPECT_EQ(q.to_vector<double>(), (Doubles{0.75}));
  EXPECT_EQ(p.to_vector<double>(), (Doubles{-0.5, 0.5}));
  sgd.set_lr(2);
  EXPECT_EQ(sgd.lr(0) + sgd.lr(1), 4);
  EXPECT_ERRORS(ValueError, sgd.lr(2), sgd.set_lr(1, 2));

  EXPECT_ERRORS(ValueError, sgd.add_group({q}, {}), sgd.add_group({}, {}),
                sgd.add_group({parameter({1}, device())}, {.momentum = -1}), sgd.lr(2));
}

TEST_P(OptimTest, AGroupOfAdamWIsAnAdamWOfItsOwn) {
  const auto make = [&](int seed) {
    return normal({5}, on(f32), static_cast<unsigned>(seed)).set_requires_grad();
  };
  Tensor p = make(1), q = make(2), alone_p = make(1), alone_q = make(2);
  AdamW both({p}, {.lr = 0.1});
  both.add_group({q}, {.lr = 0.01, .beta1 = 0.5, .weight_decay = 0});
  AdamW first({alone_p}, {.lr = 0.1}), second({alone_q}, {.lr = 0.01, .beta1 = 0.5, .weight_decay = 0});
  for (unsigned i = 0; i < 3; ++i) {
    for (Tensor* t : {&p, &alone_p}) t->set_grad(normal({5}, on(f32), 3 + i));
    for (Tensor* t : {&q, &alone_q}) t->set_grad(normal({5}, on(f32), 7 + i));
    both.step(), first.step(), second.step();
  }
  EXPECT_TRUE(same_bits(p, alone_p));
  EXPECT_TRUE(same_bits(q, alone_q));
}

TEST_P(OptimTest, ClipsValues) {
  Tensor p = parameter({0, 0, 0, 0}, device()), none = parameter({0}, device());
  p.set_grad(make({-3, 0.5, 2, NAN}, {4}));
  optim::clip_grad_value_({p, none}, 1);
  const auto g = p.grad().to_vector<double>();
  EXPECT_EQ(Doubles(g.begin(), g.begin() + 3), (Doubles{-1, 0.5, 1}));
  EXPECT_TRUE(std::isnan(g[3]));
  EXPECT_FALSE(none.grad().defined());
  EXPECT_MESSAGE(ValueError, optim::clip_grad_value_({p}, -1),
                 "clip_grad_value_: clip_value must be >= 0, got -1");
}

TEST_P(OptimTest, ClipGradNormOfATinyGradient) {
  Tensor p = parameter({0}, device());
  p.set_grad(make({1e-5}, {1}));
  EXPECT_DOUBLE_EQ(optim::clip_grad_norm_({p}, 1e-6), 1e-5);
  EXPECT_NEAR(p.grad().to_vector<double>()[0] / (1e-5 * 1e-6 / (1e-5 + 1e-6)), 1, 1e-12);
}

TEST_P(OptimTest, ClipGradNormScalesAllGradientsTogether) {
  Tensor p = parameter({0, 0}, device()), q = parameter({0}, device()), none = parameter({0}, device());
  const auto set = [&] {
    p.set_grad(make({2, 3}, {2}));
    q.set_grad(make({-6}, {1}));
  };
  set();
  EXPECT_DOUBLE_EQ(optim::clip_grad_norm_({p, q, none}, 8), 7);
  EXPECT_EQ(p.grad().to_vector<double>(), (Doubles{2, 3}));
  EXPECT_DOUBLE_EQ(optim::clip_grad_norm_({p, q, none}, 3.5), 7);
  EXPECT_NEAR(p.grad().to_vector<double>()[0], 1, 1e-6);
  EXPECT_NEAR(p.grad().to_vector<double>()[1], 1.5, 1e-6);
  EXPECT_NEAR(q.grad().to_vector<double>()[0], -3, 1e-6);
  EXPECT_FALSE(none.grad().defined());
  EXPECT_LE(optim::clip_grad_norm_({p, q}, 100), 3.5);
  EXPECT_EQ(optim::clip_grad_norm_({none}, 1), 0);
  EXPECT_ERRORS(ValueError, optim::clip_grad_norm_({p}, 0), optim::clip_grad_norm_({p}, NAN));
}

TEST_P(OptimTest, ClipGradNormOfMixedDTypesAndOfNonFiniteGradients) {
  Tensor p = parameter({0, 0}, device());
  Tensor q = zeros({1}, on(bf16)).set_requires_grad();
  p.set_grad(make({3e30, 4e30}, {2}));
  q.set_grad(full({1}, 0.5, q.options()));
  EXPECT_DOUBLE_EQ(optim::clip_grad_norm_({p, q}, 1e30), 5e30);
  EXPECT_NEAR(p.grad().to_vector<double>()[1], 8e29, 1e24);

  q.set_grad(full({1}, INFINITY, q.options()));
  EXPECT_THROW(optim::clip_grad_norm_({p, q}, 1, {.error_if_nonfinite = true}), ValueError);
  EXPECT_NEAR(p.grad().to_vector<double>()[1], 8e29, 1e24);
  EXPECT_EQ(optim::clip_grad_norm_({p, q}, 1), INFINITY);
  EXPECT_EQ(p.grad().to_vector<double>(), (Doubles{0, 0}));
  EXPECT_TRUE(std::isnan(q.grad().to(f32).item()));
  EXPECT_TRUE(std::isnan(optim::clip_grad_norm_({p, q}, 1)));
  EXPECT_TRUE(std::isnan(p.grad().to_vector<double>()[0]));

  Tensor large = zeros({4}, on(f16)).set_requires_grad();
  large.set_grad(full({4}, 1000, on(f16)));  // its square exceeds f16
  EXPECT_NEAR(optim::clip_grad_norm_({large}, 1), 2000, 1e-3);
  EXPECT_EQ(large.grad().to(f32).to_vector<float>(), Floats(4, 0.5));
}

}  // namespace
}  // namespace vox
