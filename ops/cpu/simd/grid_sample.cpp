// Built like elementwise.cpp, see Note [Same bits everywhere] there.
//
// A point reads two cells along W in each of `rows` rows: 4, or 2 without D. In nearest mode it reads one.
// All addresses are inside the volume, so the loops over points have no branches and become gathers.

#include <voxgrad/ops/cpu/simd/grid_sample.h>
#include <voxgrad/ops/cpu/simd/pick.h>

namespace vox::cpu::simd::VOXGRAD_ISA {
namespace {

using detail::GridPadding;
using detail::GridSampling;

/// The arithmetic of the formulas.
template <class T>
struct Math {
  using Number = T;
  using Value = Vec<T>;
  using Int = LaneNumbers<T>;
  [[gnu::always_inline]] static Int to_int(Value v) { return __builtin_convertvector(v, Int); }
  [[gnu::always_inline]] static Value to_number(Int v) { return __builtin_convertvector(v, Value); }
  [[gnu::always_inline]] static Value product(Value a, Value b) { return a * b; }
};

template <class T, int axes, GridPadding padding, bool nearest>
void find_taps(const GridSampling& s, const T* grid, int64_t points, GridTaps<T>& taps) {
  using Narrow = typename LaneNumberOf<T>::narrow;
  T coordinates[axes][grid_block] = {};
  for (int64_t i = 0; i < points; ++i)
    for (int axis = 0; axis < axes; ++axis) coordinates[axis][i] = grid[i * axes + axis];
  for (int64_t i = 0; i < points; i += lanes<T>) {
    LaneNumbers<T> offset = {};
    for (int axis = 3 - axes; axis < 3; ++axis) {
      const int32_t step = axis == 2 ? 1 : axis == 1 ? s.size[2] : s.size[1] * s.size[2];
      const auto tap = detail::grid_tap<Math<T>>(load(&coordinates[2 - axis][i]), s.size[axis], padding,
                                                 nearest, s.align_corners);
      offset += tap.index * step;
      for (int k = 0; k < 2; ++k) {
        store(&taps.weight[axis][k][i], s.slope[axis] ? tap.slope[k] : tap.weight[k]);
        store(&taps.slope[axis][k][i], tap.slope[k]);
      }
    }
    const Narrow narrow = __builtin_convertvector(offset, Narrow);
    std::memcpy(&taps.offset[i], &narrow, sizeof narrow);
  }
}

template <class T, int axes, GridPadding padding>
void find_of(const GridSampling& s, const T* grid, int64_t points, GridTaps<T>& taps) {
  s.nearest ? find_taps<T, axes, padding, true>(s, grid, points, taps)
            : find_taps<T, axes, padding, false>(s, grid, points, taps);
}

template <class T, int axes>
void find_along(const GridSampling& s, const T* grid, int64_t points, GridTaps<T>& taps) {
  using enum GridPadding;
  if (s.padding == zeros) return find_of<T, axes, zeros>(s, grid, points, taps);
  if (s.padding == border) return find_of<T, axes, border>(s, grid, points, taps);
  find_of<T, axes, reflection>(s, grid, points, taps);
}

template <class T>
void find(const GridSampling& s, const T* grid, int64_t points, GridTaps<T>& taps) {
  s.axes == 3 ? find_along<T, 3>(s, grid, points, taps) : find_along<T, 2>(s, grid, points, taps);
}

/// weight * x; 0 if the weight is, whatever x is.
template <class T>
[[gnu::always_inline]] inline T times(T weight, T x) {
  return weight != 0 ? weight * x : T(0);
}

/// The weight of row r of a point: along D, unless there are only two rows, and H.
template <int rows, class T>
[[gnu::always_inline]] inline T row_weight(const GridTaps<T>& taps, int r, int64_t i) {
  const T along_h = taps.weight[1][r % 2][i];
  return rows == 4 ? taps.weight[0][r / 2][i] * along_h : along_h;
}
template <class T, int axes>
[[gnu::always_inline]] inline T cell_weight(const GridTaps<T>& taps, int64_t i) {
  const T in_plane = taps.weight[1][0][i] * taps.weight[2][0][i];
  return axes == 3 ? taps.weight[0][0][i] * in_plane : in_plane;
}

template <class T, int rows>
void gather_rows(const GridSampling& s, const GridTaps<T>& taps, const T* x, T* y, int64_t points) {
  const int64_t next = s.step(2), next_h = s.step(1), next_d = s.step(0);
#pragma GCC ivdep
  for (int64_t i = 0; i < points; ++i) {
    const T* const from = x + taps.offset[i];
    T low = 0, high = 0;
#pragma GCC unroll 4
    for (int r = 0; r < rows; ++r) {
      const T* const row = from + (r / 2 * next_d + r % 2 * next_h);
      const T weight = row_weight<rows>(taps, r, i);
      low += times(weight, row[0]);
      high += times(weight, row[next]);
    }
    y[i] = times(taps.weight[2][0][i], low) + times(taps.weight[2][1][i], high);
  }
}

template <class T, int axes>
void gather_cells(const GridTaps<T>& taps, const T* x, T* y, int64_t points) {
#pragma GCC ivdep
  for (int64_t i = 0; i < points; ++i) y[i] = times(cell_weight<T, axes>(taps, i), x[taps.offset[i]]);
}

template <class T>
void gather(const GridSampling& s, const GridTaps<T>& taps, const T* x, T* y, int64_t points) {
  if (s.axes == 3)
    s.nearest ? gather_cells<T, 3>(taps, x, y, points) : gather_rows<T, 4>(s, taps, x, y, points);
  else
    s.nearest ? gather_cells<T, 2>(taps, x, y, points) : gather_rows<T, 2>(s, taps, x, y, points);
}

template <class T, int rows>
void scatter_rows(const GridSampling& s, const GridTaps<T>& taps, const T* y, T* x, int64_t points) {
  const int64_t next = s.step(2), next_h = s.step(1), next_d = s.step(0);
  for (int64_t i = 0; i < points; ++i) {
    T* const to = x + taps.offset[i];
    const T low = times(taps.weight[2][0][i], y[i]), high = times(taps.weight[2][1][i], y[i]);
#pragma GCC unroll 4
    for (int r = 0; r < rows; ++r) {
      T* const row = to + (r / 2 * next_d + r % 2 * next_h);
      const T weight = row_weight<rows>(taps, r, i);
      row[0] += times(weight, low);
      row[next] += times(weight, high);
    }
  }
}

template <class T, int axes>
void scatter_cells(const GridTaps<T>& taps, const T* y, T* x, int64_t points) {
  for (int64_t i = 0; i < points; ++i) x[taps.offset[i]] += times(cell_weight<T, axes>(taps, i), y[i]);
}

template <class T>
void scatter(const GridSampling& s, const GridTaps<T>& taps, const T* y, T* x, int64_t points) {
  if (s.axes == 3)
    s.nearest ? scatter_cells<T, 3>(taps, y, x, points) : scatter_rows<T, 4>(s, taps, y, x, points);
  else
    s.nearest ? scatter_cells<T, 2>(taps, y, x, points) : scatter_rows<T, 2>(s, taps, y, x, points);
}

template <class T, int rows>
void slopes_of(const GridSampling& s, const GridTaps<T>& taps, const T* x, const T* y, T (*sums)[grid_block],
               int64_t points) {
  const int64_t next = s.step(2), next_h = s.step(1), next_d = s.step(0);
#pragma GCC ivdep
  for (int64_t i = 0; i < points; ++i) {
    const T* const from = x + taps.offset[i];
    T along_d = 0, along_h = 0, along_w = 0;
#pragma GCC unroll 4
    for (int r = 0; r < rows; ++r) {
      const T* const row = from + (r / 2 * next_d + r % 2 * next_h);
      const T low = row[0], high = row[next];
      const T value = times(taps.weight[2][0][i], low) + times(taps.weight[2][1][i], high);
      const T rise = times(taps.slope[2][0][i], low) + times(taps.slope[2][1][i], high);
      const T weight_d = rows == 4 ? taps.weight[0][r / 2][i] : T(1);
      along_w += times(row_weight<rows>(taps, r, i), rise);
      along_h += times(weight_d * taps.slope[1][r % 2][i], value);
      if (rows == 4) along_d += times(taps.slope[0][r / 2][i] * taps.weight[1][r % 2][i], value);
    }
    if (rows == 4) sums[0][i] += y[i] * along_d;
    sums[1][i] += y[i] * along_h;
    sums[2][i] += y[i] * along_w;
  }
}

template <class T>
void slopes(const GridSampling& s, const GridTaps<T>& taps, const T* x, const T* y, T (*sums)[grid_block],
            int64_t points) {
  s.axes == 3 ? slopes_of<T, 4>(s, taps, x, y, sums, points) : slopes_of<T, 2>(s, taps, x, y, sums, points);
}

template <class T>
constexpr GridSampleOf<T> table{find<T>, gather<T>, scatter<T>, slopes<T>};

}  // namespace

const GridSampleKernels grid_sample_kernels{table<float>, table<double>};

}  // namespace vox::cpu::simd::VOXGRAD_ISA
