#pragma once

#include <voxgrad/cuda/conv3d/common/integers.h>
#include <voxgrad/ops/conv3d_geometry.h>

// What plans of conv3d and conv_transpose3d say of the operands, under the same names everywhere. The caller
// knows that the numbers fit int.

namespace vox::cuda::conv {

/// Sets an axis's extents of input, output and cells, and the distance of cells in each: the stride on the
/// fine side, 1 on the other. Cells, the rows of products, are those of the coarse grid.
template <class Axis>
void set_sizes(Axis& axis, const Conv3dGeometry& g, bool transposed, int64_t i) {
  axis.in = narrow(transposed ? g.small[i] : g.big[i]);
  axis.out = narrow(transposed ? g.big[i] : g.small[i]);
  axis.in_step = narrow(transposed ? 1 : g.stride[i]);
  axis.out_step = narrow(transposed ? g.stride[i] : 1);
  axis.cells = ceil_div(axis.out, axis.out_step);
  axis.kernel = narrow(g.kernel[i]);
}

/// Sets a plan's direction, batch and channels.
template <class Plan>
void set_sizes(Plan& p, const Conv3dGeometry& g, bool transposed) {
  p.transposed = transposed;
  p.batch = narrow(g.batch), p.groups = narrow(g.groups);
  p.in_per_group = narrow(transposed ? g.small_per_group() : g.big_per_group());
  p.out_per_group = narrow(transposed ? g.big_per_group() : g.small_per_group());
}

}  // namespace vox::cuda::conv
