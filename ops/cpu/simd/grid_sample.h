#pragma once

#include <cstdint>

#include <voxgrad/ops/cpu/isa.h>
#include <voxgrad/ops/grid_sample_tap.h>

namespace vox::cpu::simd {

/// The taps of up to grid_block points: point i reads around cell offset[i] of a volume. weight[a] are those
/// of the two cells along axis a (D, H, W), or their slopes if the sampling has this slope; slope[a] are
/// always the slopes.
inline constexpr int64_t grid_block = 128;
template <class T>
struct GridTaps {
  int32_t offset[grid_block];
  T weight[3][2][grid_block], slope[3][2][grid_block];
};

/// `points` are at most grid_block.
template <class T>
struct GridSampleOf {
  void (*find)(const detail::GridSampling& s, const T* grid, int64_t points, GridTaps<T>& taps);
  /// For one channel: y[i] = what point i reads of the volume x.
  void (*gather)(const detail::GridSampling& s, const GridTaps<T>& taps, const T* x, T* y, int64_t points);
  /// Its transpose: adds y[i] to x, in the order of the points.
  void (*scatter)(const detail::GridSampling& s, const GridTaps<T>& taps, const T* y, T* x, int64_t points);
  /// Adds y[i] * the derivative of what point i reads by its coordinate to sums[axis][i], D, H, W. Not for
  /// nearest.
  void (*slopes)(const detail::GridSampling& s, const GridTaps<T>& taps, const T* x, const T* y,
                 T (*sums)[grid_block], int64_t points);
};

VOX_DECLARE_BY_ISA(OfReals<GridSampleOf>, grid_sample_kernels);

}  // namespace vox::cpu::simd
