// Built like elementwise.cpp, see Note [Same bits everywhere] there.
//
// A point reads two cells along W in each of `rows` rows: 4, or 2 without D. In nearest mode, which has one
// "row", it reads one. All addresses are inside the volume, so loops over points have no branches and become
// gathers.

#include <voxgrad/ops/cpu/simd/grid_sample.h>
#include <voxgrad/ops/cpu/simd/pick.h>

namespace vox::cpu::simd::VOXGRAD_ISA {
namespace {

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

template <class T>
void find(const GridSampling& s, const T* grid, int64_t points, GridTaps<T>& taps) {
  using Narrow = typename LaneNumberOf<T>::narrow;
  T coordinates[3][grid_block] = {};  // D, H, W
  for (int64_t i = 0; i < points; ++i)
    for (int k = 0; k < s.axes; ++k) coordinates[2 - k][i] = grid[i * s.axes + k];
  for (int64_t i = 0; i < points; i += lanes<T>) {
    LaneNumbers<T> offset = {};
    for (int axis = 0; axis < 3; ++axis) {
      const auto tap = detail::grid_tap<Math<T>>(load(&coordinates[axis][i]), s.size[axis], s.padding,
                                                 s.nearest, s.align_corners);
      offset = offset * s.size[axis] + tap.index;
      for (int k = 0; k < 2; ++k) {
        store(&taps.weight[axis][k][i], s.slope[axis] ? tap.slope[k] : tap.weight[k]);
        store(&taps.slope[axis][k][i], tap.slope[k]);
      }
    }
    const Narrow narrow = __builtin_convertvector(offset, Narrow);
    std::memcpy(&taps.offset[i], &narrow, sizeof narrow);
  }
}

/// weight * x; 0 if the weight is, whatever x is.
template <class T>
[[gnu::always_inline]] inline T times(T weight, T x) {
  return weight != 0 ? weight * x : T(0);
}

/// Row r of a point: its weight, and where it begins, as seen from the point's cell.
template <int rows, class T>
[[gnu::always_inline]] inline T row_weight(const GridTaps<T>& taps, int r, int64_t i) {
  return rows == 2 ? taps.weight[1][r][i] : taps.weight[0][r / 2][i] * taps.weight[1][r % 2][i];
}
[[gnu::always_inline]] inline int64_t row_offset(const GridSampling& s, int r) {
  return r / 2 * int64_t{s.step(0)} + r % 2 * int64_t{s.step(1)};
}

template <int rows, class T>
void gather_of(const GridSampling& s, const GridTaps<T>& taps, const T* x, T* y, int64_t points) {
  const int64_t next = s.step(2), at[] = {0, row_offset(s, 1), row_offset(s, 2), row_offset(s, 3)};
#pragma GCC ivdep
  for (int64_t i = 0; i < points; ++i) {
    const T* const from = x + taps.offset[i];
    T low = 0, high = 0;
#pragma GCC unroll 4
    for (int r = 0; r < rows; ++r) {
      const T weight = row_weight<rows>(taps, r, i);
      low += times(weight, from[at[r]]);
      if (rows > 1) high += times(weight, from[at[r] + next]);
    }
    y[i] = times(taps.weight[2][0][i], low) + (rows > 1 ? times(taps.weight[2][1][i], high) : T(0));
  }
}

template <int rows, class T>
void scatter_of(const GridSampling& s, const GridTaps<T>& taps, const T* y, T* x, int64_t points) {
  const int64_t next = s.step(2), at[] = {0, row_offset(s, 1), row_offset(s, 2), row_offset(s, 3)};
  for (int64_t i = 0; i < points; ++i) {
    T* const to = x + taps.offset[i];
    const T low = times(taps.weight[2][0][i], y[i]), high = times(taps.weight[2][1][i], y[i]);
#pragma GCC unroll 4
    for (int r = 0; r < rows; ++r) {
      const T weight = row_weight<rows>(taps, r, i);
      to[at[r]] += times(weight, low);
      if (rows > 1) to[at[r] + next] += times(weight, high);
    }
  }
}

template <int rows, class T>
void slopes_of(const GridSampling& s, const GridTaps<T>& taps, const T* x, const T* y, T (*sums)[grid_block],
               int64_t points) {
  const int64_t next = s.step(2), at[] = {0, row_offset(s, 1), row_offset(s, 2), row_offset(s, 3)};
  const auto &weight = taps.weight, &slope = taps.slope;
#pragma GCC ivdep
  for (int64_t i = 0; i < points; ++i) {
    const T* const from = x + taps.offset[i];
    T along_d = 0, along_h = 0, along_w = 0;
#pragma GCC unroll 4
    for (int r = 0; r < rows; ++r) {
      const int d = r / 2, h = r % 2;
      const T low = from[at[r]], high = from[at[r] + next];
      const T value = times(weight[2][0][i], low) + times(weight[2][1][i], high);
      along_w +=
          times(row_weight<rows>(taps, r, i), times(slope[2][0][i], low) + times(slope[2][1][i], high));
      along_h += times(rows == 2 ? slope[1][h][i] : weight[0][d][i] * slope[1][h][i], value);
      if (rows == 4) along_d += times(slope[0][d][i] * weight[1][h][i], value);
    }
    if (rows == 4) sums[0][i] += y[i] * along_d;
    sums[1][i] += y[i] * along_h;
    sums[2][i] += y[i] * along_w;
  }
}

template <class T>
void gather(const GridSampling& s, const GridTaps<T>& taps, const T* x, T* y, int64_t points) {
  (s.nearest ? gather_of<1, T> : s.axes == 2 ? gather_of<2, T> : gather_of<4, T>)(s, taps, x, y, points);
}
template <class T>
void scatter(const GridSampling& s, const GridTaps<T>& taps, const T* y, T* x, int64_t points) {
  (s.nearest ? scatter_of<1, T> : s.axes == 2 ? scatter_of<2, T> : scatter_of<4, T>)(s, taps, y, x, points);
}
template <class T>
void slopes(const GridSampling& s, const GridTaps<T>& taps, const T* x, const T* y, T (*sums)[grid_block],
            int64_t points) {
  (s.axes == 2 ? slopes_of<2, T> : slopes_of<4, T>)(s, taps, x, y, sums, points);
}

template <class T>
constexpr GridSampleOf<T> table{find<T>, gather<T>, scatter<T>, slopes<T>};

}  // namespace

const OfReals<GridSampleOf> grid_sample_kernels{table<float>, table<double>};

}  // namespace vox::cpu::simd::VOXGRAD_ISA
