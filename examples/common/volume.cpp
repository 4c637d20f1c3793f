#include "volume.h"

#include <algorithm>
#include <cmath>
#include <numbers>
#include <stdexcept>

#include <voxgrad/core/factories.h>
#include <voxgrad/image/image.h>
#include <voxgrad/ops/interpolate.h>

namespace mri {

vox::Tensor to_tensor(const Volume& volume) {
  return vox::from_vector<float>(volume.voxels, {1, 1, volume.size[0], volume.size[1], volume.size[2]});
}

Volume to_volume(const vox::Tensor& tensor) {
  Volume volume;
  volume.size = {tensor.size(2), tensor.size(3), tensor.size(4)};
  volume.voxels = tensor.to_vector<float>();
  return volume;
}

Box bounding_box(const Mask& mask, const Size& size) {
  Box box{size, {0, 0, 0}};
  size_t i = 0;
  for_each_voxel(whole(size), [&](int64_t d, int64_t h, int64_t w) {
    if (!mask[i++]) return;
    const Size here{d, h, w};
    for (int axis = 0; axis < 3; ++axis) {
      box.begin[axis] = std::min(box.begin[axis], here[axis]);
      box.end[axis] = std::max(box.end[axis], here[axis] + 1);
    }
  });
  return box.end[0] == 0 ? Box{} : box;
}

Volume crop(const Volume& volume, Size begin, Size size) {
  for (int axis = 0; axis < 3; ++axis) {
    if (begin[axis] < 0 || size[axis] < 0 || begin[axis] > volume.size[axis] - size[axis]) {
      throw std::out_of_range("crop: [" + std::to_string(begin[axis]) + ", " +
                              std::to_string(begin[axis] + size[axis]) + ") leaves axis " +
                              std::to_string(axis) + " of size " + std::to_string(volume.size[axis]));
    }
  }
  Volume box(size);
  box.spacing = volume.spacing;
  for_each_voxel({{0, 0, 0}, {size[0], size[1], 1}}, [&](int64_t d, int64_t h, int64_t) {
    const auto row = volume.voxels.begin() + volume.index(begin[0] + d, begin[1] + h, begin[2]);
    std::copy(row, row + size[2], box.voxels.begin() + box.index(d, h, 0));
  });
  return box;
}

Volume crop_to_even(const Volume& volume) {
  Size even{};
  for (int axis = 0; axis < 3; ++axis) {
    even[axis] = volume.size[axis] / 2 * 2;
    if (even[axis] == 0) {
      throw std::invalid_argument("crop_to_even: axis " + std::to_string(axis) + " has size " +
                                  std::to_string(volume.size[axis]) + ", it needs at least 2");
    }
  }
  return crop(volume, {0, 0, 0}, even);
}

Scan read_scan(const std::string& path) {
  const vox::Image image = vox::closest_canonical(vox::read_image(path));
  const vox::Shape& shape = image.data.shape();
  if (shape.rank() != 3 || std::min({shape[0], shape[1], shape[2]}) < 2)
    throw std::runtime_error("read_scan: " + path +
                             ": needs one volume with more than one voxel along each axis");
  Scan scan{Volume({shape[0], shape[1], shape[2]}), image.data.dtype() == vox::u8};
  scan.volume.spacing = image.spacing;
  scan.volume.voxels = image.data.to(vox::f32).to_vector<float>();
  for (float& voxel : scan.volume.voxels) voxel = std::isfinite(voxel) ? voxel : 0;
  return scan;
}

namespace {

struct Ellipsoid {
  double intensity;   // added to everything inside
  double a, b, c;     // half axes along x (left to right), y (back to front), z (foot to head)
  double x0, y0, z0;  // centre
  double degrees;     // turn about its own vertical axis
};

// The "modified Shepp-Logan" table of M. Schabel, phantom3d (MATLAB Central File Exchange, 2006): ellipsoids
// of Kak and Slaney, Principles of Computerized Tomographic Imaging (1988), with the raised contrast of P.
// Toft, The Radon Transform (1996), p. 199. The table's Euler angles phi and psi turn about the same axis, as
// theta is 0; they are added here.
constexpr Ellipsoid kHead[] = {
    {+1.0, 0.6900, 0.920, 0.810, 0.00, 0.0000, 0.00, 0},    // skull
    {-0.8, 0.6624, 0.874, 0.780, 0.00, -0.0184, 0.00, 0},   // brain
    {-0.2, 0.1100, 0.310, 0.220, 0.22, 0.0000, 0.00, -8},   // right ventricle
    {-0.2, 0.1600, 0.410, 0.280, -0.22, 0.0000, 0.00, 28},  // left ventricle
    {+0.1, 0.2100, 0.250, 0.410, 0.00, 0.3500, -0.15, 0},
    {+0.1, 0.0460, 0.046, 0.050, 0.00, 0.1000, 0.25, 0},
    {+0.1, 0.0460, 0.046, 0.050, 0.00, -0.1000, 0.25, 0},
    {+0.1, 0.0460, 0.023, 0.050, -0.08, -0.6050, 0.00, 0},
    {+0.1, 0.0230, 0.023, 0.020, 0.00, -0.6060, 0.00, 0},
    {+0.1, 0.0230, 0.046, 0.020, 0.06, -0.6050, 0.00, 0},
};

bool inside(const Ellipsoid& e, double x, double y, double z) {
  const double angle = e.degrees * std::numbers::pi / 180;
  const double dx = x - e.x0, dy = y - e.y0, dz = z - e.z0;
  const double u = (std::cos(angle) * dx + std::sin(angle) * dy) / e.a;
  const double v = (-std::sin(angle) * dx + std::cos(angle) * dy) / e.b;
  const double w = dz / e.c;
  return u * u + v * v + w * w <= 1;
}

// Adds the ellipsoid's intensity to the voxels inside it, and a fraction of it to those on its surface.
void add(Volume& head, const Ellipsoid& e) {
  const double reach = std::max({e.a, e.b, e.c}), centre[] = {e.z0, e.y0, e.x0};
  const auto position = [&](int axis, double index) {
    return 2 * index / static_cast<double>(head.size[axis]) - 1;
  };
  Box box;
  for (int axis = 0; axis < 3; ++axis) {
    const auto cell = [&](double at, int64_t margin) {
      const auto index = static_cast<int64_t>((at + 1) / 2 * static_cast<double>(head.size[axis])) + margin;
      return std::clamp<int64_t>(index, 0, head.size[axis]);
    };
    box.begin[axis] = cell(centre[axis] - reach, -1);
    box.end[axis] = cell(centre[axis] + reach, 2);
  }
  for_each_voxel(box, [&](int64_t d, int64_t h, int64_t w) {
    int hits = 0;
    for (int point = 0; point < 8; ++point) {
      const auto sample = [&](int axis, int64_t index, int bit) {
        return position(axis, index + (point & bit ? 0.75 : 0.25));
      };
      hits += inside(e, sample(2, w, 1), sample(1, h, 2), sample(0, d, 4));
    }
    head.at(d, h, w) += static_cast<float>(e.intensity * hits / 8);
  });
}

}  // namespace

Volume shepp_logan(Size size) {
  if (std::min({size[0], size[1], size[2]}) < 1)
    throw std::invalid_argument("shepp_logan: sizes must be positive");
  Volume head(size);
  for (const Ellipsoid& ellipsoid : kHead) add(head, ellipsoid);
  for (float& voxel : head.voxels) voxel = std::clamp(voxel, 0.0f, 1.0f);
  return head;
}

float percentile(const Volume& volume, double percent) {
  if (volume.voxels.empty() || !(percent >= 0 && percent <= 100)) {
    throw std::invalid_argument("percentile: needs voxels and a percentage in 0..100, got " +
                                std::to_string(volume.voxels.size()) + " voxels and " +
                                std::to_string(percent));
  }
  std::vector<float> values = volume.voxels;
  const double rank = percent / 100 * static_cast<double>(values.size() - 1);
  const auto below = values.begin() + static_cast<int64_t>(rank);
  std::nth_element(values.begin(), below, values.end());
  if (below + 1 == values.end()) return *below;
  const float above = *std::min_element(below + 1, values.end());
  const double fraction = rank - static_cast<double>(static_cast<int64_t>(rank));
  return static_cast<float>(*below + fraction * (above - *below));
}

Volume normalise(const Scan& scan) {
  Volume normalised = scan.volume;
  if (scan.is_uint8) {
    for (float& voxel : normalised.voxels) voxel /= 255.0f;
    return normalised;
  }
  const float black = percentile(scan.volume, 0.5);
  const float white = percentile(scan.volume, 99.5);
  if (!(black < white)) {
    throw std::invalid_argument("normalise: the 0.5 and 99.5 percentiles are both " + std::to_string(black) +
                                ", the image has no contrast");
  }
  for (float& voxel : normalised.voxels) voxel = std::clamp((voxel - black) / (white - black), 0.0f, 1.0f);
  return normalised;
}

Volume downsample(const Volume& high) {
  Size half{};
  for (int axis = 0; axis < 3; ++axis) {
    if (high.size[axis] % 2 != 0) {
      throw std::invalid_argument("downsample: axis " + std::to_string(axis) + " has odd size " +
                                  std::to_string(high.size[axis]) + "; crop_to_even makes it even");
    }
    half[axis] = high.size[axis] / 2;
  }
  Volume low(half);
  for (int axis = 0; axis < 3; ++axis) low.spacing[axis] = 2 * high.spacing[axis];
  for_each_voxel(whole(half), [&](int64_t d, int64_t h, int64_t w) {
    float sum = 0;
    for (int64_t corner = 0; corner < 8; ++corner)
      sum += high.at(2 * d + (corner >> 2), 2 * h + (corner >> 1 & 1), 2 * w + (corner & 1));
    low.at(d, h, w) = sum / 8;
  });
  return low;
}

Volume upsample_trilinear(const Volume& low) {
  Volume high = to_volume(vox::interpolate(
      to_tensor(low), {.scale_factor = 2, .mode = vox::InterpolateOptions::Mode::trilinear}));
  for (int axis = 0; axis < 3; ++axis) high.spacing[axis] = low.spacing[axis] / 2;
  return high;
}

}  // namespace mri
