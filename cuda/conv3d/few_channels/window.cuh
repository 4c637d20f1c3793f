#pragma once

#include <voxgrad/cuda/conv3d/few_channels/plan.h>

// What the kernels for few channels share: a window of a tensor in shared memory, as f32, and the column of
// it that a thread keeps in registers.

namespace vox::cuda::conv::few_channels {

/// A cell, which may be outside; or the extents of a grid.
struct Cell {
  int d, h, w;
};

/// Loads the window that begins at `at`, of `channels` channels of a grid whose first channel is at `from`,
/// as [channel][d][column][h], with zeros for cells outside. Neighbouring threads load neighbours along w,
/// and store them in different banks.
template <class T>
__device__ __forceinline__ void load_window(const T* from, int channels, int64_t cells, Cell grid,
                                            const Window& window, Cell at, float* to) {
  const T* const corner = from + (int64_t{at.d} * grid.h + at.h) * grid.w + at.w;
  const int plane = grid.h * grid.w, units = channels * window.d * window.strips * window.w;
  const int first_h = max(0, -at.h), heights = max(0, min(window.h, grid.h - at.h) - first_h);
#pragma unroll 2
  for (int unit = static_cast<int>(threadIdx.x); unit < units; unit += static_cast<int>(blockDim.x)) {
    const int by_w = window.by_w.quotient(unit), w = unit - by_w * window.w;
    const int by_strip = window.by_strip.quotient(by_w), h = strip_rows * (by_w - by_strip * window.strips);
    const int channel = window.by_d.quotient(by_strip), d = by_strip - channel * window.d;
    const bool inside = within(at.d + d, grid.d) && within(at.w + w, grid.w);
    const int rows = inside ? heights : 0;
    const T* cell = corner + channel * cells + (d * plane + h * grid.w + w);
    float values[strip_rows];
#pragma unroll
    for (int i = 0; i < strip_rows; ++i, cell += grid.w)
      values[i] = within(h - first_h + i, rows) ? static_cast<float>(*cell) : 0.0f;
    const int by_step = window.by_step.quotient(w), residue = w - by_step * window.step;
    const int column = residue * window.residue_columns + by_step;
    float* const strip = to + (by_strip * window.columns() + column) * window.pitch + h;
#pragma unroll
    for (int i = 0; i < strip_rows; ++i) strip[i] = values[i];
  }
}

/// What the taps along h read for `run` cells, with stride `step` and dilation 1.
template <int run, int taps, int step>
struct Column {
  static constexpr int numbers = (run - 1) * step + taps;
  float value[numbers];

  __device__ __forceinline__ void load(const float* from) {
#pragma unroll
    for (int i = 0; i < numbers; ++i) value[i] = from[i];
  }
  __device__ __forceinline__ float at(int cell, int tap) const { return value[cell * step + tap]; }
};

}  // namespace vox::cuda::conv::few_channels
