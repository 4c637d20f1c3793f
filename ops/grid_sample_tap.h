#pragma once

#include <cstdint>

#include <voxgrad/core/host_device.h>
#include <voxgrad/ops/elementwise_formulas.h>  // VOX_FORMULA

// Where grid_sample() reads, for the op and its kernels: both devices share the formula of one axis. It obeys
// Note [Instruction sets] (ops/cpu/isa.h).

namespace vox::detail {

enum class GridPadding { zeros, border, reflection };

/// One call of a kernel. The input is (batch, channels, cells) and the grid (batch, points, axes), with the
/// axes W, H, D. Axes here are in D, H, W order; without D, size[0] is 1.
struct GridSampling {
  int64_t batch = 0, channels = 0, points = 0;
  int axes = 3;
  int32_t size[3] = {1, 1, 1};
  GridPadding padding = GridPadding::zeros;
  bool nearest = false, align_corners = false;
  bool slope[3] = {};  ///< the axes along which the result is differentiated

  VOX_HOST_DEVICE constexpr int32_t cells() const { return size[0] * size[1] * size[2]; }
  /// From a cell to the next one of the axis; 0 if there is none.
  VOX_HOST_DEVICE constexpr int32_t step(int axis) const {
    const int32_t inner = axis == 2 ? 1 : axis == 1 ? size[2] : size[1] * size[2];
    return size[axis] > 1 ? inner : 0;
  }
};

/// What one point reads along one axis: cells `index` and, unless the mode is nearest, index + 1, which exist
/// if their weight or slope is not 0. `slope` is the derivative of `weight` by the coordinate.
template <class T, class Int>
struct GridTap {
  Int index;
  T weight[2], slope[2];
};

/// A position along an axis, in cells, and its derivative by the coordinate.
template <class T>
struct GridPosition {
  T at, slope;
};

// The formulas are written over M, the arithmetic of a device: M::Value is a number or a vector of them,
// M::Int as many integers, M::Number one number. M::product is never joined with an addition, so that all
// devices find the same positions.

/// Mirrors the position into the volume, or near it if it is so far away that it has no digits left. Without
/// a slope (one cell, and align_corners) the result is any number.
template <class M, class T = typename M::Value, class N = typename M::Number>
VOX_FORMULA GridPosition<T> reflected(GridPosition<T> p, N scale, bool align_corners) {
  const N low = align_corners ? N(0) : N(-0.5), period = 4 * scale, most = N(1 << 30);
  const T from_low = p.at - low, distance = from_low < N(0) ? -from_low : from_low;
  const T turns = distance / period, whole = M::to_number(M::to_int(turns < most ? turns : T{} + most));
  const T there = distance - M::product(whole, T{} + period), back = period - there;
  const T slope = there > back ? -p.slope : p.slope;
  return {(there > back ? back : there) + low, from_low < N(0) ? -slope : slope};
}

/// Where the coordinate is, moved inside by border and reflection. For zeros, what is far outside, or NaN,
/// comes close to the volume, so that it fits an Int.
template <class M, class T = typename M::Value, class N = typename M::Number>
VOX_FORMULA GridPosition<T> grid_position(T coordinate, N n, GridPadding padding, bool align_corners) {
  const N last = n - N(1), scale = (align_corners ? last : n) / N(2);
  GridPosition<T> p{M::product(coordinate + N(1), T{} + scale) - (align_corners ? N(0) : N(0.5)),
                    T{} + scale};
  if (padding == GridPadding::zeros) {
    p.at = p.at < n + N(1) ? p.at : T{} + (n + N(1));
    p.at = p.at > N(-2) ? p.at : T{} - N(2);
    return p;
  }
  if (padding == GridPadding::reflection) p = reflected<M>(p, scale, align_corners);
  p.slope = p.at > N(0) ? p.slope : T{};
  p.slope = p.at < last ? p.slope : T{};
  p.at = p.at < last ? p.at : p.at >= last ? T{} + last : T{};  // NaN becomes 0
  p.at = p.at > N(0) ? p.at : T{};
  return p;
}

/// The values of `cell` and the next one, 0 outside the volume, as those of `index` and the next one.
template <class T, class Int>
VOX_FORMULA void move_inside(T here, T next, Int cell, Int index, int32_t size, T (&to)[2]) {
  here = cell < 0 ? T{} : cell < size ? here : T{};
  next = cell < -1 ? T{} : cell < size - 1 ? next : T{};
  to[0] = index == cell ? here : index > cell ? next : T{};
  to[1] = index == cell ? next : index < cell ? here : T{};
}

template <class M, class T = typename M::Value, class Int = typename M::Int, class N = typename M::Number>
VOX_FORMULA GridTap<T, Int> grid_tap(T coordinate, int32_t size, GridPadding padding, bool nearest,
                                     bool align_corners) {
  const GridPosition<T> p = grid_position<M>(coordinate, static_cast<N>(size), padding, align_corners);
  Int cell = M::to_int(p.at);
  cell = M::to_number(cell) > p.at ? cell - 1 : cell;
  const T past = p.at - M::to_number(cell);
  if (nearest) {
    cell = past > N(0.5) ? cell + 1 : past == N(0.5) ? cell + (cell & 1) : cell;
    const Int inside = cell < 0 ? Int{} : cell < size ? cell : Int{} + (size - 1);
    return {inside, {inside == cell ? T{} + N(1) : T{}, T{}}, {}};
  }
  const int32_t most = size > 1 ? size - 2 : 0;
  GridTap<T, Int> tap{cell < 0 ? Int{} : cell < most ? cell : Int{} + most, {}, {}};
  move_inside(N(1) - past, past, cell, tap.index, size, tap.weight);
  move_inside(-p.slope, p.slope, cell, tap.index, size, tap.slope);
  return tap;
}

}  // namespace vox::detail
