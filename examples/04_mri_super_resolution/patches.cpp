#include "patches.h"

#include <algorithm>
#include <stdexcept>
#include <string>

#include <voxgrad/core/philox.h>

namespace mri {
namespace {

constexpr int64_t kSmallestPatch = 8;
constexpr int kAttempts = 64;
constexpr double kLeastHead = 0.1;  // least share of a patch's voxels that show the head

}  // namespace

PatchSampler::PatchSampler(const Volume& low, const Volume& truth, const Split& split, uint64_t seed)
    : low_(low), truth_(truth), seed_(seed) {
  int64_t deepest = 0;
  for (const Range& range : split.training) deepest = std::max(deepest, range.length());
  patch_ = std::min({patch_, deepest, low.size[1], low.size[2]});
  if (patch_ < kSmallestPatch) {
    throw std::invalid_argument("PatchSampler: the training planes, " + std::to_string(deepest) + " x " +
                                std::to_string(low.size[1]) + " x " + std::to_string(low.size[2]) +
                                " low-resolution voxels, are too small for patches of 8 x 8 x 8");
  }
  for (const Range& range : split.training) {
    if (range.length() >= patch_) ranges_.push_back(range);
  }
}

bool PatchSampler::has_head(Size origin) const {
  int64_t count = 0;
  for_each_voxel({origin, {origin[0] + patch_, origin[1] + patch_, origin[2] + patch_}},
                 [&](int64_t d, int64_t h, int64_t w) { count += low_.at(d, h, w) > kAir; });
  return static_cast<double>(count) >= kLeastHead * static_cast<double>(patch_ * patch_ * patch_);
}

PatchSampler::Choice PatchSampler::choose(int64_t step, int64_t sample) const {
  int64_t depths = 0;  // the number of planes at which a patch can begin
  for (const Range& range : ranges_) depths += range.length() - patch_ + 1;
  Choice choice{};
  for (int attempt = 0; attempt < kAttempts; ++attempt) {
    // The complement of the seed, because the seed itself gives the initial weights.
    const auto random = vox::philox_block(~seed_, static_cast<uint64_t>(step),
                                          static_cast<uint64_t>(sample * kAttempts + attempt));
    int64_t plane = pick(random.word[0], depths);
    for (const Range& range : ranges_) {
      const int64_t here = range.length() - patch_ + 1;
      if (plane < here) {
        plane += range.begin;
        break;
      }
      plane -= here;
    }
    choice.origin = {plane, pick(random.word[1], low_.size[1] - patch_ + 1),
                     pick(random.word[2], low_.size[2] - patch_ + 1)};
    for (int axis = 0; axis < 3; ++axis) choice.mirror[axis] = random.word[3] >> axis & 1;
    if (has_head(choice.origin)) break;  // after kAttempts failures the last patch is taken
  }
  return choice;
}

vox::data::Sample PatchSampler::sample(int64_t index) const {
  const Choice choice = choose(index / kBatchSize, index % kBatchSize);
  const Size origin = choice.origin;
  std::vector<float> low, truth;
  append_box(low_.voxels, low_.size, origin, patch_, choice.mirror, low);
  append_box(truth_.voxels, truth_.size, {2 * origin[0], 2 * origin[1], 2 * origin[2]}, 2 * patch_,
             choice.mirror, truth);
  const int64_t p = patch_;
  return {vox::from_vector<float>(low, {1, p, p, p}),
          vox::from_vector<float>(truth, {1, 2 * p, 2 * p, 2 * p})};
}

}  // namespace mri
