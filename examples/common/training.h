// Training: its state, the loop, and what a long run needs: checkpoints and Ctrl-C.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include <voxgrad/voxgrad.h>

namespace mri {

/// What happened during training.
struct History {
  std::vector<float> loss;  ///< of step 1, 2, ...
  std::vector<int64_t> evaluated_steps;
  std::vector<float> evaluated_score;  ///< on the data kept out of training, after each of those steps
};

/// The state of a training run between two steps. There is no random state: (seed, step) gives the next
/// patches.
struct TrainingState {
  vox::nn::Module& network;
  vox::optim::Optimizer& optimizer;
  uint64_t seed;
  int64_t steps;  ///< planned in total; the learning rate depends on it
  int64_t step = 0;
  double seconds = 0;  ///< spent training, over all resumed runs
  History history = {};
};

/// Writes everything as one file, with vox::nn::Checkpoint.
void save_checkpoint(TrainingState& state, const std::filesystem::path& path);

/// Reads such a file into `state`. Throws std::runtime_error (or vox::Error) if it is missing, damaged, of
/// another network, or of a run with another seed or number of steps; `state` must not be used after that.
void load_checkpoint(TrainingState& state, const std::filesystem::path& path);

struct TrainingPlan {
  int64_t stop_after = 0;            ///< step after which to stop as if interrupted; 0: none
  double minutes = 0;                ///< time after which to stop, over all resumed runs; 0: none
  std::string score_unit;            ///< "dB", for the progress line
  std::filesystem::path checkpoint;  ///< where to save the state; empty: neither save nor print
  /// Whether any rank passes true; with several ranks, vox::dist::any.
  std::function<bool(bool)> any = [](bool value) { return value; };

  /// Takes the given step (the first is 1) and returns its loss.
  std::function<float(int64_t step)> take_step = {};
  /// Scores the network on the data kept out of training.
  std::function<double()> evaluate = {};
};

enum class Outcome { finished, out_of_time, interrupted };

/// Takes the steps that `state` still lacks. Draws a progress line, evaluates before the first step and about
/// a dozen times after that, and saves `state` about once a minute and when it stops.
Outcome train(TrainingState& state, const TrainingPlan& plan);

/// From now on SIGINT (Ctrl-C) and SIGTERM only set a flag, which train() reads after each step. A second
/// signal ends the process as usual.
void catch_interrupts();

/// Whether SIGINT or SIGTERM has arrived since catch_interrupts().
bool interrupted();

}  // namespace mri
