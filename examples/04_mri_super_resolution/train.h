// Training: the state that it advances, the loop, and what a long run needs besides: checkpoints, Ctrl-C, and
// a progress line.
#pragma once

#include <chrono>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <functional>
#include <limits>
#include <string>

#include <voxgrad/voxgrad.h>

#include "metrics.h"
#include "network.h"
#include "patches.h"

namespace mri {

/// A training run between two steps. It has no random state: (seed, step) gives the next patches.
struct TrainingState {
  /// A fresh network on `device`; its weights are a function of `seed`.
  TrainingState(uint64_t seed, int64_t steps, vox::Device device);

  uint64_t seed;
  int64_t steps;  ///< planned in total; the learning rate depends on it
  int64_t step = 0;
  double seconds = 0;  ///< spent training, over all resumed runs
  SuperResolution network;
  vox::optim::Adam optimizer;
  History history;
};

/// Writes everything as one .safetensors file. vox::nn::save replaces the old file only when the new one is
/// complete, so there is always a whole one.
void save_checkpoint(const TrainingState& state, const std::filesystem::path& path);

/// Reads such a file into `state`. Throws std::runtime_error (or vox::Error) if it is missing, damaged, of
/// another network, or of a run with another seed or number of steps; `state` must not be used after that.
void load_checkpoint(TrainingState& state, const std::filesystem::path& path);

/// Writes the network's weights alone; equal weights give equal bytes.
void save_weights(const SuperResolution& network, const std::filesystem::path& path);

struct TrainingPlan {
  int64_t steps = 0;
  int64_t stop_after = 0;  ///< step after which to stop as if interrupted; 0: none
  double minutes = 0;      ///< time after which to stop, over all resumed runs; 0: none
  vox::Device device = vox::Device::cpu();
  std::filesystem::path checkpoint;  ///< where to save the state
};

enum class Outcome { finished, out_of_time, interrupted };

constexpr double kLearningRate = 1e-3;

/// Minimises the mean squared error of the patches with Adam, starting from `state`. The learning rate falls
/// from kLearningRate to 0 along a cosine over all steps. Draws a progress bar, calls `evaluate` (PSNR in dB)
/// before the first step and about a dozen times after that, and saves `state` about once a minute and when
/// it stops.
Outcome train(TrainingState& state, const PatchSampler& patches, const TrainingPlan& plan,
              const std::function<double()>& evaluate);

/// From now on SIGINT (Ctrl-C) and SIGTERM only set a flag, which train() reads after each step. A second
/// signal ends the process as usual.
void catch_interrupts();

/// Whether such a signal has come.
bool interrupted();

/// Draws `[#####.....] 120/600  loss 0.000213  36.71 dB  8.1 steps/s  0:59 left`.
/// On a terminal it redraws one line, a few times a second; elsewhere it prints a line every few seconds.
class Progress {
 public:
  /// `done` of the `total` steps were made by the run that is being resumed. The training ends `seconds` from
  /// now even if steps are left.
  Progress(int64_t done, int64_t total, std::FILE* out = stderr,
           double seconds = std::numeric_limits<double>::infinity());
  /// Ends the line on the terminal.
  ~Progress();
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  /// Reports that `step` steps are done. `psnr` is the training patches' PSNR in dB.
  void update(int64_t step, double loss, double psnr);

 private:
  std::string line(int64_t step, double loss, double psnr) const;

  using Clock = std::chrono::steady_clock;
  int64_t first_, total_;
  std::FILE* out_;
  double seconds_;
  bool is_terminal_;
  Clock::time_point start_ = Clock::now();
  Clock::time_point drawn_{};
  bool line_stands_ = false;
};

}  // namespace mri
