#include "network.h"

#include <string>
#include <utility>

namespace mri {
namespace {

constexpr int64_t kFeatures = 16;
constexpr int64_t kRefinements = 2;
static_assert(SuperResolution::kReach == 1 + kRefinements + 1);

vox::nn::Conv3d conv(int64_t in_channels) {
  return vox::nn::Conv3d(
      {.in_channels = in_channels, .out_channels = kFeatures, .kernel_size = 3, .padding = 1});
}

}  // namespace

SuperResolution::SuperResolution() {
  extract_ = register_module("extract", conv(1));
  for (int64_t i = 0; i < kRefinements; ++i) {
    refine_.push_back(register_module("refine" + std::to_string(i), conv(kFeatures)));
  }
  upsample_ = register_module(
      "upsample",
      vox::nn::ConvTranspose3d(
          {.in_channels = kFeatures, .out_channels = 1, .kernel_size = 4, .stride = 2, .padding = 1}));
  const auto guard = vox::no_grad();
  upsample_->weight.zero_();
  upsample_->bias.zero_();
}

vox::Tensor SuperResolution::forward(const vox::Tensor& low) {
  vox::Tensor features = vox::relu((*extract_)(low));                                   // (N, 16, D, H, W)
  for (const auto& conv : refine_) features = features + vox::relu((*conv)(features));  // (N, 16, D, H, W)
  const vox::Tensor trilinear =
      vox::interpolate(low, {.scale_factor = {{2, 2, 2}}, .mode = vox::InterpolateOptions::Mode::trilinear});
  return trilinear + (*upsample_)(features);  // (N, 1, 2D, 2H, 2W)
}

}  // namespace mri
