#include <voxgrad/cuda/conv3d/model/ranges.h>
#include <voxgrad/cuda/conv3d/rolling/plan.h>
#include <voxgrad/ops/conv3d_lattice.h>

#include <algorithm>
#include <ranges>

namespace vox::cuda::conv::rolling {

namespace {

Axis axis_of(const Lattice& l) {
  return {.in_cells = narrow(l.input),
          .cells = narrow(l.outputs),
          .taps = narrow(l.taps),
          .base = narrow(l.in_first),
          .tap_step = l.taps > 1 ? narrow(l.in_per_tap) : 1,
          .first_tap = narrow(l.tap_first),
          .tap_pace = narrow(l.tap_step)};
}

/// Positions from one row (of cells, or of rows) to the next. Taps that read past the last cell must find
/// zeros there: those that end a row, which also begin the next one, or additional ones between rows.
int64_t pitch_of(const Axis& a) {
  const int64_t end = a.cells + int64_t{a.taps - 1} * a.tap_step;
  return std::min(end, std::max<int64_t>({a.cells, int64_t{a.in_cells} - a.base, end + a.base}));
}

/// The same for rows of cells. Where rows of the input can be read as words, they may need one more position
/// between them (rows_are_words); rows that are too short to gain from it do without.
int64_t row_pitch_of(const Axis& w, const TileShape& tile) {
  const int64_t pitch = pitch_of(w);
  return tile.of_16_bits && w.in_cells % 2 == 0 && w.in_cells >= 16 ? pitch + pitch % 2 : pitch;
}

/// One plane more than there are loading warps, if four chunks of at least four taps fit beside them: a warp
/// takes long for a plane, so many planes must be in flight. Chunks of a window are of equal size.
bool divide_for_march(Product& p, const TileShape& tile, int64_t shared) {
  const int64_t taps = int64_t{p.rows} * p.w.taps, plane = plane_bytes(p), tap = tap_bytes(tile);
  for (int64_t planes = 8; planes >= 2; --planes) {
    const int64_t left = shared - planes * plane;
    if (left <= 0) continue;
    const int64_t most = std::min(left / (4 * tap), taps);
    if (most < (planes > 4 ? std::min<int64_t>(taps, 4) : 1)) continue;
    const int64_t chunk = ceil_div(taps, ceil_div(taps, most));
    p.planes = narrow(planes);
    p.chunk = narrow(chunk);
    p.stages = narrow(std::min<int64_t>(left / (chunk * tap), 8));
    return true;
  }
  return false;
}

/// The planes of the marches from number `step` to `end`.
int64_t planes_of(int64_t step, int64_t end, const Product& p) {
  const int64_t cells = p.d.cells, tiles = end / cells - step / cells, in_last = end % cells;
  const int64_t first = march_at(step, end, p).planes();
  if (tiles == 0) return first;
  const int64_t last = in_last > 0 ? march_at(end - in_last, end, p).planes() : 0;
  return first + (tiles - 1) * march_at(0, cells, p).planes() + last;
}

/// Cuts pieces of at most plan.planes planes, each as long as possible. No other cut has fewer pieces,
/// because a piece that begins later ends no earlier. False if there are not enough blocks for all depths.
bool cut(Plan& plan, int most_blocks) {
  const Product& p = plan.product;
  const int64_t all = steps_of(p), of_tile = std::max(march_at(0, p.d.cells, p).planes(), 1),
                reach = (plan.planes / of_tile + 2) * p.d.cells;
  int64_t step = 0;
  for (plan.blocks = 0; plan.blocks < most_blocks && step < all; plan.cuts[++plan.blocks] = step) {
    const auto ends = std::views::iota(step + 1, std::min(step + reach, all) + 1);
    const auto is_short = [&](int64_t end) { return planes_of(step, end, p) <= plan.planes; };
    step = *std::ranges::partition_point(ends, is_short) - 1;
  }
  return step == all;
}

}  // namespace

std::optional<Product> cut_in_tiles(const Conv3dGeometry& g, bool transposed, const TileShape& tile) {
  if (std::max({g.stride.d, g.stride.h, g.stride.w}) > 1) return std::nullopt;
  const auto axis = [&](int64_t i) { return axis_of(ascending_lattices(g, transposed, i).front()); };
  Product p{};
  p.d = axis(0), p.h = axis(1), p.w = axis(2);
  if (p.d.taps != tile.taps_d || p.d.tap_step > 1) return std::nullopt;
  const int64_t pitch_w = row_pitch_of(p.w, tile), pitch_h = pitch_of(p.h);
  const int64_t positions = ((g.batch - 1) * pitch_h + p.h.cells - 1) * pitch_w + p.w.cells;
  const int64_t reach = int64_t{p.h.taps - 1} * p.h.tap_step * pitch_w;  // of the last row of taps
  const int64_t in_channels = transposed ? g.small_channels : g.big_channels,
                out_channels = transposed ? g.big_channels : g.small_channels;
  const int64_t in_channel = transposed ? g.small_cells() : g.big_cells();
  const int64_t images = std::min(g.batch, tile.most_window / (pitch_h * pitch_w) + 2);  // in one window
  // The kernel numbers positions in 32 bits, including those that the last tile's taps reach.
  const int64_t most_positions = most_int - 2 * tile.most_window;
  if (!all_fit({g.batch * pitch_h * pitch_w, positions + reach}, most_positions) || out_channels > most_int ||
      !product_fits({in_channels, in_channel, images}))
    return std::nullopt;

  p.batch = narrow(g.batch), p.groups = narrow(g.groups);
  p.in_per_group = narrow(in_channels / g.groups), p.out_per_group = narrow(out_channels / g.groups);
  p.in_channel = in_channel;
  p.out_channel = transposed ? g.big_cells() : g.small_cells();
  p.pitch_w = divisor_of(pitch_w), p.pitch_h = divisor_of(pitch_h);
  p.column_shift = p.w.tap_step, p.row_shift = narrow(p.h.tap_step * pitch_w);

  p.tiles = narrow(ceil_div(positions, tile.positions));
  p.channel_blocks = narrow(ceil_div(p.out_per_group, tile.channels));

  // As many rows of taps per window as fit, in groups of equal size.
  const int64_t columns = int64_t{p.w.taps - 1} * p.column_shift,
                room = tile.most_window - tile.positions - columns;
  if (room < 0) return std::nullopt;
  const int64_t rows = std::min<int64_t>(p.h.taps, room / (int64_t{p.h.tap_step} * pitch_w) + 1);
  p.row_groups = narrow(ceil_div(p.h.taps, rows));
  p.rows = narrow(ceil_div(p.h.taps, p.row_groups));
  p.window = narrow(tile.positions + (p.rows - 1) * int64_t{p.row_shift} + columns);
  p.k_blocks = narrow(ceil_div(p.in_per_group, tile.k_block_channels));
  return p;
}

std::optional<Product> cut_product(const Conv3dGeometry& g, bool transposed, const TileShape& tile,
                                   int64_t shared) {
  auto p = cut_in_tiles(g, transposed, tile);
  if (!p || !divide_for_march(*p, tile, shared)) return std::nullopt;
  return p;
}

Plan cut_steps(const Product& p, const Machine& machine) {
  Plan plan{p, 0, 0, {}};
  const int most = std::min(machine.multiprocessors, Plan::most_blocks);
  // Each cut costs up to taps - 1 planes, and a piece may leave as many unused.
  plan.planes = ceil_div(planes_of(0, steps_of(p), p), most);
  while (!cut(plan, most)) ++plan.planes;
  return plan;
}

std::optional<Planned> make_plan(const Conv3dGeometry& g, bool transposed, int storage_bytes,
                                 int operand_bytes, const Machine& machine) {
  const int64_t channels = transposed ? g.big_per_group() : g.small_per_group();
  const bool in_32s =
      channels > 48 && ceil_div(channels, 32) * 2 < ceil_div(channels, 48) * 3;  // padded less
  const TileSize* size = nullptr;  // the smallest with room for the channels, or else the largest
  for (const TileSize& t : tile_sizes)
    if (t.taps_d == g.kernel.d && (!size || size->channels < channels) && !(in_32s && t.channels > 32))
      size = &t;
  if (g.batch == 0 || !size) return std::nullopt;
  const TileShape tile = shape_of(*size, storage_bytes, operand_bytes);
  const auto product =
      cut_product(g, transposed, tile, machine.block_shared_bytes - barrier_bytes - results_bytes(tile));
  if (!product) return std::nullopt;
  return Planned{tile, cut_steps(*product, machine)};
}

}  // namespace vox::cuda::conv::rolling
