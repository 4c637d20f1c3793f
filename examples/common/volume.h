// A head in memory: read from a scan or computed, its intensities brought to 0..1, degraded and interpolated.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include <voxgrad/core/tensor.h>

namespace mri {

/// Sizes, offsets and voxel edges always stand in D, H, W order.
using Size = std::array<int64_t, 3>;

/// A scalar volume. W runs fastest: voxel (d, h, w) is `voxels[(d * H + h) * W + w]`.
///
/// After `read_scan` the axes are anatomical: D runs from foot to head, H from back to front, W from the
/// subject's left to right.
struct Volume {
  Size size{};
  std::vector<float> voxels;
  std::array<double, 3> spacing{1, 1, 1};  ///< Edges of one voxel in mm; only figures use them.

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

/// The voxels as a tensor (1, 1, D, H, W), and back. Spacing is not part of a tensor.
vox::Tensor to_tensor(const Volume& volume);
Volume to_volume(const vox::Tensor& tensor);

/// Air is at most this, once intensities are normalised.
constexpr float kAir = 0.02f;

/// One byte per voxel: 1 if the voxel counts.
using Mask = std::vector<uint8_t>;

/// The voxels [begin, end).
struct Box {
  Size begin{}, end{};
  int64_t length(int axis) const { return end[axis] - begin[axis]; }
};

/// All of a volume.
inline Box whole(const Size& size) { return {{0, 0, 0}, size}; }

/// Calls f(d, h, w) for the voxels of `box`, in the order of memory.
template <class F>
void for_each_voxel(const Box& box, F f) {
  for (int64_t d = box.begin[0]; d < box.end[0]; ++d) {
    for (int64_t h = box.begin[1]; h < box.end[1]; ++h) {
      for (int64_t w = box.begin[2]; w < box.end[2]; ++w) f(d, h, w);
    }
  }
}

/// The smallest box around the voxels of `mask`; one without voxels if there are none.
Box bounding_box(const Mask& mask, const Size& size);

/// Planes [begin, end) along an axis.
struct Range {
  int64_t begin = 0, end = 0;
  int64_t length() const { return end - begin; }
};

/// The box of `size` voxels that starts at `begin`. Throws std::out_of_range if it leaves the volume.
Volume crop(const Volume& volume, Size begin, Size size);

/// Drops the last plane of each axis whose size is odd, so that 2x2x2 cells tile the volume.
/// Throws std::invalid_argument if an axis is shorter than 2.
Volume crop_to_even(const Volume& volume);

/// A scan as stored: real-world values (`scl_slope * stored + scl_inter`), not yet normalised.
struct Scan {
  Volume volume;
  bool is_uint8 = false;  ///< Stored as unscaled bytes: 255 is white.
};

/// vox::read_image of a volume without channels, its axes turned to the anatomical order that `Volume`
/// documents. Voxels that are not finite become 0. Throws std::runtime_error if no axis may be 1 and one is.
Scan read_scan(const std::string& path);

/// The modified Shepp-Logan head, which needs no file, sampled on `size` voxels over the cube [-1, 1]^3. Each
/// voxel is the mean of 2x2x2 points in it, so that surfaces have partial volumes as in a scan. Intensities
/// lie in 0..1. Throws std::invalid_argument unless all sizes are positive.
Volume shepp_logan(Size size);

/// The value below which `percent` of the voxels lie, linearly interpolated between ranks (NumPy's default).
/// Throws std::invalid_argument for an empty volume or a percentage outside 0..100.
float percentile(const Volume& volume, double percent);

/// Brings intensities to 0..1. Unscaled bytes are divided by 255; any other scan is mapped so that its 0.5
/// and 99.5 percentiles become 0 and 1, and clipped there. Throws std::invalid_argument if the two
/// percentiles coincide.
Volume normalise(const Scan& scan);

// Resolution.
//
// Both functions are aligned by half voxels (`align_corners=false`): low-resolution voxel i covers
// high-resolution voxels 2i and 2i+1, so its centre lies between theirs.

/// The degradation that the network learns to undo: each voxel is the mean of a 2x2x2 cell. Throws
/// std::invalid_argument unless all sizes are even.
Volume downsample(const Volume& high);

/// The classical method that the network has to beat: trilinear interpolation to twice the size, with the
/// edge voxels repeated beyond the edge. Along each axis `out[2i] = 0.25 in[i-1] + 0.75 in[i]` and
/// `out[2i+1] = 0.75 in[i] + 0.25 in[i+1]`.
Volume upsample_trilinear(const Volume& low);

}  // namespace mri
