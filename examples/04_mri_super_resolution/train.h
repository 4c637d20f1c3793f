// The training loop, and the state that it advances.
#pragma once

#include <filesystem>
#include <functional>

#include "checkpoint.h"
#include "patches.h"

namespace mri {

struct TrainingPlan {
  int64_t steps = 0;
  int64_t stop_after = 0;  ///< step after which to stop as if interrupted; 0: none
  double minutes = 0;      ///< time after which to stop, over all resumed runs; 0: none
  vox::Device device = vox::Device::cpu();
  std::filesystem::path checkpoint;  ///< written now and then, and at the end
};

enum class Outcome { finished, out_of_time, interrupted };

/// Minimises the mean squared error of the patches with Adam, its learning rate falling along a cosine from
/// 2e-3 to 0 over all steps, and goes on from where `state` stands. Draws a progress bar, calls `evaluate`
/// (PSNR in dB) a dozen times, and saves `state` about once a minute and when it stops.
Outcome train(TrainingState& state, const PatchSampler& patches, const TrainingPlan& plan,
              const std::function<double()>& evaluate);

}  // namespace mri
