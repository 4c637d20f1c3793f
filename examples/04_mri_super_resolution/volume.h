// A 3-D image in memory: the one value that every step of the experiment passes on.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace mri {

/// Sizes, offsets and voxel edges always stand in D, H, W order.
using Size = std::array<int64_t, 3>;

/// A scalar volume. W runs fastest: voxel (d, h, w) is `voxels[(d * H + h) * W + w]`.
///
/// After `read_nifti` the axes are anatomical: D runs from foot to head, H from back to front, W from the
/// subject's left to right.
struct Volume {
  Size size{};
  std::vector<float> voxels;
  std::array<double, 3> spacing{1, 1, 1};  ///< Edges of one voxel in mm; only figures look at it.

  Volume() = default;
  explicit Volume(Size extent, float fill = 0)
      : size(extent), voxels(static_cast<std::size_t>(extent[0] * extent[1] * extent[2]), fill) {}

  int64_t numel() const { return size[0] * size[1] * size[2]; }
  std::size_t index(int64_t d, int64_t h, int64_t w) const {
    return static_cast<std::size_t>((d * size[1] + h) * size[2] + w);
  }
  float& at(int64_t d, int64_t h, int64_t w) { return voxels[index(d, h, w)]; }
  float at(int64_t d, int64_t h, int64_t w) const { return voxels[index(d, h, w)]; }
};

/// The box of `size` voxels that starts at `begin`. Throws std::out_of_range if it leaves the volume.
Volume crop(const Volume& volume, Size begin, Size size);

/// Drops the last plane of each axis whose size is odd, so that 2x2x2 cells tile the volume.
/// Throws std::invalid_argument if an axis is shorter than 2.
Volume crop_to_even(const Volume& volume);

}  // namespace mri
