#include <voxgrad/cuda/conv3d/common/integers.h>
#include <voxgrad/cuda/conv3d/flat/plan.h>

#include <algorithm>
#include <limits>
#include <numeric>

namespace vox::cuda::conv::flat {

namespace {

constexpr int64_t most_int = std::numeric_limits<int>::max();

Axis axis_of(const Conv3dGeometry& g, bool transposed, int64_t axis, int64_t phase) {
  const int64_t in = (transposed ? g.small : g.big)[axis], out = (transposed ? g.big : g.small)[axis];
  const int64_t kernel = g.kernel[axis], stride = g.stride[axis], padding = g.padding[axis],
                dilation = g.dilation[axis];
  if (!transposed)
    return {
        narrow(in), narrow(out), narrow(kernel), narrow(-padding), narrow(kernel > 1 ? dilation : 1), 1, 0, 0,
        1};
  const int64_t common = std::gcd(stride, dilation), pace = stride / common, step = dilation / common;
  Axis a{narrow(in),
         narrow((out - 1 - phase) / stride + 1),
         0,
         0,
         narrow(step),
         narrow(stride),
         narrow(phase),
         0,
         narrow(-pace)};
  for (int64_t k = 0; k < std::min(kernel, pace); ++k) {
    const int64_t distance = phase + padding - k * dilation;
    if (distance % stride) continue;
    const int64_t last = (kernel - 1 - k) / pace;  // the tap that reads the lowest cell
    a.taps = narrow(last + 1);
    a.first_tap = narrow(k + last * pace);
    a.base = narrow(distance / stride - last * step);
    if (a.taps == 1) a.tap_step = 1;
    break;
  }
  return a;
}

/// Positions from one row (of cells, or of rows) to the next. A tap that reads `halo` cells past the last
/// cell must find zeros: those that end its row, which also begin the next one, or additional ones between
/// the rows.
int64_t pitch_of(const Axis& a) {
  const int64_t halo = int64_t{a.taps - 1} * a.tap_step, cells = a.cells;
  const int64_t shared = std::max({cells, int64_t{a.in_cells} - a.base, cells + halo + a.base});
  return std::min(cells + halo, shared);
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
  const int64_t plane = plane_bytes(p, tile), tap = tap_bytes(tile);
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

Axes axes_of(const Conv3dGeometry& g, bool transposed, Triple phase) {
  return {axis_of(g, transposed, 0, phase.d), axis_of(g, transposed, 1, phase.h),
          axis_of(g, transposed, 2, phase.w)};
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
  if (g.batch * pitch_h * pitch_w > most_positions || positions + reach > most_positions ||
      in_channels > most_int || out_channels > most_int || in_channels * in_channel > most_int / images)
    return std::nullopt;

  p.batch = narrow(g.batch), p.groups = narrow(g.groups);
  p.in_per_group = narrow(in_channels / g.groups), p.out_per_group = narrow(out_channels / g.groups);
  p.in_channel = in_channel;
  p.out_channel = transposed ? g.big_cells() : g.small_cells();
  p.out_h = narrow((transposed ? g.big : g.small).h), p.out_w = narrow((transposed ? g.big : g.small).w);
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
  p.slabs = narrow(ceil_div(p.in_per_group, tile.slab));
  p.depth_groups = p.d.taps / tile.taps_d;
  return p;
}

std::optional<Product> cut_product(const Conv3dGeometry& g, bool transposed, const Axes& axes,
                                   const TileShape& tile, int64_t shared) {
  auto p = cut_in_tiles(g, transposed, axes, tile);
  if (p && !divide_shared(*p, tile, shared)) return std::nullopt;
  return p;
}

}  // namespace vox::cuda::conv::flat
