#include "tests/support/test.h"

namespace vox::optim {
namespace {

TEST(ScheduleTest, StepLrFallsEveryStepSize) {
  const StepSchedule s{.base_lr = 8, .step_size = 3, .gamma = 0.5};
  const double want[] = {8, 8, 8, 4, 4, 4, 2, 2, 2, 1};
  for (int64_t step = 0; step < 10; ++step) EXPECT_DOUBLE_EQ(step_lr(step, s), want[step]) << step;
  EXPECT_ERRORS(ValueError, step_lr(-1, s), step_lr(0, {.base_lr = 1, .step_size = 0}));
}

TEST(ScheduleTest, CosineFromBaseToMin) {
  const CosineSchedule s{.base_lr = 3, .total_steps = 6, .min_lr = 1};
  const double half_root3 = std::sqrt(3.0) / 2;  // cos(30 degrees)
  const double want[] = {3, 2 + half_root3, 2.5, 2, 1.5, 2 - half_root3, 1, 1, 1};
  for (int64_t step = 0; step < 9; ++step) EXPECT_NEAR(cosine_lr(step, s), want[step], 1e-15) << step;
}

TEST(ScheduleTest, CosineWarmsUpLinearly) {
  const CosineSchedule s{.base_lr = 4, .total_steps = 8, .warmup_steps = 4};
  const double root = std::sqrt(2.0);
  const double want[] = {1, 2, 3, 4, 4, 2 + root, 2, 2 - root, 0};
  for (int64_t step = 0; step < 9; ++step) EXPECT_NEAR(cosine_lr(step, s), want[step], 1e-15) << step;
}

TEST(ScheduleTest, PolynomialFallsToZero) {
  const PolynomialSchedule s{.base_lr = 8, .total_steps = 4, .power = 2};
  const double want[] = {8, 4.5, 2, 0.5, 0, 0};
  for (int64_t step = 0; step < 6; ++step) EXPECT_DOUBLE_EQ(polynomial_lr(step, s), want[step]) << step;
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
  const double want[] = {3, 2, 3, 2, 3}, want_longer[] = {3, 3, 2, 3, 2 + root2 / 2, 2, 2 - root2 / 2, 3};
  for (int64_t step = 0; step < 5; ++step)
    EXPECT_NEAR(warm_restarts_lr(step, same), want[step], 1e-14) << step;
  for (int64_t step = 0; step < 8; ++step)
    EXPECT_NEAR(warm_restarts_lr(step, longer), want_longer[step], 1e-14) << step;
  EXPECT_NEAR(warm_restarts_lr(int64_t{1} << 40, same), 3, 1e-14);
  EXPECT_ERRORS(ValueError, warm_restarts_lr(0, {.base_lr = 1, .period = 0}),
                warm_restarts_lr(0, {.base_lr = 1, .period = 1, .period_factor = 0}));
}

// The formula of torch.optim.lr_scheduler.OneCycleLR, evaluated in Python.
TEST(ScheduleTest, OneCycle) {
  const OneCycleSchedule s{.max_lr = 1, .total_steps = 10};
  const Doubles want{0.04,
                     0.52,
                     1,
                     0.9504846320134737,
                     0.8117456539497631,
                     0.6112620219362893,
                     0.38874197806371075,
                     0.18825834605023697,
                     0.049519367986526286,
                     4e-06,
                     4e-06};
  for (int64_t step = 0; step < 11; ++step) EXPECT_NEAR(one_cycle_lr(step, s), want[step], 1e-14) << step;
  const OneCycleSchedule line{.max_lr = 2,
                              .total_steps = 8,
                              .pct_start = 0.5,
                              .div_factor = 10,
                              .final_div_factor = 100,
                              .linear = true};
  const double want_line[] = {0.2, 0.8, 1.4, 2, 1.5005, 1.001, 0.5015, 0.002};
  for (int64_t step = 0; step < 8; ++step)
    EXPECT_NEAR(one_cycle_lr(step, line), want_line[step], 1e-14) << step;
  EXPECT_EQ(one_cycle_lr(0, {.max_lr = 2, .total_steps = 1}), 2 / 25.0 / 1e4);
  EXPECT_ERRORS(ValueError, one_cycle_lr(0, {.max_lr = 1, .total_steps = 0}),
                one_cycle_lr(0, {.max_lr = 1, .total_steps = 5, .pct_start = 1.5}),
                one_cycle_lr(0, {.max_lr = 1, .total_steps = 5, .div_factor = 0}));
}

TEST(ScheduleTest, WarmupIsAFactor) {
  const double want[] = {0.25, 0.5, 0.75, 1, 1};
  for (int64_t step = 0; step < 5; ++step) EXPECT_DOUBLE_EQ(warmup(step, 4), want[step]) << step;
  EXPECT_EQ(warmup(0, 0), 1);
  EXPECT_ERRORS(ValueError, warmup(-1, 4), warmup(0, -1));
}

TEST(ScheduleTest, CosineRefusesImpossibleSteps) {
  EXPECT_ERRORS(ValueError, cosine_lr(-1, {.base_lr = 1, .total_steps = 5}),
                cosine_lr(0, {.base_lr = 1, .total_steps = 0}),
                cosine_lr(0, {.base_lr = 1, .total_steps = 5, .warmup_steps = 5}),
                cosine_lr(0, {.base_lr = 1, .total_steps = 5, .warmup_steps = -1}));
}

TEST(ScheduleTest, ARateThatWasForgottenIsRefused) {
  EXPECT_ERRORS(
      ValueError, step_lr(0, {.base_lr = 0, .step_size = 5}), exponential_lr(0, {.base_lr = 0, .gamma = 0.5}),
      cosine_lr(0, {.base_lr = 0, .total_steps = 5}), warm_restarts_lr(0, {.base_lr = 0, .period = 5}),
      one_cycle_lr(0, {.max_lr = 0, .total_steps = 5}), polynomial_lr(0, {.base_lr = 0, .total_steps = 5}));
}

}  // namespace
}  // namespace vox::optim
