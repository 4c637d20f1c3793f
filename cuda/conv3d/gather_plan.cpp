#include <voxgrad/cuda/conv3d/gather_plan.h>
#include <voxgrad/cuda/conv3d/integers.h>

#include <algorithm>
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

/// Rows of the output that `cells` of them, from a multiple of as many on, lie in.
int64_t rows_of(int64_t cells, const Triple& out) {
  const int64_t rows = cells % out.w == 0 ? cells / out.w : out.w % cells == 0 ? 1 : (cells - 2) / out.w + 2;
  return std::min(rows, out.h);
}

/// Depths of a block: all tiles' depths stand in a row, cut into equal pieces, or tiles are left whole where
/// that costs less: after a cut the planes before it are read anew.
int64_t steps_of(int64_t columns, int64_t depths, int64_t slots, int64_t blocks) {
  const int64_t whole = ceil_div(columns, blocks) * depths, part = ceil_div(columns * depths, blocks);
  return std::max<int64_t>(whole <= part + slots - 1 ? whole : part, 1);
}

}  // namespace

std::optional<GatherTile> gather_tile(const Conv3dGeometry& g) {
  const int64_t slots = depths_of_a_plane(g);
  if (slots > most_gather_slots) return std::nullopt;
  const int64_t wanted = g.small_per_group();
  int channels = wanted <= 16 ? 16 : wanted <= 32 ? 32 : wanted <= 48 ? 48 : 64;
  if (wanted > 64) channels = wanted % 64 == 0 || wanted % 64 > 32 ? 64 : 32;
  if (slots == 3 && channels > 32) channels = 32;
  const int most_tiles = slots * channels <= 64 ? 2 : 1;
  for (int tiles = most_tiles; tiles > 0; --tiles) {
    const int warpgroups = gather_warpgroups(channels, narrow(slots), tiles);
    if (const GatherTile t{channels, narrow(slots), tiles, warpgroups}; gather_plan(g, t, 1)) return t;
  }
  return std::nullopt;
}

std::optional<GatherPlan> gather_plan(const Conv3dGeometry& g, const GatherTile& tile, int multiprocessors) {
  GatherPlan p{};
  const int64_t all_cells = int64_t{tile.warpgroups} * tile.tiles * 64;
  if (g.big_per_group() % 8 != 0 || g.batch == 0) return std::nullopt;
  if (g.kernel.h > 16 || g.kernel.w > 16 || g.kernel.h * g.kernel.w > most_gather_taps) return std::nullopt;
  for (const int64_t n : {g.batch * g.big_channels, g.batch * g.small_channels, g.big_cells(), g.small_cells()})
    if (n > most_int / 2) return std::nullopt;
  for (int64_t axis = 0; axis < 3; ++axis)
    if (std::max({g.stride[axis], g.padding[axis], g.dilation[axis], g.kernel[axis]}) > 1 << 12)
      return std::nullopt;
  const int64_t rows =
      std::min((rows_of(all_cells, g.small) - 1) * g.stride.h + (g.kernel.h - 1) * g.dilation.h + 1, g.big.h);
  // As the rows come, with their misalignment; 4 modulo 8 words, so that with a stride of 2 channels that a
  // warp reads at once lie in different banks.
  const int64_t words = (rows * g.big.w + 3 + 3) / 4 * 4;
  const int64_t channel_words = words % 8 == 0 ? words + 4 : words;
  const int64_t slot_weights = g.kernel.h * g.kernel.w * tile.channels * 32;
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
  p.slabs = p.in_per_group / 8;
  p.taps = narrow(g.kernel.h * g.kernel.w);
  p.channel_bytes = narrow(channel_words * 4);
  p.slot_weights = narrow(slot_weights);
  p.stages = narrow(stages), p.stage_bytes = narrow(stage_bytes);
  p.shared_bytes = narrow(stages * stage_bytes);
  // Blocks of the packing kernel along its axes.
  if (g.kernel.d > 65535 || int64_t{p.groups} * p.channel_blocks * p.slabs > 65535) return std::nullopt;
  const int64_t columns = int64_t{p.batch} * p.plane_tiles;
  if (columns * p.d.out > most_int / 2) return std::nullopt;
  const int64_t blocks = std::max(multiprocessors / (p.groups * p.channel_blocks), 1);
  p.steps = narrow(steps_of(columns, p.d.out, tile.slots, blocks));
  p.blocks = narrow(ceil_div(columns * p.d.out, p.steps));
  for (int i = 0; i < p.taps; ++i) {
    const int k_h = i / p.w.kernel, k_w = i % p.w.kernel;
    p.tap[i] = {narrow(4 * (int64_t{k_h} * p.h.dilation * p.w.in + int64_t{k_w} * p.w.dilation)),
                1u << k_h | 1u << (16 + k_w)};
  }
  return p;
}

}  // namespace vox::cuda
