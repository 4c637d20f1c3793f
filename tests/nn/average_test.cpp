#include "tests/support/test.h"

// What accompanies an optimiser: the moving average of weights, and the rate that falls on a plateau.

namespace vox::optim {
namespace {

DEVICE_SUITE(AverageTest);

TEST_P(AverageTest, FollowsParametersAndBuffers) {
  nn::Sequential net{nn::Linear({.in_features = 1, .out_features = 1, .tensor = {.device = device()}}),
                     nn::BatchNorm1d({.num_features = 1, .tensor = {.device = device()}})};
  const auto set = [&](double weight, double mean, int64_t batches) {
    net.load_state_dict({{"0.weight", full({1, 1}, weight)},
                         {"1.running_mean", full({1}, mean)},
                         {"1.num_batches_tracked", full({}, batches, {i64})}},
                        false);
  };
  set(4, 1, 0);
  ExponentialMovingAverage average(net, {.decay = 0.75});
  set(8, 2, 5);
  average.update();
  const nn::StateDict first = average.state_dict();
  EXPECT_EQ(first.at("0.weight").item<double>(), 5);            // 0.75 * 4 + 0.25 * 8
  EXPECT_EQ(first.at("1.running_mean").item<double>(), 1.25);   // 0.75 * 1 + 0.25 * 2
  EXPECT_EQ(first.at("1.num_batches_tracked").item<int>(), 5);  // the last one
  average.update();
  EXPECT_EQ(average.state_dict().at("0.weight").item<double>(), 5.75);
  EXPECT_EQ(first.at("0.weight").item<double>(), 5) << "a state is a copy";

  average.swap();
  EXPECT_EQ(net.state_dict().at("0.weight").item<double>(), 5.75);
  average.swap();
  EXPECT_EQ(net.state_dict().at("0.weight").item<double>(), 8);
  EXPECT_EQ(average.state_dict().at("0.weight").item<double>(), 5.75);

  const TemporaryFolder folder;
  nn::save(folder / "average", average.state_dict());
  ExponentialMovingAverage resumed(net, {.decay = 0.75});
  resumed.load_state_dict(nn::load(folder / "average").tensors);
  average.update(), resumed.update();
  for (const auto& [name, t] : average.state_dict())
    EXPECT_TRUE(same_bits(t, resumed.state_dict().at(name))) << name;
}

TEST_P(AverageTest, SixteenBitsAreAveragedInF32) {
  nn::Linear net({.in_features = 1, .out_features = 1, .bias = false, .tensor = {bf16, device()}});
  net.load_state_dict({{"weight", full({1, 1}, 1)}});
  ExponentialMovingAverage average(net, {.decay = 0.999});
  net.load_state_dict({{"weight", full({1, 1}, 2)}});
  for (int i = 0; i < 100; ++i) average.update();
  EXPECT_NEAR(average.state_dict().at("weight").item(), 2 - std::pow(0.999, 100), 1e-5);
  EXPECT_EQ(net.weight.item(), 2);
}

TEST(AverageStateTest, AForeignStateIsRefusedAndChangesNothing) {
  nn::Linear net({.in_features = 2, .out_features = 1});
  ExponentialMovingAverage average(net);
  const nn::StateDict good = average.state_dict();
  const auto refuses = [&]<class E>(E, nn::StateDict state) {
    EXPECT_THROW(average.load_state_dict(state), E);
    EXPECT_TRUE(same_bits(average.state_dict().at("bias"), good.at("bias")));
  };
  refuses(ValueError(""), {{"bias", zeros({1})}});
  refuses(ValueError(""), {{"bias", zeros({1})}, {"other", zeros({1, 2})}});
  refuses(ValueError(""), {{"bias", zeros({1})}, {"weight", Tensor()}});
  refuses(ShapeError(""), {{"bias", zeros({1})}, {"weight", zeros({2, 1})}});
  EXPECT_THROW(ExponentialMovingAverage(net, {.decay = 1}), ValueError);
}

// ---- ReduceLROnPlateau ------------------------------------------------------------------------------------

/// The rate after each metric.
Doubles rates(const PlateauOptions& options, const Doubles& metrics) {
  SGD sgd({ones({1}).set_requires_grad()}, {.lr = 1});
  ReduceLROnPlateau plateau(sgd, options);
  Doubles all;
  for (double metric : metrics) plateau.step(metric), all.push_back(sgd.lr());
  return all;
}

// By the rules of torch.optim.lr_scheduler.ReduceLROnPlateau.
TEST(PlateauTest, TheRateFallsAfterMoreThanPatienceBadSteps) {
  EXPECT_EQ(rates({.factor = 0.5, .patience = 1}, {3, 3, 3, 3, 3, 2, 2, 2}),
            (Doubles{1, 1, 0.5, 0.5, 0.25, 0.25, 0.25, 0.125}));
  // Two steps of cooldown are not counted.
  EXPECT_EQ(rates({.factor = 0.5, .patience = 0, .cooldown = 2}, {3, 3, 3, 3, 3}),
            (Doubles{1, 0.5, 0.5, 0.5, 0.25}));
  // 10 % better than the best, or by 0.1; larger is better.
  EXPECT_EQ(rates({.factor = 0.5, .patience = 0, .threshold = 0.1}, {10, 9.5, 8.9}), (Doubles{1, 0.5, 0.5}));
  EXPECT_EQ(
      rates({.maximize = true, .factor = 0.5, .patience = 0, .threshold = 0.1, .threshold_is_absolute = true},
            {1, 1.05, 1.2}),
      (Doubles{1, 0.5, 0.5}));
  EXPECT_EQ(rates({.factor = 0.1, .patience = 0, .min_lr = 0.05}, {1, 1, 1, 1}),
            (Doubles{1, 0.1, 0.05, 0.05}));
  EXPECT_EQ(rates({.factor = 0.5, .patience = 0, .eps = 0.6}, {1, 1}), (Doubles{1, 1}));
  EXPECT_EQ(rates({.factor = 0.5, .patience = 0}, {NAN, 1, NAN}), (Doubles{0.5, 0.5, 0.25}));
  EXPECT_ERRORS(ValueError, rates({.factor = 1}, {}), rates({.patience = -1}, {}));
}

TEST(PlateauTest, AResumedRunReducesAtTheSameStep) {
  SGD sgd({ones({1}).set_requires_grad()}, {.lr = 1}), again({ones({1}).set_requires_grad()}, {.lr = 7});
  ReduceLROnPlateau plateau(sgd, {.factor = 0.5, .patience = 1}),
      resumed(again, {.factor = 0.5, .patience = 1});
  for (double metric : {3.0, 3.0, 3.0, 3.0}) plateau.step(metric);
  const auto state = plateau.state_dict();
  resumed.load_state_dict(state);
  EXPECT_EQ(again.lr(), 0.5);
  EXPECT_EQ(resumed.bad_steps(), 1);
  EXPECT_TRUE(plateau.step(3) && resumed.step(3));
  EXPECT_EQ(again.lr(), 0.25);
  auto broken = state;
  broken["lr"] = ones({2}, {f64});
  EXPECT_THROW(resumed.load_state_dict(broken), ValueError);
  broken = state, broken.erase("best");
  EXPECT_THROW(resumed.load_state_dict(broken), ValueError);
  EXPECT_EQ(again.lr(), 0.25);
}

}  // namespace
}  // namespace vox::optim
