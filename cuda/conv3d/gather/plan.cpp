#include <voxgrad/cuda/conv3d/common/integers.h>
#include <voxgrad/cuda/conv3d/gather/plan.h>

#include <algorithm>
#include <cmath>
#include <limits>

namespace vox::cuda::conv::gather {

namespace {

constexpr int64_t shared_limit = 227 * 1024 - 1024;  // of a block on Hopper, less barriers and alignment
constexpr int64_t most_int = std::numeric_limits<int>::max();
constexpr int64_t most_parts = 64;

/// The problem as a conv3d: conv_transpose3d with stride 1 is one with the taps in reverse.
struct Gathering {
  Triple in, out, stride, padding;
  int64_t in_per_group, out_per_group;
  bool transposed;
};
Gathering gathering(const Conv3dGeometry& g, bool transposed) {
  if (!transposed)
    return {g.big, g.small, g.stride, g.padding, g.big_per_group(), g.small_per_group(), false};
  Triple padding;
  for (int64_t axis = 0; axis < 3; ++axis)
    padding[axis] = (g.kernel[axis] - 1) * g.dilation[axis] - g.padding[axis];
  return {g.small, g.big, g.stride, padding, g.small_per_group(), g.big_per_group(), true};
}

/// The largest number of output depths that read one plane of the input.
int64_t depths_of_a_plane(const Conv3dGeometry& g) {
  return (g.kernel.d - 1) * g.dilation.d / g.stride.d + 1;
}

/// The largest number of output rows that `cells` cells can touch, starting from a multiple of `cells`.
int64_t rows_of(int64_t cells, const Triple& out) {
  const int64_t rows = cells % out.w == 0 ? cells / out.w : out.w % cells == 0 ? 1 : (cells - 2) / out.w + 2;
  return std::min(rows, out.h);
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
int64_t time_of(int64_t tiles, int64_t parts, const Gathering& v, int64_t slots, int64_t blocks) {
  const int64_t depths = ceil_div(v.out.d, parts);
  return ceil_div(tiles * parts, blocks) * (depths * v.stride.d + slots - 1);
}

/// How many parts the output's depths are cut into. Blocks take jobs (a part of a tile) in turn, neighbouring
/// tiles at the same time, so that rows that both read come from memory once. A part costs its planes, and
/// some of the previous part.
int64_t parts_of(int64_t tiles, const Gathering& v, int64_t slots, int64_t blocks) {
  int64_t best = 1;
  for (int64_t parts = 2; parts <= std::min(v.out.d, most_parts); ++parts)
    if (time_of(tiles, parts, v, slots, blocks) < time_of(tiles, best, v, slots, blocks)) best = parts;
  return best;
}

std::optional<Plan> plan_of(const Conv3dGeometry& g, const Gathering& v, const TileShape& tile,
                            int multiprocessors) {
  Plan p{};
  p.transposed = v.transposed;
  p.neighbours = v.stride.w % 2 == 1;
  const int64_t all_cells = int64_t{warpgroups} * tile.tiles * 64;
  const int64_t rows =
      std::min((rows_of(all_cells, v.out) - 1) * v.stride.h + (g.kernel.h - 1) * g.dilation.h + 1, v.in.h);
  const int64_t channel_bytes = 4 * channel_words(rows, v.in.w, p.neighbours);
  const int64_t slot_weights = g.kernel.h * g.kernel.w * tile.channels * (tile.split ? 64 : 32);
  const int64_t stage_bytes = channel_bytes * 8 + slot_weights * tile.slots;
  const int64_t stages = std::min<int64_t>(shared_limit / stage_bytes, most_stages);
  if (stages < 2) return std::nullopt;
  const auto axis = [&](int64_t i) {
    return Axis{narrow(v.in[i]),      narrow(v.out[i]),      narrow(v.stride[i]),
                narrow(v.padding[i]), narrow(g.dilation[i]), narrow(g.kernel[i])};
  };
  p.d = axis(0), p.h = axis(1), p.w = axis(2);
  p.batch = narrow(g.batch), p.groups = narrow(g.groups);
  p.in_per_group = narrow(v.in_per_group), p.out_per_group = narrow(v.out_per_group);
  p.in_plane = narrow(v.in.h * v.in.w), p.cells = narrow(v.out.h * v.out.w);
  p.in_channel = p.in_plane * p.d.in, p.out_channel = p.cells * p.d.out;
  p.channel_blocks = narrow(ceil_div(p.out_per_group, tile.channels));
  p.plane_tiles = narrow(ceil_div(p.cells, all_cells));
  p.slabs = ceil_div(p.in_per_group, 8);
  p.taps = narrow(g.kernel.h * g.kernel.w);
  const int64_t planes = std::min(g.kernel.d, ceil_div(v.in.d, g.dilation.d));  // that an output may read
  p.chunk = chunk_of(p.taps, static_cast<double>(p.in_per_group) * static_cast<double>(planes * p.taps));
  p.channel_bytes = narrow(channel_bytes);
  p.slot_weights = narrow(slot_weights);
  p.stages = narrow(stages), p.stage_bytes = narrow(stage_bytes);
  p.shared_bytes = narrow(stages * stage_bytes);
  // The packing kernel's blocks along its axes.
  if (int64_t{p.groups} * p.channel_blocks * p.slabs > 65535) return std::nullopt;
  const int64_t tiles = int64_t{p.batch} * p.plane_tiles;
  // For the largest number of parts: the actual number depends on the multiprocessors.
  if (tiles > most_int / 2 / most_parts) return std::nullopt;
  const int64_t blocks = std::max(multiprocessors / (p.groups * p.channel_blocks), 1);
  p.depths = narrow(ceil_div(p.d.out, parts_of(tiles, v, tile.slots, blocks)));
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
  for (const int64_t n :
       {g.batch * g.big_channels, g.batch * g.small_channels, g.big_cells(), g.small_cells()})
    if (n > most_int / 8) return false;
  for (int64_t axis = 0; axis < 3; ++axis)
    if (std::max({g.stride[axis], g.padding[axis], g.dilation[axis], g.kernel[axis]}) > 1 << 12) return false;
  return true;
}

}  // namespace

std::optional<Planned> make_plan(const Conv3dGeometry& g, bool transposed, bool split, int multiprocessors) {
  if (g.batch == 0 || !moderate(g) || (transposed && g.stride != Triple(1))) return std::nullopt;
  const int64_t slots = depths_of_a_plane(g);
  if (slots > most_slots) return std::nullopt;
  const Gathering v = gathering(g, transposed);
  std::optional<Planned> best;
  double least = 0;
  for (const int channels : {16, 32, 48, 64})
    for (const int tiles : {1, 2}) {
      const TileShape tile{channels, narrow(slots), tiles, split};
      if (!has_kernel(tile)) continue;
      const auto plan = plan_of(g, v, tile, multiprocessors);
      if (!plan) continue;
      const int64_t columns = int64_t{plan->groups} * plan->channel_blocks;
      const int64_t steps = time_of(int64_t{plan->batch} * plan->plane_tiles, plan->parts, v, slots,
                                    std::max<int64_t>(multiprocessors / columns, 1));
      // The cost of a tap: a wgmma of each slot, and the gathering.
      const int64_t of_tap = tiles * (slots * channels / 2 * (split ? 3 : 1) + 24) + 24;
      const double time =
          static_cast<double>(steps * ceil_div(columns, multiprocessors)) * static_cast<double>(of_tap);
      if (!best || time < least) best = Planned{tile, *plan}, least = time;
    }
  return best;
}

}  // namespace vox::cuda::conv::gather
