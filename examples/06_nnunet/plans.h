// A model folder of nnU-Net v2: what plans.json, dataset.json and the converted weights say about one
// configuration.
#pragma once

#include <array>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include <voxgrad/nn/serialize.h>
#include <voxgrad/ops/triple.h>

namespace nnunet {

/// A model folder or a scan that cannot be used. The message names the file, the rule, and what was found.
struct ModelError : std::runtime_error {
  using std::runtime_error::runtime_error;
};

/// How nnU-Net normalises one channel.
struct Channel {
  enum class Scheme { z_score, ct, none, rescale_to_01, rgb_to_01 };
  Scheme scheme = Scheme::z_score;
  bool use_mask = false;                              ///< z_score: of the voxels inside the mask alone
  double mean = 0, deviation = 1, low = 0, high = 0;  ///< ct: of the training data's foreground
};

/// The arguments of resample_data_or_seg_to_shape.
struct Resampling {
  int order = 3;    ///< of the splines
  int order_z = 0;  ///< along a coarse axis, which is resampled on its own
  std::optional<bool> force_separate_z;
};

/// PlainConvUNet or ResidualEncoderUNet. One entry for each stage of the encoder, or for each but one of the
/// decoder. A 2-D network is a 3-D one whose kernels and strides have depth 1.
struct Architecture {
  bool residual = false;
  std::vector<int64_t> features, blocks, decoder_convs;
  std::vector<vox::Triple> kernel_sizes, strides;
  bool conv_bias = true, affine = true;
  double eps = 1e-5;
  double slope = 0.01;  ///< of the leaky ReLU; 0 is a ReLU
};

/// Labels, or regions: sets of labels that may overlap.
struct Labels {
  std::vector<int64_t> foreground = {};    ///< all labels except background and "ignore"
  std::vector<int64_t> region_order = {};  ///< what each region writes, in order; empty without regions
  std::vector<std::vector<int64_t>> regions = {};  ///< the labels of each region; empty without regions
  std::optional<int64_t> ignore = {};              ///< the label of voxels that are not annotated
  int64_t heads = 0;                               ///< channels of the network's output
  bool has_regions() const { return !region_order.empty(); }
};

/// One configuration (2d, 3d_fullres, 3d_lowres, 3d_cascade_fullres) with the weights of its folds.
struct Model {
  std::string configuration;
  std::array<int64_t, 3> transpose_forward{}, transpose_backward{};
  vox::Triple patch{1};         ///< of depth 1 if it is 2-D
  std::vector<double> spacing;  ///< millimetres, after transpose_forward; two numbers if it is 2-D
  std::vector<Channel> channels;
  Resampling data, segmentation, logits;
  Architecture architecture;
  Labels labels;
  std::vector<int64_t> mirrored_axes;  ///< of the patch: 0 is its first
  bool is_cascade = false;             ///< the input has the previous stage's segmentation too
  std::string file_ending;
  int64_t batch_size = 2;
  bool batch_dice = false;  ///< whether Dice losses sum over the whole batch
  std::vector<vox::nn::StateDict> folds;

  bool is_2d() const { return spacing.size() == 2; }
  int64_t in_channels() const {
    return static_cast<int64_t>(channels.size() + (is_cascade ? labels.foreground.size() : 0));
  }
};

/// What plans.json and dataset.json say about a configuration; without weights. Throws ModelError or IoError.
Model read_plans(const std::filesystem::path& plans, const std::filesystem::path& dataset,
                 const std::string& configuration);

/// The cases (training, validation) of fold "0" to "4", or of the same number in `folder`/splits_final.json
/// if that is there. Without it, every fifth of the sorted `names` is for validation. "all": all are for
/// both.
struct Split {
  std::vector<std::string> training, validation;
};
Split split(const std::filesystem::path& folder, std::vector<std::string> names, const std::string& fold);

/// Reads `folder` with the weights that convert.py made, fold_N/checkpoint_final.safetensors. Without `folds`
/// all that are there, except fold_all. Throws ModelError, or IoError for a broken file.
Model read_model(const std::filesystem::path& folder, std::vector<std::string> folds = {});

}  // namespace nnunet
