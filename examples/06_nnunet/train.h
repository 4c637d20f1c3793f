// From a raw data set of nnU-Net and its plans to a model folder.
#pragma once

#include <filesystem>
#include <functional>
#include <string>

#include "plans.h"
#include "predict.h"

namespace nnunet {

struct TrainOptions {
  std::filesystem::path data;    ///< has imagesTr, labelsTr, dataset.json and perhaps splits_final.json
  std::filesystem::path plans;   ///< plans.json
  std::filesystem::path output;  ///< the model folder
  std::string configuration = "3d_fullres", fold = "0";
  vox::Device device = vox::Device::cpu();
  std::string precision = "f32";  ///< or tf32, bf16: of convolutions; weights, sums and the loss stay f32
  int64_t epochs = 1000, iterations = 250, validation_iterations = 50;  ///< as in nnU-Net
  int64_t stop_after = 0;  ///< epochs that are finished when the run ends early; 0: all
  int64_t seed = 0;
  int64_t workers = 1;     ///< threads that prepare batches
  bool resume = false;     ///< goes on after the last finished epoch
  bool overwrite = false;  ///< begins anew although the fold has a checkpoint
};

struct TrainResult {
  std::vector<double> loss;    ///< mean of each epoch
  std::vector<double> dice;    ///< of each epoch: the mean over classes on random patches of validation cases
  double validation_dice = 0;  ///< at the end: mean over whole validation cases and classes; NaN if stopped
};

/// Trains as nnUNetTrainer does and writes plans.json, dataset.json and, in fold_N, checkpoint_latest after
/// each epoch, progress.csv, and at the end checkpoint_final.safetensors and the masks of the validation
/// cases. On several ranks, each computes a part of every batch. Throws ModelError before anything is written
/// if the data do not fit the plans.
TrainResult train(const TrainOptions& options, const std::function<void(const std::string&)>& report);

}  // namespace nnunet
