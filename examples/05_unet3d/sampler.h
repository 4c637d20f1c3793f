// Training data: random patches of a labelled scan.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <stdexcept>
#include <utility>
#include <vector>

#include <voxgrad/core/philox.h>
#include <voxgrad/voxgrad.h>

#include "../common/sampling.h"
#include "unet.h"

namespace unet {

/// Draws cubes of the coronal planes for training, mirrored at random. Intensities are raised to a random
/// power from 0.7 to 1.4, because other scans have other contrasts. Every second cube lies anywhere; the
/// others have a voxel of the structure near the middle, because few would show it otherwise. A cube that
/// reaches beyond its range of planes shows their reflection there, so planes at the end of the range also
/// come to lie in the middle of cubes. A sample is a pure function of (seed, step, of_batch), so a resumed
/// run sees the same patches as an unbroken one.
class Sampler {
 public:
  /// Throws std::invalid_argument if the volume is too small, or no voxel of the structure lies in the planes
  /// for training.
  Sampler(const mri::Volume& scan, const mri::Mask& structure, const mri::Split& split, uint64_t seed);

  /// The scan, (1, P, P, P) of f32, and the target, (P, P, P) of i64: 1 is the structure. `of_batch` is the
  /// sample's number in the batch of a step.
  vox::data::Sample sample(int64_t step, int64_t of_batch) const;

  static constexpr int64_t kBatchSize = 2;
  static constexpr int64_t kPatch = 48;
  /// The edge of a cube: kPatch, or less for a small volume; a multiple of 8, at least 16.
  int64_t patch() const { return patch_; }

 private:
  // A range of planes, extended at either end by reflections, half a patch deep.
  struct Part {
    mri::Volume scan;
    mri::Mask structure;
  };
  struct Place {
    size_t part;
    mri::Size voxel;
  };
  std::vector<Part> parts_;
  std::vector<Place> places_;  // of the structure
  uint64_t seed_;
  int64_t patch_;
};

inline Sampler::Sampler(const mri::Volume& scan, const mri::Mask& structure, const mri::Split& split,
                        uint64_t seed)
    : seed_(seed) {
  patch_ = std::min<int64_t>({kPatch, scan.size[0], scan.size[2]});
  for (const mri::Range& range : split.training) patch_ = std::min(patch_, 2 * range.length());
  patch_ = patch_ / UNet::kMultiple * UNet::kMultiple;
  if (patch_ < 2 * UNet::kMultiple)
    throw std::invalid_argument(
        "Sampler: the planes for training are too few or too small for patches of 16^3");

  for (const mri::Range& range : split.training) {
    const int64_t margin = patch_ / 2, length = range.length();
    Part part{mri::Volume({scan.size[0], length + 2 * margin, scan.size[2]}), {}};
    const mri::Size& size = part.scan.size;
    for_each_voxel(mri::whole(size), [&](int64_t d, int64_t padded, int64_t w) {
      const int64_t h = padded - margin, inside = h < 0 ? -1 - h : h >= length ? 2 * length - 1 - h : h;
      const size_t from = scan.index(d, range.begin + inside, w);
      part.scan.at(d, padded, w) = scan.voxels[from];
      part.structure.push_back(structure[from]);
      if (h == inside && structure[from]) places_.push_back({parts_.size(), {d, padded, w}});
    });
    parts_.push_back(std::move(part));
  }
  if (places_.empty())
    throw std::invalid_argument("Sampler: no voxel of the structure lies in the planes for training");
}

inline vox::data::Sample Sampler::sample(int64_t step, int64_t of_batch) const {
  // The complement of the seed, because the seed itself gives the initial weights.
  const auto choice = [&](int64_t block) {
    return vox::philox_block(~seed_, static_cast<uint64_t>(step),
                             static_cast<uint64_t>(2 * of_batch + block));
  };
  const vox::PhiloxWords which = choice(0), where = choice(1);
  const auto count = static_cast<int64_t>(places_.size());
  const Place& place = places_[static_cast<size_t>(mri::pick(which.word[0], count))];
  const bool anywhere = of_batch % 2 == 1;
  const Part& part = parts_[place.part];
  mri::Size origin{};
  bool mirror[3];
  for (int axis = 0; axis < 3; ++axis) {
    const int64_t most = part.scan.size[axis] - patch_;
    origin[axis] = anywhere ? mri::pick(where.word[axis], most + 1)
                            : place.voxel[axis] - patch_ / 4 - mri::pick(where.word[axis], patch_ / 2);
    origin[axis] = std::clamp<int64_t>(origin[axis], 0, most);
    mirror[axis] = where.word[3] >> axis & 1;
  }
  std::vector<float> scan;
  std::vector<int64_t> target;
  mri::append_box(part.scan.voxels, part.scan.size, origin, patch_, mirror, scan);
  const double exponent = std::exp2(std::ldexp(which.word[1], -32) - 0.5);
  for (float& v : scan) v = static_cast<float>(std::pow(static_cast<double>(v), exponent));
  mri::append_box(part.structure, part.scan.size, origin, patch_, mirror, target);
  const int64_t p = patch_;
  return {vox::from_vector<float>(scan, {1, p, p, p}), vox::from_vector<int64_t>(target, {p, p, p})};
}

}  // namespace unet
