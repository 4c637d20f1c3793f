#include "tests/support/test.h"

// What accompanies an optimiser: rates, moving averages of weights, and the scale of losses.
// checkpoint_test.cpp saves and loads their states.

namespace vox::optim {
namespace {

/// The rates of the first steps.
void expect_rates(const Doubles& want, const auto& rate, const auto& schedule) {
  for (int64_t step = 0; step < std::ssize(want); ++step)
    EXPECT_NEAR(rate(step, schedule), want[static_cast<size_t>(step)], 1e-14) << step;
}

TEST(ScheduleTest, StepLrFallsEveryStepSize) {
  const StepSchedule s{.base_lr = 8, .step_size = 3, .gamma = 0.5};
  expect_rates({8, 8, 8, 4, 4, 4, 2, 2, 2, 1}, step_lr, s);
  EXPECT_ERRORS(ValueError, step_lr(-1, s), step_lr(0, {.base_lr = 1, .step_size = 0}));
}

TEST(ScheduleTest, CosineFromBaseToMin) {
  const CosineSchedule s{.base_lr = 3, .total_steps = 6, .min_lr = 1};
  const double half_root3 = std::sqrt(3.0) / 2;  // cos(30 degrees)
  expect_rates({3, 2 + half_root3, 2.5, 2, 1.5, 2 - half_root3, 1, 1, 1}, cosine_lr, s);
}

TEST(ScheduleTest, CosineWarmsUpLinearly) {
  const CosineSchedule s{.base_lr = 4, .total_steps = 8, .warmup_steps = 4};
  const double root = std::sqrt(2.0);
  expect_rates({1, 2, 3, 4, 4, 2 + root, 2, 2 - root, 0}, cosine_lr, s);
}

TEST(ScheduleTest, PolynomialFallsToZero) {
  const PolynomialSchedule s{.base_lr = 8, .total_steps = 4, .power = 2};
  expect_rates({8, 4.5, 2, 0.5, 0, 0}, polynomial_lr, s);
  EXPECT_DOUBLE_EQ(polynomial_lr(3, {.base_lr = 1, .total_steps = 4}), std::pow(0.25, 0.9));
  EXPECT_ERRORS(ValueError, polynomial_lr(-1, s), polynomial_lr(0, {.base_lr = 1, .total_steps = 0}),
                polynomial_lr(0, {.base_lr = 1, .total_steps = 5, .power = -1}));
}

TEST(ScheduleTest, ExponentialAndWarmRestarts) {
  EXPECT_DOUBLE_EQ(exponential_lr(3, {.base_lr = 8, .gamma = 0.5}), 1);
  EXPECT_THROW(exponential_lr(-1, {.base_lr = 8, .gamma = 0.5}), ValueError);
  const WarmRestartsSchedule same{.base_lr = 3, .period = 2, .min_lr = 1},
      longer{.base_lr = 3, .period = 1, .period_factor = 2, .min_lr = 1};
  const double root2 = std::sqrt(2.0);
  expect_rates({3, 2, 3, 2, 3}, warm_restarts_lr, same);
  expect_rates({3, 3, 2, 3, 2 + root2 / 2, 2, 2 - root2 / 2, 3}, warm_restarts_lr, longer);
  EXPECT_NEAR(warm_restarts_lr(int64_t{1} << 40, same), 3, 1e-14);
  EXPECT_ERRORS(ValueError, warm_restarts_lr(0, {.base_lr = 1, .period = 0}),
                warm_restarts_lr(0, {.base_lr = 1, .period = 1, .period_factor = 0}));
}

// The formula of torch.optim.lr_scheduler.OneCycleLR, evaluated in Python.
TEST(ScheduleTest, OneCycle) {
  const OneCycleSchedule s{.max_lr = 1, .total_steps = 10};
  expect_rates({0.04, 0.52, 1, 0.9504846320134737, 0.8117456539497631, 0.6112620219362893,
                0.38874197806371075, 0.18825834605023697, 0.049519367986526286, 4e-06, 4e-06},
               one_cycle_lr, s);
  const OneCycleSchedule line{.max_lr = 2,
                              .total_steps = 8,
                              .pct_start = 0.5,
                              .div_factor = 10,
                              .final_div_factor = 100,
                              .linear = true};
  expect_rates({0.2, 0.8, 1.4, 2, 1.5005, 1.001, 0.5015, 0.002}, one_cycle_lr, line);
  EXPECT_EQ(one_cycle_lr(0, {.max_lr = 2, .total_steps = 1}), 2 / 25.0 / 1e4);
  EXPECT_ERRORS(ValueError, one_cycle_lr(0, {.max_lr = 1, .total_steps = 0}),
                one_cycle_lr(0, {.max_lr = 1, .total_steps = 5, .pct_start = 1.5}),
                one_cycle_lr(0, {.max_lr = 1, .total_steps = 5, .div_factor = 0}));
}

TEST(ScheduleTest, WarmupAndRefusals) {
  expect_rates({0.25, 0.5, 0.75, 1, 1}, warmup, 4);
  EXPECT_EQ(warmup(0, 0), 1);
  EXPECT_ERRORS(ValueError, warmup(-1, 4), warmup(0, -1));
  EXPECT_ERRORS(ValueError, cosine_lr(-1, {.base_lr = 1, .total_steps = 5}),
                cosine_lr(0, {.base_lr = 1, .total_steps = 0}),
                cosine_lr(0, {.base_lr = 1, .total_steps = 5, .warmup_steps = 5}),
                cosine_lr(0, {.base_lr = 1, .total_steps = 5, .warmup_steps = -1}));
  EXPECT_ERRORS(
      ValueError, step_lr(0, {.base_lr = 0, .step_size = 5}), exponential_lr(0, {.base_lr = 0, .gamma = 0.5}),
      cosine_lr(0, {.base_lr = 0, .total_steps = 5}), warm_restarts_lr(0, {.base_lr = 0, .period = 5}),
      one_cycle_lr(0, {.max_lr = 0, .total_steps = 5}), polynomial_lr(0, {.base_lr = 0, .total_steps = 5}));
}

DEVICE_SUITE(AverageTest);

TEST_P(AverageTest, FollowsParametersAndBuffers) {
  nn::Sequential net{nn::Linear({.in_features = 1, .out_features = 1, .tensor = on(f32)}),
                     nn::BatchNorm1d({.num_features = 1, .tensor = on(f32)})};
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
}

TEST_P(AverageTest, SixteenBitsAreAveragedInF32) {
  nn::Linear net({.in_features = 1, .out_features = 1, .bias = false, .tensor = on(bf16)});
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

/// The rate after each metric.
Doubles rates(const PlateauOptions& options, const Doubles& metrics) {
  SGD sgd({ones({1}).set_requires_grad()}, {.lr = 1});
  ReduceLROnPlateau plateau(sgd, options);
  Doubles all;
  for (double metric : metrics) {
    const double before = sgd.lr();
    const bool reduced = plateau.step(metric);
    EXPECT_EQ(sgd.lr() < before, reduced);
    all.push_back(sgd.lr());
  }
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
  SGD sgd({ones({1}).set_requires_grad()});
  ReduceLROnPlateau plateau(sgd);
  for (const double metric : {3, 2, 4, 2}) plateau.step(metric);
  EXPECT_EQ(plateau.bad_steps(), 2);
}

class GradScalerTest : public DeviceTest {
 protected:
  Tensor parameter(float value) { return full({2}, value, on(f32)).set_requires_grad(); }
};
INSTANTIATE_TEST_SUITE_P(, GradScalerTest, devices(), device_name);

TEST_P(GradScalerTest, StepsAsIfNothingHadBeenScaled) {
  Tensor p = parameter(3);
  SGD sgd({p}, {.lr = 0.5});
  GradScaler scaler({.init_scale = 8, .growth_interval = 2});
  for (int step = 0; step < 2; ++step) {
    sgd.zero_grad();
    const Tensor loss = sum(p * p);
    Tensor scaled = scaler.scale(loss);
    EXPECT_EQ(scaled.item<float>(), 8 * loss.item<float>());
    scaled.backward();
    EXPECT_TRUE(scaler.step(sgd));  // p -= 0.5 * 2 p
    EXPECT_EQ(p.grad().to_vector<float>()[0], step == 0 ? 6 : 0);
    EXPECT_EQ(scaler.get_scale(), 8);
    scaler.update();
  }
  EXPECT_EQ(p.to_vector<float>(), (Floats{0, 0}));
  EXPECT_EQ(scaler.get_scale(), 16);
}

TEST_P(GradScalerTest, SkipsStepsWithNonFiniteGradients) {
  for (float bad : {std::numeric_limits<float>::infinity(), std::numeric_limits<float>::quiet_NaN()}) {
    Tensor p = parameter(3), q = parameter(1);
    SGD sgd({p, q}, {.lr = 0.5});
    GradScaler scaler({.init_scale = 8, .backoff_factor = 0.25, .growth_interval = 2});
    const auto step = [&](float factor) {
      sgd.zero_grad();
      scaler.scale(sum(p * factor)).backward();  // q has no gradient
      const bool stepped = scaler.step(sgd);
      scaler.update();
      return stepped;
    };
    EXPECT_TRUE(step(1));
    EXPECT_FALSE(step(bad));
    EXPECT_EQ(p.to_vector<float>(), (Floats{2.5, 2.5}));
    EXPECT_EQ(sgd.steps(), 1);
    EXPECT_EQ(scaler.get_scale(), 2);
    EXPECT_TRUE(step(1));  // the count of good steps began again
    EXPECT_EQ(scaler.get_scale(), 2);
    EXPECT_TRUE(step(1));
    EXPECT_EQ(scaler.get_scale(), 4);
  }
}

TEST_P(GradScalerTest, UnscaledGradientsMayBeChangedBeforeTheStep) {
  Tensor p = parameter(3);
  SGD sgd({p}, {.lr = 1});
  GradScaler scaler({.init_scale = 8});
  scaler.scale(sum(p * 4)).backward();
  scaler.unscale_(sgd);
  EXPECT_EQ(p.grad().to_vector<float>(), (Floats{4, 4}));
  p.grad().mul_(0.25);
  scaler.step(sgd);
  EXPECT_EQ(p.to_vector<float>(), (Floats{2, 2}));
}

TEST_P(GradScalerTest, TheScaleStaysFinite) {
  Tensor p = parameter(0);
  SGD sgd({p}, {.lr = 1});
  const double largest = 0x1p127;
  GradScaler scaler({.init_scale = largest, .growth_interval = 1});
  scaler.scale(sum(p * 0)).backward();
  scaler.step(sgd);
  scaler.update();
  EXPECT_EQ(scaler.get_scale(), largest);
}

TEST_P(GradScalerTest, DisabledItChangesNothing) {
  Tensor p = parameter(3);
  SGD sgd({p}, {.lr = 1});
  GradScaler off({.enabled = false});
  EXPECT_EQ(off.get_scale(), 1);
  const Tensor loss = sum(p);
  EXPECT_EQ(off.scale(loss).impl(), loss.impl());
  off.scale(loss).backward();
  EXPECT_TRUE(off.step(sgd));
  off.update();
  EXPECT_EQ(sgd.steps(), 1);
}

TEST_P(GradScalerTest, Errors) {
  EXPECT_ERRORS(ValueError, GradScaler({.init_scale = 0}), GradScaler({.growth_factor = 1}),
                GradScaler({.backoff_factor = 0}), GradScaler({.backoff_factor = 1}),
                GradScaler({.growth_interval = 0}));
  Tensor p = parameter(3);
  SGD sgd({p}, {.lr = 1});
  GradScaler scaler;
  EXPECT_THROW(scaler.update(), ValueError);
  scaler.scale(sum(p)).backward();
  scaler.unscale_(sgd);
  EXPECT_THROW(scaler.unscale_(sgd), ValueError);
  scaler.step(sgd);
  EXPECT_THROW(scaler.step(sgd), ValueError);
  scaler.update();
  Tensor half = ones({2}, on(f16)).set_requires_grad();
  SGD of_half({half}, {.lr = 1});
  sum(half).backward();
  EXPECT_THROW(scaler.unscale_(of_half), DTypeError);
}

}  // namespace
}  // namespace vox::optim
