#include "tests/support/test.h"

namespace vox::optim {
namespace {

class GradScalerTest : public DeviceTest {
 protected:
  Tensor parameter(float value) { return full({2}, value, {.device = device()}).set_requires_grad(); }
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

TEST_P(GradScalerTest, StateAndDisabled) {
  Tensor p = parameter(3);
  SGD sgd({p}, {.lr = 1});
  GradScaler scaler({.init_scale = 8, .growth_interval = 2}), other({.growth_interval = 2});
  const auto step = [&](GradScaler& s) {
    sgd.zero_grad();
    s.scale(sum(p)).backward();
    s.step(sgd);
    s.update();
  };
  step(scaler);
  other.load_state_dict(scaler.state_dict());
  EXPECT_EQ(other.get_scale(), 8);
  step(other);
  EXPECT_EQ(other.get_scale(), 16);
  EXPECT_ERRORS(
      ValueError, other.load_state_dict({{"scale", full({}, 1, {f64})}}),
      other.load_state_dict({{"scale", full({}, -1, {f64})}, {"growth_tracker", full({}, 0, {i64})}}));
  const Tensor tracker = full({}, 0, {i64});
  EXPECT_MESSAGE(Error, other.load_state_dict({{"scale", ones({3}, {f64})}, {"growth_tracker", tracker}}),
                 "GradScaler::load_state_dict: 'scale': item: needs exactly one element, got shape (3,)");
  EXPECT_EQ(other.get_scale(), 16);

  GradScaler off({.enabled = false});
  EXPECT_EQ(off.get_scale(), 1);
  const Tensor loss = sum(p);
  EXPECT_EQ(off.scale(loss).impl(), loss.impl());
  step(off);
  EXPECT_EQ(sgd.steps(), 3);
}

TEST_P(GradScalerTest, Errors) {
  EXPECT_ERRORS(ValueError, GradScaler({.init_scale = 0}), GradScaler({.growth_factor = 1}),
                GradScaler({.backoff_factor = 1}), GradScaler({.growth_interval = 0}));
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
  Tensor half = ones({2}, {f16, device()}).set_requires_grad();
  SGD of_half({half}, {.lr = 1});
  sum(half).backward();
  EXPECT_THROW(scaler.unscale_(of_half), DTypeError);
}

}  // namespace
}  // namespace vox::optim
