#pragma once

#include <cstdint>

#include <voxgrad/core/half.h>
#include <voxgrad/core/host_device.h>
#include <voxgrad/ops/pool3d_axis.h>
#include <voxgrad/ops/triple.h>

// The arithmetic of pooling, shared by the CPU and CUDA kernels: what a window takes from the input, and what
// a cell gathers from the windows over it. One task computes one output. Sums of 16-bit numbers are f32.

namespace vox {

/// All three axes; passed by value to every kernel and every gradient.
struct Pool3dGeometry {
  Triple in, out;  // cells and windows per plane; a plane is one (n, c)
  Triple kernel = 1, stride = 1, padding = 0, dilation = 1;
  bool adaptive = false;
  bool count_include_pad = true;  // mean only
  int64_t divisor_override = 0;   // mean only; 0 for none

  VOX_HOST_DEVICE int64_t cells() const { return in.d * in.h * in.w; }
  VOX_HOST_DEVICE int64_t windows() const { return out.d * out.h * out.w; }
  template <class Int = int64_t>
  VOX_HOST_DEVICE PoolAxisOf<Int> axis(int64_t i) const {
    const auto to_int = [](int64_t n) { return static_cast<Int>(n); };
    return {to_int(in[i]),     to_int(out[i]),     adaptive,           to_int(kernel[i]),
            to_int(stride[i]), to_int(padding[i]), to_int(dilation[i])};
  }

  /// Whether all that PoolAxisOf computes, and four times any index within a plane, fits an int32_t.
  bool fits_int32() const {
    constexpr int64_t most = int64_t{1} << 28;
    bool fits = cells() < most && windows() < most;
    for (int64_t i = 0; i < 3; ++i)
      fits = fits && (adaptive ? in[i] * out[i] < most
                               : (kernel[i] - 1) * dilation[i] < most && stride[i] < most / out[i]);
    return fits;
  }

  /// Whether each cell of a window has a number below 255 in it: the cell at position (d, h, w) of the kernel
  /// has (d * kernel.h + h) * kernel.w + w.
  bool has_small_windows() const {
    return !adaptive && kernel.d <= 255 && kernel.h <= 255 && kernel.w <= 255 &&
           kernel.d * kernel.h * kernel.w <= 255;
  }

  /// Whether the windows are blocks of 2 x 2 x 2 or 1 x 2 x 2 cells, side by side and wholly inside the
  /// input.
  bool is_blocks() const {
    for (int64_t i = 0; i < 3; ++i) {
      const bool side_by_side = (stride[i] == kernel[i] || out[i] == 1) && dilation[i] == 1;
      if (adaptive || !side_by_side || padding[i] != 0 || kernel[i] > 2 || kernel[i] * out[i] > in[i])
        return false;
    }
    return kernel.h == 2 && kernel.w == 2;
  }
};

VOX_HOST_DEVICE inline Triple position(int64_t index, const Triple& size) {
  return {index / size.w / size.h, index / size.w % size.h, index % size.w};
}

/// A range of each axis.
struct PoolBox {
  PoolRange d, h, w;
};
VOX_HOST_DEVICE inline PoolBox covered_cells(const Pool3dGeometry& g, const Triple& o) {
  return {g.axis(0).covered_cells(o.d), g.axis(1).covered_cells(o.h), g.axis(2).covered_cells(o.w)};
}
VOX_HOST_DEVICE inline PoolBox windows_over(const Pool3dGeometry& g, const Triple& i) {
  return {g.axis(0).windows_over(i.d), g.axis(1).windows_over(i.h), g.axis(2).windows_over(i.w)};
}

/// Calls f(flat index, position) for the cells (or windows) of `box` within a plane of `size`, in row-major
/// order.
template <class F>
VOX_HOST_DEVICE void for_each_in(const PoolBox& box, const Triple& size, F f) {
  for (int64_t d = box.d.begin; d < box.d.end; d += box.d.step)
    for (int64_t h = box.h.begin; h < box.h.end; h += box.h.step)
      for (int64_t w = box.w.begin; w < box.w.end; w += box.w.step)
        f((d * size.h + h) * size.w + w, Triple(d, h, w));
}

// ---- Maximum --------------------------------------------------------------------------------------------

/// Index within the plane `x` of the first maximum (or last NaN) of a window's cells; -1 if there are none.
template <class T>
VOX_HOST_DEVICE int64_t max_index(const T* x, const Pool3dGeometry& g, const PoolBox& cells) {
  int64_t best = -1;
  for_each_in(cells, g.in, [&](int64_t i, const Triple&) {
    if (best < 0 || x[i] > x[best] || x[i] != x[i]) best = i;
  });
  return best;
}

// ---- Mean (dilation is 1) -------------------------------------------------------------------------------

/// The divisor of window o: divisor_override if that is given, else its number of cells or, with
/// count_include_pad, of positions within the padded input.
VOX_HOST_DEVICE inline double divisor(const Pool3dGeometry& g, const Triple& o) {
  if (g.divisor_override != 0) return static_cast<double>(g.divisor_override);
  double count = 1;
  for (int64_t i = 0; i < 3; ++i)
    count *= static_cast<double>(g.axis(i).positions(o[i], g.count_include_pad ? g.padding[i] : 0));
  return count;
}

/// Mean of window o, over `cells`.
template <class T>
VOX_HOST_DEVICE opmath_t<T> window_mean(const T* x, const Pool3dGeometry& g, const PoolBox& cells,
                                        const Triple& o) {
  opmath_t<T> sum = 0;
  for_each_in(cells, g.in, [&](int64_t i, const Triple&) { sum += x[i]; });
  return sum / static_cast<opmath_t<T>>(divisor(g, o));
}

/// Gradient of a cell: the sum of grad_y / divisor over the windows over it, in ascending order.
template <class T>
VOX_HOST_DEVICE opmath_t<T> mean_gradient(const T* grad_y, const Pool3dGeometry& g, const PoolBox& windows) {
  opmath_t<T> sum = 0;
  for_each_in(windows, g.out, [&](int64_t o, const Triple& window) {
    sum += grad_y[o] / static_cast<opmath_t<T>>(divisor(g, window));
  });
  return sum;
}

}  // namespace vox
