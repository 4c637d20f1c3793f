#include <voxgrad/cuda/conv3d/gather_plan.h>
#include <voxgrad/cuda/conv3d/integers.h>

#include <algorithm>
#include <cmath>
#include <limits>

namespace vox::cuda {

namespace {

constexpr int64_t shared_limit = 227 * 1024 - 1024;  // of a block on Hopper, less barriers and alignment
constexpr int64_t most_int = std::numeric_limits<int>::max();
constexpr int64_t most_stages = 8;

GatherAxis axis_of(const Conv3dGeometry& g, int64_t axis) {
  return {narrow(g.big[axis]),     narrow(g.small[axis]),    narrow(g.stride[axis]),
          narrow(g.padding[axis]), narrow(g.dilation[axis]), narrow(g.kernel[axis])};
}

/// Depths of the output that read a plane of the input, at most.
int64_t depths_of_a_plane(const Conv3dGeometry& g) {
  return (g.kernel.d - 1) * g.dilation.d / g.stride.d + 1;
}

/// Rows of the output that `cells` of them lie in, from a multiple of `cells` on.
int64_t rows_of(int64_t cells, const Triple& out) {
  const int64_t rows = cells % out.w == 0 ? cells / out.w : out.w % cells == 0 ? 1 : (cells - 2) / out.w + 2;
  return std::min(rows, out.h);
}

/// Taps that the tensor cores add up before their sum moves to f32 registers, of a product split in three: they
/// truncate when they add, to the size of the sum so far, so that the error grows with the number of taps. This
/// many keep it, measured, within 1.9 times that of f32 arithmetic. Even, if they are not all.
int chunk_of(int taps, double products) {
  const int most = std::max(static_cast<int>(0.23 * std::sqrt(products)), 2);
  if (taps <= most) return taps;
  const int chunks = ceil_div(taps, most / 2 * 2);
  return ceil_div(taps, 2 * chunks) * 2;
}

/// In steps of a block, each a plane of a tile.
int64_t time_of(int64_t tiles, int64_t parts, const Conv3dGeometry& g, int64_t slots, int64_t blocks) {
  const int64_t depths = ceil_div(g.small.d, parts);
  return ceil_div(tiles * parts, blocks) * (depths * g.stride.d + slots - 1);
}

/// How many parts the output's depths are cut into. Blocks take jobs (a part of a tile) in turn, neighbouring
/// tiles at the same time, so that rows that both read come from memory once. A part costs its planes, and
/// some of the part before.
int64_t parts_of(int64_t tiles, const Conv3dGeometry& g, int64_t slots, int64_t blocks) {
  int64_t best = 1;
  for (int64_t parts = 2; parts <= std::min<int64_t>(g.small.d, 64); ++parts)
    if (time_of(tiles, parts, g, slots, blocks) < time_of(tiles, best, g, slots, blocks)) best = parts;
  return best;
}

std::optional<GatherPlan> plan_of(const Conv3dGeometry& g, const GatherTile& tile, int multiprocessors) {
  GatherPlan p{};
  const int64_t all_cells = int64_t{gather_warpgroups} * tile.tiles * 64;
  const int64_t rows =
      std::min((rows_of(all_cells, g.small) - 1) * g.stride.h + (g.kernel.h - 1) * g.dilation.h + 1, g.big.h);
  // Rows as they come, with their misalignment; 4 modulo 8 words, so that with a stride of 2 the channels that
  // a warp reads at once lie in different banks.
  const int64_t words = (rows * g.big.w + 3 + 3) / 4 * 4;
  const int64_t channel_words = words % 8 == 0 ? words + 4 : words;
  const int64_t slot_weights = g.kernel.h * g.kernel.w * tile.channels * (tile.split ? 64 : 32);
  const int64_t stage_bytes = ceil_div(channel_words * 8 * 4, 128) * 128 + slot_weights * tile.slots;
  const int64_t stages = std::min(shared_limit / stage_bytes, most_stages);
  if (stages < 2) return std::nullopt;
  p.d = axis_of(g, 0), p.h = axis_of(g, 1), p.w = axis_of(g, 2);
  p.batch = narrow(g.batch), p.groups = narrow(g.groups);
  p.in_per_group = narrow(g.big_per_group()), p.out_per_group = narrow(g.small_per_group());
  p.in_channel = narrow(g.big_cells()), p.out_channel = narrow(g.small_cells());
  p.in_plane = narrow(g.big.h * g.big.w), p.cells = narrow(g.small.h * g.small.w);
  p.channel_blocks = narrow(ceil_div(p.out_per_group, tile.channels));
  p.plane_tiles = narrow(ceil_div(p.cells, all_cells));
  p.slabs = ceil_div(p.in_per_group, 8);
  p.taps = narrow(g.kernel.h * g.kernel.w);
  p.chunk = chunk_of(p.taps, static_cast<double>(p.in_per_group) * static_cast<double>(g.taps()));
  p.channel_bytes = narrow(channel_words * 4);
  p.slot_weights = narrow(slot_weights);
  p.stages = narrow(stages), p.stage_bytes = narrow(stage_bytes);
  p.shared_bytes = narrow(stages * stage_bytes);
  // Blocks of the packing kernel along its axes.
  if (g.kernel.d > 65535 || int64_t{p.groups} * p.channel_blocks * p.slabs > 65535) return std::nullopt;
  const int64_t tiles = int64_t{p.batch} * p.plane_tiles;
  const int64_t blocks = std::max(multiprocessors / (p.groups * p.channel_blocks), 1);
  p.depths = narrow(ceil_div(p.d.out, parts_of(tiles, g, tile.slots, blocks)));
  p.parts = narrow(ceil_div(p.d.out, p.depths));
  if (tiles * p.parts > most_int / 2) return std::nullopt;
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

}  // namespace

std::optional<GatherPlanned> gather_plan(const Conv3dGeometry& g, bool split, int multiprocessors) {
  const int64_t slots = depths_of_a_plane(g), wanted = g.small_per_group();
  if (slots > most_gather_slots || g.batch == 0) return std::nullopt;
  if (g.kernel.h > 16 || g.kernel.w > 16 || g.kernel.h * g.kernel.w > most_gather_taps) return std::nullopt;
  for (const int64_t n : {g.batch * g.big_channels, g.batch * g.small_channels, g.big_cells(), g.small_cells()})
    if (n > most_int / 8) return std::nullopt;
  for (int64_t axis = 0; axis < 3; ++axis)
    if (std::max({g.stride[axis], g.padding[axis], g.dilation[axis], g.kernel[axis]}) > 1 << 12)
      return std::nullopt;
  std::optional<GatherPlanned> best;
  double least = 0;
  for (const int channels : {16, 32, 48, 64})
    for (const int tiles : {1, 2}) {
      const GatherTile tile{channels, narrow(slots), tiles, split};
      if (!has_gather_kernel(tile)) continue;
      const auto plan = plan_of(g, tile, multiprocessors);
      if (!plan) continue;
      const int64_t steps = time_of(int64_t{plan->batch} * plan->plane_tiles, plan->parts, g, slots,
                                    std::max(multiprocessors / (plan->groups * plan->channel_blocks), 1));
      // Of a tap: a wgmma of each slot, and what gathering takes.
      const int64_t of_tap = tiles * (slots * channels / 2 * (split ? 3 : 1) + 24) + 24;
      const int64_t turns = ceil_div(int64_t{plan->groups} * plan->channel_blocks, multiprocessors);
      const double time = static_cast<double>(steps * turns) * static_cast<double>(of_tap);
      if (!best || time < least) best = GatherPlanned{tile, *plan}, least = time;
    }
  return best;
}

}  // namespace vox::cuda
