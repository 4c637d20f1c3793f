#include "training.h"

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <limits>
#include <optional>
#include <stdexcept>

namespace mri {

namespace {

/// The checkpoint of `state`, whose plan is `seed` and `steps`.
vox::nn::Checkpoint checkpoint_of(TrainingState& state, int64_t& seed, int64_t& steps) {
  vox::nn::Checkpoint checkpoint;
  checkpoint.add("network", state.network);
  checkpoint.add("optimizer", state.optimizer);
  checkpoint.add("seed", seed);
  checkpoint.add("steps", steps);
  checkpoint.add("step", state.step);
  checkpoint.add("seconds", state.seconds);
  checkpoint.add("loss", state.history.loss);
  checkpoint.add("evaluated_steps", state.history.evaluated_steps);
  checkpoint.add("evaluated_score", state.history.evaluated_score);
  return checkpoint;
}

}  // namespace

void save_checkpoint(TrainingState& state, const std::filesystem::path& path) {
  auto seed = static_cast<int64_t>(state.seed);
  checkpoint_of(state, seed, state.steps).save(path);
}

void load_checkpoint(TrainingState& state, const std::filesystem::path& path) {
  if (!std::filesystem::exists(path)) {
    throw std::runtime_error("load_checkpoint: there is no " + path.string() + " to resume from");
  }
  int64_t seed = 0, steps = 0;
  checkpoint_of(state, seed, steps).load(path);
  if (static_cast<uint64_t>(seed) != state.seed || steps != state.steps) {
    throw std::runtime_error("load_checkpoint: " + path.string() + " is of a run with --seed " +
                             std::to_string(static_cast<uint64_t>(seed)) + " --steps " +
                             std::to_string(steps) + ", this one has --seed " + std::to_string(state.seed) +
                             " --steps " + std::to_string(state.steps));
  }
  if (state.step < 0 || state.step > steps || static_cast<int64_t>(state.history.loss.size()) != state.step ||
      (state.step > 0 && state.history.evaluated_steps.empty()) ||
      state.history.evaluated_steps.size() != state.history.evaluated_score.size()) {
    throw std::runtime_error("load_checkpoint: " + path.string() + " contradicts itself");
  }
}

namespace {

constexpr double kSecondsBetweenCheckpoints = 60;

std::string progress_text(float loss, const History& history, const std::string& unit) {
  char text[80];
  std::snprintf(text, sizeof text, "loss %.6f  %.4g ", static_cast<double>(loss),
                static_cast<double>(history.evaluated_score.back()));
  return text + unit;
}

}  // namespace

Outcome train(TrainingState& state, const TrainingPlan& plan) {
  using Clock = std::chrono::steady_clock;
  const auto seconds_since = [](Clock::time_point start) {
    return std::chrono::duration<double>(Clock::now() - start).count();
  };
  const double seconds_before = state.seconds;
  const auto start = Clock::now();
  auto saved = start;
  const auto record_evaluation = [&] {
    state.history.evaluated_steps.push_back(state.step);
    state.history.evaluated_score.push_back(static_cast<float>(plan.evaluate()));
  };
  const int64_t evaluate_every = std::max<int64_t>(state.steps / 12, 1);
  if (state.step == 0) record_evaluation();

  Outcome outcome = Outcome::finished;
  const double time =
      plan.minutes > 0 ? 60 * plan.minutes - seconds_before : std::numeric_limits<double>::infinity();
  std::optional<vox::nn::Progress> progress;
  const auto save = [&] {
    if (!plan.checkpoint.empty()) save_checkpoint(state, plan.checkpoint);
  };
  if (!plan.checkpoint.empty())
    progress.emplace(state.steps, vox::nn::ProgressOptions{.done = state.step, .seconds = time});
  while (state.step < state.steps) {
    const int64_t step = state.step + 1;
    const float loss = plan.take_step(step);
    state.step = step;
    state.history.loss.push_back(loss);
    if (step % evaluate_every == 0 || step == state.steps) record_evaluation();
    if (progress) progress->update(step, progress_text(loss, state.history, plan.score_unit));

    state.seconds = seconds_before + seconds_since(start);
    if (plan.any(interrupted() || step == plan.stop_after)) {
      outcome = Outcome::interrupted;
      break;
    }
    if (plan.minutes > 0 && plan.any(state.seconds > 60 * plan.minutes) && step < state.steps) {
      outcome = Outcome::out_of_time;
      break;
    }
    if (seconds_since(saved) > kSecondsBetweenCheckpoints) {
      save();
      saved = Clock::now();
    }
  }
  save();
  return outcome;
}

namespace {

volatile std::sig_atomic_t signalled = 0;

extern "C" void remember_signal(int) { signalled = 1; }

}  // namespace

void catch_interrupts() {
  for (const int signal : {SIGINT, SIGTERM}) {
    struct sigaction action = {};
    action.sa_handler = remember_signal;
    action.sa_flags = SA_RESTART | static_cast<int>(SA_RESETHAND);  // the next signal has its default effect
    sigaction(signal, &action, nullptr);
  }
}

bool interrupted() { return signalled != 0; }

}  // namespace mri
