#include <voxgrad/cuda/conv3d/flat/plan.h>
#include <voxgrad/cuda/conv3d/model/ranges.h>
#include <voxgrad/ops/conv3d_lattice.h>

#include <algorithm>

namespace vox::cuda::conv::flat {

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

/// Positions from one row (of cells, or of rows) to the next.
int64_t pitch_of(const Axis& a) {
  return row_pitch<int64_t>(a.cells, a.in_cells, a.base, int64_t{a.taps - 1} * a.tap_step);
}

/// The same for rows of cells. Where rows of the input can be read as words, they may need one more position
/// between them (rows_are_words); rows that are too short to gain from it do without.
int64_t row_pitch_of(const Axis& w, const TileShape& tile) {
  const int64_t pitch = pitch_of(w);
  return tile.of_16_bits && w.in_cells % 2 == 0 && w.in_cells >= 16 ? pitch + pitch % 2 : pitch;
}

/// Divides shared memory. If the weights of all taps of a window fit twice, planes of the input stream past
/// them, a few at a time. Else weights stream past the planes of a tile, in chunks of taps of equal size.
bool divide_shared(Product& p, const TileShape& tile, int64_t shared) {
  const int64_t taps = int64_t{p.rows} * p.w.taps, all_planes = tile.depths + tile.taps_d - 1;
  const int64_t plane = plane_bytes(p), tap = tap_bytes(tile);
  const int64_t enough = std::clamp<int64_t>(all_planes, 2, 5);
  if (2 * taps * tap + enough * plane <= shared) {
    p.stages = 2;
    p.chunk = narrow(taps);
    p.planes = narrow(std::min((shared - 2 * taps * tap) / plane, 2 * all_planes));
    return true;
  }
  p.stages = tile.pairs ? 2 : 3;
  for (int64_t ahead = 2; all_planes + ahead >= 2 && ahead >= 0; --ahead) {  // a consumer holds one
    const int64_t left = shared - (all_planes + ahead) * plane;
    if (left <= 0) continue;
    const int64_t chunk = std::min(left / (p.stages * tap), taps);
    if (chunk < (ahead ? std::min<int64_t>(taps, 3) : 1)) continue;
    p.planes = narrow(all_planes + ahead);
    p.chunk = narrow(ceil_div(taps, ceil_div(taps, chunk)));
    if (tile.pairs && p.chunk % 2 && p.chunk < chunk) ++p.chunk;
    return true;
  }
  return false;
}

}  // namespace

std::optional<Axes> axes_of(const Conv3dGeometry& g, bool transposed) {
  if (std::max({g.stride.d, g.stride.h, g.stride.w}) > 1) return std::nullopt;
  const auto axis = [&](int64_t i) { return axis_of(ascending_lattices(g, transposed, i).front()); };
  return Axes{axis(0), axis(1), axis(2)};
}

std::optional<Product> cut_in_tiles(const Conv3dGeometry& g, bool transposed, const Axes& axes,
                                    const TileShape& tile) {
  Product p{};
  p.d = axes.d, p.h = axes.h, p.w = axes.w;
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
  p.depth_blocks = narrow(int64_t{p.d.tap_step} * ceil_div(ceil_div(p.d.cells, p.d.tap_step), tile.depths));
  p.channel_blocks = narrow(ceil_div(p.out_per_group, tile.channels));

  // As many rows of taps per window as fit, in groups of equal size.
  const int64_t columns = int64_t{p.w.taps - 1} * p.column_shift,
                room = tile.most_window - tile.positions - columns;
  if (p.d.taps % tile.taps_d || room < 0) return std::nullopt;
  const int64_t rows = std::min<int64_t>(p.h.taps, room / (int64_t{p.h.tap_step} * pitch_w) + 1);
  p.row_groups = narrow(ceil_div(p.h.taps, rows));
  p.rows = narrow(ceil_div(p.h.taps, p.row_groups));
  p.window = narrow(tile.positions + (p.rows - 1) * int64_t{p.row_shift} + columns);
  p.k_blocks = narrow(ceil_div(p.in_per_group, tile.k_block_channels));
  p.depth_groups = p.d.taps / tile.taps_d;
  return p;
}

std::optional<Product> cut_product(const Conv3dGeometry& g, bool transposed, const Axes& axes,
                                   const TileShape& tile, int64_t shared) {
  auto p = cut_in_tiles(g, transposed, axes, tile);
  if (p && !divide_shared(*p, tile, shared)) return std::nullopt;
  return p;
}

std::optional<Planned> make_plan(const Conv3dGeometry& g, bool transposed, const Machine& machine) {
  const auto axes = axes_of(g, transposed);
  if (!axes) return std::nullopt;
  // The fewest blocks of channels, and then the least padding; the largest group of taps along d that divides
  // their number.
  const int64_t eighths = ceil_div(transposed ? g.big_per_group() : g.small_per_group(), 8);
  const int64_t channels = ceil_div(eighths, ceil_div(eighths, 8)) * 8;
  const auto* const size = std::ranges::find_if(tile_sizes, [&](auto t) { return channels <= t.channels; });
  const int taps_d = axes->d.taps % 3 == 0 ? 3 : axes->d.taps % 2 == 0 ? 2 : 1;
  const TileShape tile = tile_of(size->channels, size->depths, taps_d);
  const auto p =
      cut_product(g, transposed, *axes, tile, machine.block_shared_bytes - barrier_bytes - zero_bytes(tile));
  // The second tap of a pair must lie behind the first, also from the end of a row of taps to the next.
  if (!p || (p->h.taps > 1 && p->row_shift <= (p->w.taps - 1) * p->column_shift)) return std::nullopt;
  return Planned{tile, *p};
}

}  // namespace vox::cuda::conv::flat
