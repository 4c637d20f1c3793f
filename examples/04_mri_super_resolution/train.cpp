#include "train.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <limits>

#include <voxgrad/nn/optim/schedule.h>

#include "interrupt.h"
#include "progress.h"

namespace mri {
namespace {

constexpr double kLearningRate = 1e-3;
constexpr double kSecondsBetweenCheckpoints = 60;

// One step of gradient descent; returns the loss before it.
float take_step(TrainingState& state, const Batch& batch, double rate, vox::Device device) {
  state.optimizer.zero_grad();
  vox::Tensor loss = vox::mse_loss(state.network(batch.low.to(device)), batch.truth.to(device));
  loss.backward();
  state.optimizer.set_lr(rate);
  state.optimizer.step();
  return loss.item();
}

}  // namespace

Outcome train(TrainingState& state, const PatchSampler& patches, const TrainingPlan& plan,
              const std::function<double()>& evaluate) {
  using Clock = std::chrono::steady_clock;
  const auto seconds_since = [](Clock::time_point start) {
    return std::chrono::duration<double>(Clock::now() - start).count();
  };
  const double seconds_before = state.seconds;
  const auto start = Clock::now();
  auto saved = start;
  const auto record_evaluation = [&] {
    state.history.evaluated_steps.push_back(state.step);
    state.history.evaluated_psnr.push_back(static_cast<float>(evaluate()));
  };
  const int64_t evaluate_every = std::max<int64_t>(plan.steps / 12, 1);
  if (state.step == 0) record_evaluation();

  Outcome outcome = Outcome::finished;
  const double time =
      plan.minutes > 0 ? 60 * plan.minutes - seconds_before : std::numeric_limits<double>::infinity();
  Progress progress(state.step, plan.steps, stderr, time);
  while (state.step < plan.steps) {
    const int64_t step = state.step + 1;
    const double rate =
        vox::optim::cosine_lr(state.step, {.base_lr = kLearningRate, .total_steps = plan.steps});
    const float loss = take_step(state, patches.batch(step), rate, plan.device);
    state.step = step;
    state.history.loss.push_back(loss);
    if (step % evaluate_every == 0 || step == plan.steps) record_evaluation();
    progress.update(step, loss, -10 * std::log10(loss));

    state.seconds = seconds_before + seconds_since(start);
    if (interrupted() || step == plan.stop_after) {
      outcome = Outcome::interrupted;
      break;
    }
    if (plan.minutes > 0 && state.seconds > 60 * plan.minutes && step < plan.steps) {
      outcome = Outcome::out_of_time;
      break;
    }
    if (seconds_since(saved) > kSecondsBetweenCheckpoints) {
      save_checkpoint(state, plan.checkpoint);
      saved = Clock::now();
    }
  }
  save_checkpoint(state, plan.checkpoint);
  return outcome;
}

}  // namespace mri
