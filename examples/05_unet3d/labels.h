// Labels made in the open: the lateral ventricles, found by intensity and morphology.
#pragma once

#include <algorithm>
#include <stdexcept>
#include <utility>
#include <vector>

#include "../common/regions.h"

namespace unet {

using mri::Box, mri::Mask, mri::Size, mri::Volume;
using mri::for_each_neighbour, mri::grow;

/// The connected pieces of `mask`: the indices of their voxels.
inline std::vector<std::vector<size_t>> pieces(const Mask& mask, const Size& size) {
  std::vector<std::vector<size_t>> all;
  Mask seen(mask.size());
  for (size_t seed = 0; seed < mask.size(); ++seed) {
    if (!mask[seed] || seen[seed]) continue;
    std::vector<size_t> piece{seed};
    seen[seed] = 1;
    for (size_t next = 0; next < piece.size(); ++next) {
      for_each_neighbour(size, piece[next], [&](size_t j) {
        if (!mask[j] || seen[j]) return;
        seen[j] = 1;
        piece.push_back(j);
      });
    }
    all.push_back(std::move(piece));
  }
  return all;
}

template <class Keep>
Mask mask_of(size_t count, Keep keep) {
  Mask mask(count);
  for (size_t i = 0; i < count; ++i) mask[i] = keep(i);
  return mask;
}

/// Whether the box lies in the middle of the head, where the lateral ventricles are.
inline bool is_central(const Box& box, const Box& head) {
  constexpr double kBegin[] = {0.30, 0.20, 0.15}, kEnd[] = {0.75, 0.80, 0.85};  // of height, length, width
  for (int axis = 0; axis < 3; ++axis) {
    const auto length = static_cast<double>(head.length(axis));
    if (static_cast<double>(box.begin[axis] - head.begin[axis]) < kBegin[axis] * length) return false;
    if (static_cast<double>(box.end[axis] - head.begin[axis]) > kEnd[axis] * length) return false;
  }
  return true;
}

struct Labels {
  Mask ventricles;
  Mask dark;  ///< all voxels of the head as dark as fluid: what a threshold alone finds
};

/// Labels a T1-weighted head without its skull, in which fluid is dark and air is 0:
///
///  1. The head is what the air around it does not reach.
///  2. Fluid is darker than 0.65 times the median of the head. Most of it fills the folds at the surface, so
///     only voxels deeper than a twelfth of the head's width are kept.
///  3. What is left falls into connected pieces. A ventricle is one that has at least 1/2000 of the head's
///     voxels and lies within the middle of the head: 30 % to 75 % of its height, 20 % to 80 % of its length,
///     15 % to 85 % of its width.
///  4. If there is none, bridges join the ventricles to other fluid. They are cut by an opening: voxels near
///     the rim are removed, the pieces are judged again, and those that fit grow back. The distance from the
///     rim is 1, 2 and 3 voxels in turn; the first that leaves a ventricle is used.
///
/// Throws std::runtime_error that names the step if there is no air, no head or no ventricle.
inline Labels label_ventricles(const Volume& scan) {
  const auto& v = scan.voxels;
  const Size& size = scan.size;
  const Mask everything(v.size(), 1);

  // 1. The head.
  if (v.empty() || v[0] > mri::kAir)
    throw std::runtime_error("label_ventricles: the scan's first voxel is no air");
  Mask corner(v.size());
  corner[0] = 1;
  const Mask air = grow(corner, mask_of(v.size(), [&](size_t i) { return v[i] <= mri::kAir; }), size);
  const Mask head = mask_of(v.size(), [&](size_t i) { return !air[i]; });
  const Box box = mri::bounding_box(head, size);
  std::vector<float> inside;
  for (size_t i = 0; i < v.size(); ++i) {
    if (head[i]) inside.push_back(v[i]);
  }
  if (inside.empty()) throw std::runtime_error("label_ventricles: the scan is nothing but air");

  // 2. Fluid, and the part of it that is deep.
  const auto middle = inside.begin() + static_cast<int64_t>(inside.size() / 2);
  std::nth_element(inside.begin(), middle, inside.end());
  Labels labels;
  labels.dark = mask_of(v.size(), [&](size_t i) { return head[i] && v[i] < 0.65f * *middle; });
  const Mask shallow = grow(air, everything, size, box.length(2) / 12);
  const Mask deep = mask_of(v.size(), [&](size_t i) { return labels.dark[i] && !shallow[i]; });

  // 3 and 4. Pieces that fit.
  for (int64_t opening = 0; opening <= 3; ++opening) {
    const Mask rim = grow(mask_of(v.size(), [&](size_t i) { return !deep[i]; }), everything, size, opening);
    Mask ventricles(v.size());
    bool found = false;
    for (const auto& piece : pieces(mask_of(v.size(), [&](size_t i) { return !rim[i]; }), size)) {
      if (piece.size() * 2000 < inside.size()) continue;
      Mask alone(v.size());
      for (const size_t i : piece) alone[i] = 1;
      if (!is_central(mri::bounding_box(alone, size), box)) continue;
      for (const size_t i : piece) ventricles[i] = 1;
      found = true;
    }
    if (!found) continue;
    labels.ventricles = grow(std::move(ventricles), deep, size, opening);
    return labels;
  }
  throw std::runtime_error("label_ventricles: no piece of fluid has the size and place of a ventricle");
}

}  // namespace unet
