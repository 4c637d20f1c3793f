#pragma once

#include <cstdint>

#include <voxgrad/core/host_device.h>

// One axis of pooling, for all kernels. ops/cpu/simd includes this file, so it obeys Note [Instruction sets]
// (ops/cpu/isa.h): all code is inlined.

#ifdef __CUDACC__
#define VOX_POOL_AXIS VOX_HOST_DEVICE
#else
#define VOX_POOL_AXIS [[gnu::always_inline]]
#endif

namespace vox {

/// The part of one axis that a loop visits: begin, begin + step, ... below end.
template <class Int>
struct PoolRangeOf {
  Int begin, end, step;
};
using PoolRange = PoolRangeOf<int64_t>;

/// Which cells of one axis each window covers. If `adaptive`, window o covers from floor(o * in / out) to
/// ceil((o + 1) * in / out), and the last four numbers have no meaning. Int may be int32_t if
/// Pool3dGeometry::fits_int32().
template <class Int>
struct PoolAxisOf {
  using Range = PoolRangeOf<Int>;
  Int in, out;
  bool adaptive;
  Int kernel, stride, padding, dilation;

  /// Cells of window o, and those that it would cover in the padding.
  VOX_POOL_AXIS Range extent(Int o) const {
    if (adaptive) return {o * in / out, ((o + 1) * in + out - 1) / out, 1};
    const Int begin = o * stride - padding;
    return {begin, begin + (kernel - 1) * dilation + 1, dilation};
  }

  /// Cells of window o.
  VOX_POOL_AXIS Range covered_cells(Int o) const {
    Range cells = extent(o);
    if (cells.begin < 0) cells.begin += (-cells.begin + cells.step - 1) / cells.step * cells.step;
    if (cells.end > in) cells.end = in;
    return cells;
  }

  /// Windows whose extent contains cell i. With dilation, some of them skip the cell.
  VOX_POOL_AXIS Range windows_over(Int i) const {
    if (adaptive) return {i * out / in, ((i + 1) * out + in - 1) / in, 1};
    const Int extent = (kernel - 1) * dilation + 1;
    const Int first = i + padding - extent + 1;
    const Int begin = first > 0 ? (first + stride - 1) / stride : 0;
    const Int end = (i + padding) / stride + 1;
    return {begin, end < out ? end : out, 1};
  }

  /// Number of window o's positions among the cells and the first `pad` cells of padding at either end, for
  /// dilation 1.
  VOX_POOL_AXIS Int positions(Int o, Int pad) const {
    if (adaptive) return covered_cells(o).end - covered_cells(o).begin;
    const Int start = o * stride - padding, stop = start + kernel, limit = in + pad;
    return (stop < limit ? stop : limit) - (start > -pad ? start : -pad);
  }
};
using PoolAxis = PoolAxisOf<int64_t>;

}  // namespace vox
