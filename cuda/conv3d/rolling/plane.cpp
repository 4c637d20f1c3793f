#include <voxgrad/cuda/conv3d/model/ranges.h>
#include <voxgrad/cuda/conv3d/rolling/plane.h>
#include <voxgrad/ops/conv3d_lattice.h>

#include <algorithm>

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

}  // namespace vox::cuda::conv::rolling
