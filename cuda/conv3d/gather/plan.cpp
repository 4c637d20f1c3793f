#include <voxgrad/cuda/conv3d/common/integers.h>
#include <voxgrad/cuda/conv3d/gather/plan.h>
#include <voxgrad/cuda/conv3d/model/ranges.h>
#include <voxgrad/cuda/conv3d/model/search.h>
#include <voxgrad/cuda/conv3d/model/sizes.h>
#include <voxgrad/ops/conv3d_lattice.h>

#include <algorithm>
#include <cmath>

namespace vox::cuda::conv::gather {

namespace {

constexpr int64_t shared_limit = h200.block_shared_bytes - 1024;  // less barriers and alignment
constexpr int64_t most_parts = 64;

/// The largest number of output rows that `cells` cells can touch, starting from a multiple of `cells`.
int64_t rows_of(int64_t cells, int64_t width, int64_t rows) {
  const int64_t most = cells % width == 0 ? cells / width : width % cells == 0 ? 1 : (cells - 2) / width + 2;
  return std::min(most, rows);
}

/// The distance between a channel's rows and the next channel's in a stage: the rows, with their
/// misalignment, and padding against bank conflicts among the 4 channels of 8 cells that a warp reads at once
/// (channel_of). With stride 1 channels lie 8 words apart. With stride 2 they lie in pairs 16 words apart,
/// whose cells share banks only if a channel of the input has an even number of elements.
/// (gather/plan_test.cpp has the table.)
int64_t channel_words(int64_t rows, int64_t width, bool neighbours) {
  const int64_t least = ceil_div(rows * width + 3, 4) * 4, modulo = neighbours ? 32 : 8;
  return least + ((neighbours ? 8 : 4) - least % modulo + modulo) % modulo;
}

/// For a product split in three: how many taps the tensor cores add up before their sum moves to f32
/// registers. Tensor cores truncate when they add, relative to the sum so far, so the error grows with the
/// number of taps. This many keep it, measured, within twice that of f32 arithmetic. The number is even,
/// unless it is all taps.
int chunk_of(int taps, double products) {
  const int most = std::max(static_cast<int>(0.23 * std::sqrt(products)), 2);
  if (taps <= most) return taps;
  const int chunks = ceil_div(taps, most / 2 * 2);
  return ceil_div(taps, 2 * chunks) * 2;
}

/// The time in units of one plane of a tile in a block.
int64_t steps_of(int64_t tiles, int64_t parts, const Lattice& d, int64_t slots, int64_t blocks) {
  return ceil_div(tiles * parts, blocks) * (ceil_div(d.outputs, parts) * d.in_step + slots - 1);
}

/// How many parts the output's depths are cut into. Blocks take jobs (a part of a tile) in turn, neighbouring
/// tiles at the same time, so that rows that both read come from memory once. A part costs its planes, and
/// some of the previous part.
int64_t parts_of(int64_t tiles, const Lattice& d, int64_t slots, int64_t blocks) {
  Least<int64_t, int64_t> best;
  for (int64_t parts = 1; parts <= std::min(d.outputs, most_parts); ++parts)
    best.offer(parts, steps_of(tiles, parts, d, slots, blocks));
  return *best.best();
}

Axis axis_of(const Lattice& l) {
  return {narrow(l.input),     narrow(l.outputs),    narrow(l.in_step),
          narrow(-l.in_first), narrow(l.in_per_tap), narrow(l.taps)};
}

/// Blocks that share the jobs of one block of channels.
int64_t blocks_of(const Plan& p, const Machine& machine) {
  return std::max(machine.multiprocessors / (p.groups * p.channel_blocks), 1);
}

std::optional<Plan> plan_of(const Conv3dGeometry& g, bool transposed, const Lattices& of,
                            const TileShape& tile, const Machine& machine) {
  const auto& [d, h, w] = of;
  Plan p{};
  p.d = axis_of(d), p.h = axis_of(h), p.w = axis_of(w);
  p.neighbours = p.w.stride % 2 == 1;
  const int64_t all_cells = int64_t{warpgroups} * tile.tiles * 64;
  const int64_t rows = std::min(
      (rows_of(all_cells, w.outputs, h.outputs) - 1) * h.in_step + (h.taps - 1) * h.in_per_tap + 1, h.input);
  const int64_t channel_bytes = 4 * channel_words(rows, w.input, p.neighbours);
  const int64_t slot_weights = h.taps * w.taps * tile.channels * (tile.split ? 64 : 32);
  const int64_t stage_bytes = channel_bytes * 8 + slot_weights * tile.slots;
  const int64_t stages = std::min<int64_t>(shared_limit / stage_bytes, most_stages);
  if (stages < 2) return std::nullopt;
  set_sizes(p, g, transposed);
  p.in_plane = narrow(h.input * w.input), p.cells = narrow(h.outputs * w.outputs);
  p.in_channel = p.in_plane * p.d.in, p.out_channel = p.cells * p.d.out;
  p.channel_blocks = narrow(ceil_div(p.out_per_group, tile.channels));
  p.plane_tiles = narrow(ceil_div(p.cells, all_cells));
  p.k_blocks = ceil_div(p.in_per_group, 8);
  p.taps = narrow(h.taps * w.taps);
  const int64_t planes = std::min(d.taps, ceil_div(d.input, d.in_per_tap));  // that an output may read
  p.chunk = chunk_of(p.taps, static_cast<double>(p.in_per_group) * static_cast<double>(planes * p.taps));
  p.channel_bytes = narrow(channel_bytes);
  p.slot_weights = narrow(slot_weights);
  p.stages = narrow(stages), p.stage_bytes = narrow(stage_bytes);
  p.shared_bytes = narrow(stages * stage_bytes);
  if (int64_t{p.groups} * p.channel_blocks > 65535) return std::nullopt;  // the launch's blocks along y
  const int64_t tiles = int64_t{p.batch} * p.plane_tiles;
  // For the largest number of parts: the actual number depends on the multiprocessors.
  if (tiles > most_int / 2 / most_parts) return std::nullopt;
  const int64_t blocks = blocks_of(p, machine);
  p.depths = narrow(ceil_div(p.d.out, parts_of(tiles, d, tile.slots, blocks)));
  p.parts = narrow(ceil_div(p.d.out, p.depths));
  p.jobs = narrow(tiles * p.parts);
  p.blocks = narrow(std::min<int64_t>(blocks, p.jobs));
  for (int i = 0; i < p.taps; ++i) {
    const int k_h = i / p.w.kernel, k_w = i % p.w.kernel;
    p.tap[i] = {narrow(4 * (int64_t{k_h} * p.h.dilation * p.w.in + int64_t{k_w} * p.w.dilation)),
                1u << k_h | 1u << (16 + k_w)};
  }
  p.tap[p.taps] = {0, ~0u};
  return p;
}

/// Whether numbers fit their types.
bool moderate(const Conv3dGeometry& g) {
  if (g.kernel.d > 1000 || g.kernel.h > 16 || g.kernel.w > 16) return false;
  if (g.kernel.h * g.kernel.w > most_taps) return false;
  for (int64_t axis = 0; axis < 3; ++axis)
    if (!all_fit({g.stride[axis], g.padding[axis], g.dilation[axis], g.kernel[axis]}, 1 << 12)) return false;
  return all_fit({g.batch * g.big_channels, g.batch * g.small_channels, g.big_cells(), g.small_cells()},
                 most_int / 8);
}

}  // namespace

std::optional<Planned> make_plan(const Conv3dGeometry& g, bool transposed, bool split,
                                 const Machine& machine) {
  if (g.batch == 0 || !moderate(g) || (transposed && g.stride != Triple(1))) return std::nullopt;
  // With stride 1 conv_transpose3d has one phase, a conv3d with the taps in reverse.
  const Lattices of{ascending_lattices(g, transposed, 0)[0], ascending_lattices(g, transposed, 1)[0],
                    ascending_lattices(g, transposed, 2)[0]};
  const int64_t slots = (of[0].taps - 1) * of[0].in_per_tap / of[0].in_step + 1;  // depths that read a plane
  Least<Planned> least;
  for (int i = 0; i < tile_shapes; ++i) {
    const TileShape tile = tile_shape(i);
    if (!has_kernel(tile) || tile.slots != slots || tile.split != split) continue;
    const auto plan = plan_of(g, transposed, of, tile, machine);
    if (!plan) continue;
    const int64_t columns = int64_t{plan->groups} * plan->channel_blocks;
    const int64_t steps = steps_of(int64_t{plan->batch} * plan->plane_tiles, plan->parts, of[0], slots,
                                   blocks_of(*plan, machine));
    // The cost of a tap: a wgmma of each slot, and the gathering.
    const int64_t of_tap = tile.tiles * (slots * tile.channels / 2 * (split ? 3 : 1) + 24) + 24;
    least.offer({tile, *plan}, static_cast<double>(steps * ceil_div(columns, machine.multiprocessors)) *
                                   static_cast<double>(of_tap));
  }
  return least.best();
}

}  // namespace vox::cuda::conv::gather
