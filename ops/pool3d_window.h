#pragma once

#include <cstdint>

#include <voxgrad/core/half.h>
#include <voxgrad/core/host_device.h>
#include <voxgrad/ops/triple.h>

// The arithmetic of pooling, shared by the CPU and CUDA kernels: what a window takes from the input, and what
// a cell gathers from the windows over it. One task computes one output. Sums of 16-bit numbers are f32.

namespace vox {

/// Which cells each window covers; passed by value to every kernel and every gradient.
struct Pool3dGeometry {
  Triple in, out;  // cells and windows per plane; a plane is one (n, c)
  Triple kernel = 1, stride = 1, padding = 0, dilation = 1;
  bool count_include_pad = true;  // mean only

  VOX_HOST_DEVICE int64_t cells() const { return in.d * in.h * in.w; }
  VOX_HOST_DEVICE int64_t windows() const { return out.d * out.h * out.w; }
};

/// The part of one axis that a loop visits: begin, begin + step, ... below end.
struct PoolRange {
  int64_t begin, end, step;
};

/// Cells of window o on an axis.
VOX_HOST_DEVICE inline PoolRange covered_cells(int64_t o, int64_t in, int64_t kernel, int64_t stride,
                                               int64_t padding, int64_t dilation) {
  int64_t begin = o * stride - padding;
  int64_t end = begin + (kernel - 1) * dilation + 1;
  if (begin < 0) begin += (-begin + dilation - 1) / dilation * dilation;
  return {begin, end < in ? end : in, dilation};
}

/// Windows over cell i on an axis: those that begin at most their extent before it. With dilation, some of
/// them skip the cell.
VOX_HOST_DEVICE inline PoolRange windows_over(int64_t i, int64_t out, int64_t kernel, int64_t stride,
                                              int64_t padding, int64_t dilation) {
  const int64_t extent = (kernel - 1) * dilation + 1;
  const int64_t first = i + padding - extent + 1;
  const int64_t begin = first > 0 ? (first + stride - 1) / stride : 0;
  const int64_t end = (i + padding) / stride + 1;
  return {begin, end < out ? end : out, 1};
}

VOX_HOST_DEVICE inline Triple position(int64_t index, const Triple& size) {
  return {index / size.w / size.h, index / size.w % size.h, index % size.w};
}

/// All three axes of covered_cells() or windows_over().
struct PoolBox {
  PoolRange d, h, w;
};
VOX_HOST_DEVICE inline PoolBox covered_cells(const Pool3dGeometry& g, const Triple& o) {
  return {covered_cells(o.d, g.in.d, g.kernel.d, g.stride.d, g.padding.d, g.dilation.d),
          covered_cells(o.h, g.in.h, g.kernel.h, g.stride.h, g.padding.h, g.dilation.h),
          covered_cells(o.w, g.in.w, g.kernel.w, g.stride.w, g.padding.w, g.dilation.w)};
}
VOX_HOST_DEVICE inline PoolBox windows_over(const Pool3dGeometry& g, const Triple& i) {
  return {windows_over(i.d, g.out.d, g.kernel.d, g.stride.d, g.padding.d, g.dilation.d),
          windows_over(i.h, g.out.h, g.kernel.h, g.stride.h, g.padding.h, g.dilation.h),
          windows_over(i.w, g.out.w, g.kernel.w, g.stride.w, g.padding.w, g.dilation.w)};
}

/// Calls f(flat index) for the cells (or windows) of `box` within a plane of `size`, in row-major order.
template <class F>
VOX_HOST_DEVICE void for_each_in(const PoolBox& box, const Triple& size, F f) {
  for (int64_t d = box.d.begin; d < box.d.end; d += box.d.step)
    for (int64_t h = box.h.begin; h < box.h.end; h += box.h.step)
      for (int64_t w = box.w.begin; w < box.w.end; w += box.w.step) f((d * size.h + h) * size.w + w);
}

// ---- Maximum --------------------------------------------------------------------------------------------

/// Index of the first maximum (or last NaN) of window o within its plane `x`; -1 if it covers no cell.
template <class T>
VOX_HOST_DEVICE int64_t max_index(const T* x, const Pool3dGeometry& g, int64_t o) {
  int64_t best = -1;
  for_each_in(covered_cells(g, position(o, g.out)), g.in, [&](int64_t i) {
    if (best < 0 || x[i] > x[best] || x[i] != x[i]) best = i;
  });
  return best;
}

/// Gradient of cell i: the sum over the windows whose maximum it is, in ascending order.
template <class T>
VOX_HOST_DEVICE opmath_t<T> max_gradient(const T* grad_y, const int64_t* indices, const Pool3dGeometry& g,
                                         int64_t i) {
  opmath_t<T> sum = 0;
  for_each_in(windows_over(g, position(i, g.in)), g.out, [&](int64_t o) {
    if (indices[o] == i) sum += grad_y[o];
  });
  return sum;
}

// ---- Mean (dilation is 1) -------------------------------------------------------------------------------

/// The divisor of window o: its number of cells or, with count_include_pad, of positions within the padded
/// input.
VOX_HOST_DEVICE inline double divisor(const Pool3dGeometry& g, const Triple& o) {
  double count = 1;
  for (int64_t axis = 0; axis < 3; ++axis) {
    const int64_t pad = g.count_include_pad ? g.padding[axis] : 0;
    const int64_t start = o[axis] * g.stride[axis] - g.padding[axis];
    const int64_t begin = start > -pad ? start : -pad;
    const int64_t stop = start + g.kernel[axis], limit = g.in[axis] + pad;
    count *= static_cast<double>((stop < limit ? stop : limit) - begin);
  }
  return count;
}

template <class T>
VOX_HOST_DEVICE opmath_t<T> window_mean(const T* x, const Pool3dGeometry& g, int64_t o) {
  const Triple window = position(o, g.out);
  opmath_t<T> sum = 0;
  for_each_in(covered_cells(g, window), g.in, [&](int64_t i) { sum += x[i]; });
  return sum / static_cast<opmath_t<T>>(divisor(g, window));
}

/// Gradient of cell i: the sum of grad_y / divisor over the windows that cover it, in ascending order.
template <class T>
VOX_HOST_DEVICE opmath_t<T> mean_gradient(const T* grad_y, const Pool3dGeometry& g, int64_t i) {
  opmath_t<T> sum = 0;
  for_each_in(windows_over(g, position(i, g.in)), g.out, [&](int64_t o) {
    sum += grad_y[o] / static_cast<opmath_t<T>>(divisor(g, position(o, g.out)));
  });
  return sum;
}

}  // namespace vox
