#include "phantom.h"

#include <algorithm>
#include <cmath>
#include <numbers>
#include <stdexcept>

namespace mri {
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

// Adds the ellipsoid's share to every voxel near it.
void add(Volume& head, const Ellipsoid& e) {
  const double reach = std::max({e.a, e.b, e.c});
  const auto position = [&](int axis, double index) {
    return 2 * index / static_cast<double>(head.size[axis]) - 1;
  };
  const auto first = [&](int axis, double centre) {
    const double n = static_cast<double>(head.size[axis]);
    return std::clamp<int64_t>(static_cast<int64_t>((centre - reach + 1) / 2 * n) - 1, 0, head.size[axis]);
  };
  const auto last = [&](int axis, double centre) {
    const double n = static_cast<double>(head.size[axis]);
    return std::clamp<int64_t>(static_cast<int64_t>((centre + reach + 1) / 2 * n) + 2, 0, head.size[axis]);
  };
  for (int64_t d = first(0, e.z0); d < last(0, e.z0); ++d) {
    for (int64_t h = first(1, e.y0); h < last(1, e.y0); ++h) {
      for (int64_t w = first(2, e.x0); w < last(2, e.x0); ++w) {
        int hits = 0;
        for (int point = 0; point < 8; ++point) {
          hits +=
              inside(e, position(2, w + (point & 1 ? 0.75 : 0.25)),
                     position(1, h + (point & 2 ? 0.75 : 0.25)), position(0, d + (point & 4 ? 0.75 : 0.25)));
        }
        head.at(d, h, w) += static_cast<float>(e.intensity * hits / 8);
      }
    }
  }
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

}  // namespace mri
