// From a folder of scans to a folder of masks.
#pragma once

#include <exception>
#include <filesystem>
#include <functional>
#include <new>
#include <string>
#include <vector>

#include <voxgrad/image/image.h>
#include <voxgrad/voxgrad.h>

#include "plans.h"
#include "preprocess.h"

namespace nnunet {

struct PredictOptions {
  vox::Device device = vox::Device::cpu();
  std::string precision = "f32";  ///< or tf32, bf16, f16: of convolutions on a GPU; weights and sums stay f32
  double step = 0.5;              ///< of windows, as a share of their size
  bool mirror = true;             ///< averages over flips, if the model was trained with them
};

/// How convolutions compute while it lives.
struct Precision {
  explicit Precision(const std::string& name)
      : f32(name == "tf32" ? vox::Float32Precision::high : vox::Float32Precision::highest),
        f16(vox::autocast(name == "bf16" ? vox::bf16 : vox::f16, name == "bf16" || name == "f16")) {}
  vox::PrecisionGuard f32;
  vox::AutocastGuard f16;
};

/// The logits (heads, D, H, W), f32, of a preprocessed scan: the mean over folds, windows and flips.
vox::Tensor predict_logits(const Model& model, const vox::Tensor& input, const PredictOptions& options);

/// The files of one scan, one for each channel.
struct ScanFiles {
  std::string name;
  std::vector<std::filesystem::path> channels;
};
/// The scans in `input`: files NAME_0000.nii.gz, NAME_0001.nii.gz, ... for the channels, as nnU-Net names
/// them. Throws ModelError if there are none, or if a channel is missing.
std::vector<ScanFiles> find_scans(const Model& model, const std::filesystem::path& input);

/// The channels as one image (C, D, H, W), f32. Throws ModelError if their shapes differ.
/// Voxels that are not finite become 0, as in nnU-Net's reader of NIfTI.
vox::Image read_scan(const ScanFiles& files);

/// f(); its errors name the scan. (Those of files name the file.)
template <class F>
auto in_the_name_of(const ScanFiles& one, F f) {
  try {
    return f();
  } catch (const vox::IoError&) {
    throw;
  } catch (const std::bad_alloc&) {
    throw;
  } catch (const std::exception& error) {
    throw ModelError("case " + one.name + ": " + error.what());
  }
}

/// Writes output/NAME.nii.gz for each scan in `input`: the mask, u8 (i64 with labels above 255), with the
/// scan's geometry. Each file appears whole or not at all. `previous` has the masks of a cascade's first
/// stage. Calls report(line) for each scan.
void predict_folder(const Model& model, const std::filesystem::path& input,
                    const std::filesystem::path& output, const std::filesystem::path& previous,
                    const PredictOptions& options, const std::function<void(const std::string&)>& report);

}  // namespace nnunet
