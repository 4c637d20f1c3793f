#include <voxgrad/cuda/conv3d/mma/plan.h>

#include <algorithm>
#include <numeric>

namespace vox::cuda::conv::mma {

Problem problem(const Conv3dGeometry& g, bool transposed, int n_tiles) {
  Problem p{};
  p.transposed = transposed;
  p.phases = 1;
  p.chunk = 1;
  int64_t largest_phase = 1;
  for (int axis = 0; axis < 3; ++axis) {
    const int64_t in = (transposed ? g.small : g.big)[axis], out = (transposed ? g.big : g.small)[axis];
    const int64_t stride = g.stride[axis], common = std::gcd(stride, g.dilation[axis]);
    const int64_t phases = transposed ? std::min(stride, out) : 1;
    p.axis[axis] = {.in_cells = narrow(in),
                    .out_cells = narrow(out),
                    .kernel = narrow(g.kernel[axis]),
                    .stride = narrow(stride),
                    .padding = narrow(g.padding[axis]),
                    .dilation = narrow(g.dilation[axis]),
                    .phases = narrow(phases),
                    .tap_pace = narrow(stride / common),
                    .cell_pace = narrow(g.dilation[axis] / common)};
    p.phases *= phases;
    int64_t longest = transposed ? ceil_div(out, stride) : out;
    if (axis == 2) {
      // With more phases each has only a few cells, so a bound is enough.
      if (phases > 64) longest += most_halo;
      p.chunk = phases > 64 ? most_chunk : 1;
      for (int phase = 0; phase < std::min<int64_t>(phases, 64); ++phase) {
        const PhaseAxis w = phase_axis(p.axis[2], transposed, phase);
        longest = std::max<int64_t>(longest, w.pitch);
        p.chunk = std::max(p.chunk, w.chunk);
      }
    }
    largest_phase *= longest;
  }
  p.batch = g.batch;
  p.groups = g.groups;
  p.in_per_group = transposed ? g.small_per_group() : g.big_per_group();
  p.out_per_group = transposed ? g.big_per_group() : g.small_per_group();
  p.in_cells = transposed ? g.small_cells() : g.big_cells();
  p.out_cells = transposed ? g.big_cells() : g.small_cells();
  p.taps = g.taps();
  p.tiles = ceil_div(p.batch * largest_phase, block_cells);
  p.blocks_n = ceil_div(p.out_per_group, 8 * n_tiles);
  p.slices = ceil_div(p.in_per_group, slice);
  return p;
}

}  // namespace vox::cuda::conv::mma
