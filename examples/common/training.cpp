#include "training.h"

#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <csignal>
#include <optional>
#include <stdexcept>
#include <utility>

namespace mri {

// ---- The state and its checkpoint ----------------------------------------------------------------------

namespace {

using vox::nn::StateDict;

const std::string kNetwork = "network.", kOptimizer = "optimizer.";

template <class T>
void put(StateDict& dict, const std::string& name, const std::vector<T>& values) {
  dict[name] = vox::from_vector<T>(values, {static_cast<int64_t>(values.size())});
}

template <class T>
std::vector<T> get(const StateDict& dict, const std::string& name) {
  const auto found = dict.find(name);
  if (found == dict.end())
    throw std::runtime_error("load_checkpoint: there is no '" + name + "' in the file");
  return found->second.to_vector<T>();
}

template <class T>
T get_one(const StateDict& dict, const std::string& name) {
  const std::vector<T> values = get<T>(dict, name);
  if (values.size() != 1) throw std::runtime_error("load_checkpoint: '" + name + "' is not one number");
  return values[0];
}

// A dict inside a dict becomes a prefix of the names.
void put_all(StateDict& dict, const std::string& prefix, const StateDict& inner) {
  for (const auto& [name, tensor] : inner) dict[prefix + name] = tensor;
}

StateDict get_all(const StateDict& dict, const std::string& prefix) {
  StateDict inner;
  for (const auto& [name, tensor] : dict) {
    if (name.starts_with(prefix)) inner[name.substr(prefix.size())] = tensor;
  }
  return inner;
}

}  // namespace

void save_checkpoint(const TrainingState& state, const std::filesystem::path& path) {
  StateDict dict;
  put_all(dict, kNetwork, state.network.state_dict());
  put_all(dict, kOptimizer, state.optimizer.state_dict());
  put<int64_t>(dict, "run.seed", {static_cast<int64_t>(state.seed)});
  put<int64_t>(dict, "run.steps", {state.steps});
  put<int64_t>(dict, "run.step", {state.step});
  put<double>(dict, "run.seconds", {state.seconds});
  put(dict, "history.loss", state.history.loss);
  put(dict, "history.evaluated_steps", state.history.evaluated_steps);
  put(dict, "history.evaluated_score", state.history.evaluated_score);
  vox::nn::save(path, dict);
}

void load_checkpoint(TrainingState& state, const std::filesystem::path& path) {
  if (!std::filesystem::exists(path)) {
    throw std::runtime_error("load_checkpoint: there is no " + path.string() + " to resume from");
  }
  const StateDict dict = vox::nn::load(path).tensors;
  const auto seed = static_cast<uint64_t>(get_one<int64_t>(dict, "run.seed"));
  const auto steps = get_one<int64_t>(dict, "run.steps");
  if (seed != state.seed || steps != state.steps) {
    throw std::runtime_error("load_checkpoint: " + path.string() + " is of a run with --seed " +
                             std::to_string(seed) + " --steps " + std::to_string(steps) +
                             ", this one has --seed " + std::to_string(state.seed) + " --steps " +
                             std::to_string(state.steps));
  }
  state.step = get_one<int64_t>(dict, "run.step");
  state.seconds = get_one<double>(dict, "run.seconds");
  state.history = {get<float>(dict, "history.loss"), get<int64_t>(dict, "history.evaluated_steps"),
                   get<float>(dict, "history.evaluated_score")};
  if (state.step < 0 || state.step > steps || static_cast<int64_t>(state.history.loss.size()) != state.step ||
      (state.step > 0 && state.history.evaluated_steps.empty()) ||
      state.history.evaluated_steps.size() != state.history.evaluated_score.size()) {
    throw std::runtime_error("load_checkpoint: " + path.string() + " contradicts itself");
  }
  state.network.load_state_dict(get_all(dict, kNetwork));
  state.optimizer.load_state_dict(get_all(dict, kOptimizer));
}

void save_weights(const vox::nn::Module& network, const std::filesystem::path& path) {
  vox::nn::save(path, network.state_dict());
}

// ---- The loop ------------------------------------------------------------------------------------------

namespace {

constexpr double kSecondsBetweenCheckpoints = 60;

std::string last_score(const History& history, const std::string& unit) {
  char number[40];
  std::snprintf(number, sizeof number, "%.4g ", static_cast<double>(history.evaluated_score.back()));
  return number + unit;
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
  std::optional<Progress> progress;
  const auto save = [&] {
    if (!plan.checkpoint.empty()) save_checkpoint(state, plan.checkpoint);
  };
  if (!plan.checkpoint.empty()) progress.emplace(state.step, state.steps, stderr, time);
  while (state.step < state.steps) {
    const int64_t step = state.step + 1;
    const float loss = plan.take_step(step);
    state.step = step;
    state.history.loss.push_back(loss);
    if (step % evaluate_every == 0 || step == state.steps) record_evaluation();
    if (progress) progress->update(step, loss, last_score(state.history, plan.score_unit));

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

// ---- Ctrl-C --------------------------------------------------------------------------------------------

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

// ---- The progress line ---------------------------------------------------------------------------------

Progress::Progress(int64_t done, int64_t total, std::FILE* out, double seconds)
    : first_(done), total_(total), out_(out), seconds_(seconds), is_terminal_(isatty(fileno(out)) == 1) {}

Progress::~Progress() {
  if (line_stands_) std::fputc('\n', out_);
}

std::string Progress::line(int64_t step, double loss, const std::string& score) const {
  constexpr int kWidth = 24;
  const double seconds = std::chrono::duration<double>(Clock::now() - start_).count();
  const double speed = seconds > 0 ? static_cast<double>(step - first_) / seconds : 0;
  const double of_steps = speed > 0 ? static_cast<double>(total_ - step) / speed : 0;
  const double left = std::ceil(std::clamp(seconds_ - seconds, 0.0, of_steps));
  // Steps or time, whichever ends the training first.
  const double of_all = static_cast<double>(step) / static_cast<double>(std::max<int64_t>(total_, 1));
  const double of_time = seconds_ > 0 ? seconds / seconds_ : 1;
  const auto filled = static_cast<int>(kWidth * std::min(std::max(of_all, of_time), 1.0));
  const std::string bar = std::string(filled, '#') + std::string(kWidth - filled, '.');
  char text[200];
  std::snprintf(text, sizeof text, "[%s] %lld/%lld  loss %.6f  %s  %.1f steps/s  %lld:%02d left", bar.c_str(),
                static_cast<long long>(step), static_cast<long long>(total_), loss, score.c_str(), speed,
                static_cast<long long>(left / 60), static_cast<int>(std::fmod(left, 60)));
  return text;
}

void Progress::update(int64_t step, double loss, const std::string& score) {
  const auto now = Clock::now();
  const bool last = step == total_;
  const auto pause = is_terminal_ ? std::chrono::milliseconds(200) : std::chrono::milliseconds(5000);
  if (!last && now - drawn_ < pause) return;
  drawn_ = now;
  // \033[K clears the rest of a longer previous line.
  std::fprintf(out_, is_terminal_ ? "\r%s\033[K" : "%s\n", line(step, loss, score).c_str());
  std::fflush(out_);
  line_stands_ = is_terminal_;
}

}  // namespace mri
