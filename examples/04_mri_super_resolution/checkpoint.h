// All that a run needs to go on after a break.
#pragma once

#include <filesystem>

#include <voxgrad/nn/optim/adam.h>

#include "figures.h"
#include "network.h"

namespace mri {

/// A training run between two steps. The random position is the pair (seed, step), see PatchSampler.
struct TrainingState {
  /// A fresh network on `device`; its weights are a function of `seed`.
  TrainingState(uint64_t seed, int64_t steps, vox::Device device);

  uint64_t seed;
  int64_t steps;  ///< planned in all; the learning rate depends on it
  int64_t step = 0;
  double seconds = 0;
  SuperResolution network;
  vox::optim::Adam optimizer;
  History history;
};

/// Writes everything as one .safetensors file, under a temporary name first, so that there is always a whole
/// one.
void save_checkpoint(const TrainingState& state, const std::filesystem::path& path);

/// Reads such a file into `state`. Throws std::runtime_error (or vox::Error) if it is missing, damaged, of
/// another network, or of a run with another seed or number of steps; `state` is not to be used then.
void load_checkpoint(TrainingState& state, const std::filesystem::path& path);

/// Writes the network's weights alone; equal weights give equal bytes.
void save_weights(const SuperResolution& network, const std::filesystem::path& path);

}  // namespace mri
