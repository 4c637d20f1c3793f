#include <voxgrad/cuda/conv3d/common/integers.h>
#include <voxgrad/cuda/conv3d/dense/dense.h>
#include <voxgrad/cuda/conv3d/dense/plan.h>

#include <algorithm>
#include <cstdlib>
#include <limits>
#include <vector>

namespace vox::cuda::conv::dense {

namespace {

constexpr int64_t most_int = std::numeric_limits<int>::max();
constexpr int barrier_space = 1024;
constexpr int most_stages = 8;
constexpr int most_box = 256;  // elements along an axis of what the copy engine brings, with gaps

int64_t floor_mod(int64_t a, int64_t b) { return (a % b + b) % b; }

// ---- Axes -------------------------------------------------------------------------------------------------

/// Adds the taps of conv_transpose3d that reach the outputs q * stride + first, for each of `joined` values
/// of `first` from the given one on, as the offsets i - q of the input cells that they read. Returns whether
/// all of them have the same offsets.
bool add_phase(Axis& axis, const Conv3dGeometry& g, int64_t i, int64_t first, int joined) {
  const int begin = axis.first_tap[axis.phases];
  int end = begin;
  for (int e = 0; e < joined; ++e) {
    int at = begin;
    for (int64_t k = 0; k < g.kernel[i]; ++k) {
      const int64_t distance = first + e + g.padding[i] - k * g.dilation[i];
      if (floor_mod(distance, g.stride[i]) != 0) continue;
      const auto offset = static_cast<int16_t>(distance / g.stride[i]);
      if (e == 0)
        axis.offset[at] = offset, ++end;
      else if (at == end || axis.offset[at] != offset)
        return false;
      axis.tap[e][at++] = static_cast<int16_t>(k);
    }
    if (at != end) return false;
  }
  axis.first_out[axis.phases] = narrow(first);
  axis.first_tap[++axis.phases] = end;
  return true;
}

Axis empty_axis(const Conv3dGeometry& g, bool transposed, int64_t i) {
  Axis axis{};
  axis.in = narrow(transposed ? g.small[i] : g.big[i]);
  axis.out = narrow(transposed ? g.big[i] : g.small[i]);
  axis.in_step = narrow(transposed ? 1 : g.stride[i]);
  axis.out_step = narrow(transposed ? g.stride[i] : 1);
  axis.kernel = narrow(g.kernel[i]);
  return axis;
}

Axis axis_of(const Conv3dGeometry& g, bool transposed, int64_t i) {
  Axis axis = empty_axis(g, transposed, i);
  axis.cells = ceil_div(axis.out, axis.out_step);
  if (transposed) {
    for (int64_t first = 0; first < std::min(g.stride[i], g.big[i]); ++first) add_phase(axis, g, i, first, 1);
    return axis;
  }
  for (int k = 0; k < axis.kernel; ++k) {
    axis.offset[k] = static_cast<int16_t>(k * g.dilation[i] - g.padding[i]);
    axis.tap[0][k] = static_cast<int16_t>(k);
  }
  axis.phases = 1;
  axis.first_tap[1] = axis.kernel;
  return axis;
}

/// All phases along w as one, if they are 2 or 4 and there is a first output from which they have the same
/// offsets. (Joined with zeros for taps that a phase does not have, an Inf of the input would reach outputs
/// that it does not touch.)
std::optional<Axis> joined_axis(const Conv3dGeometry& g) {
  if (g.stride.w != 2 && g.stride.w != 4) return std::nullopt;
  for (int64_t first = 0; first > -g.stride.w; --first) {
    Axis axis = empty_axis(g, true, 2);
    axis.cells = narrow(ceil_div(g.big.w - first, g.stride.w));
    if (add_phase(axis, g, 2, first, narrow(g.stride.w))) return axis;
  }
  return std::nullopt;
}

// ---- Boxes ------------------------------------------------------------------------------------------------

/// The extents, `most` at most, that cut `cells` into equal parts: the largest first.
std::vector<int> extents_of(int cells, int most) {
  std::vector<int> extents;
  for (int extent = std::min(cells, most); extent >= 1; --extent) {
    extent = ceil_div(cells, ceil_div(cells, extent));
    extents.push_back(extent);
  }
  return extents;
}

/// The largest extent of a box, with gaps between its elements.
int most_extent(const Axis& axis, int rows) { return std::min(rows, (most_box - 1) / axis.in_step + 1); }

/// What follows from the extents of a box.
void count_boxes(Plan& p) {
  for (Axis* axis : {&p.d, &p.h, &p.w}) axis->tiles = ceil_div(axis->cells, axis->box);
  p.batch_tiles = ceil_div(p.batch, p.box_n);
  p.box_rows = p.w.box * p.h.box * p.d.box * p.box_n;
}

/// Cuts the cells into boxes of `rows` at most: as few as possible, but not with short runs of outputs in
/// memory.
void cut_cells(Plan& p, int rows) {
  double least = std::numeric_limits<double>::infinity();
  for (const int w : extents_of(p.w.cells, most_extent(p.w, rows)))
    for (const int h : extents_of(p.h.cells, most_extent(p.h, rows / w)))
      for (const int d : extents_of(p.d.cells, most_extent(p.d, rows / (w * h)))) {
        const int n = p.groups == 1 ? std::min({p.batch, rows / (w * h * d), 256}) : 1;
        const int64_t boxes = int64_t{ceil_div(p.w.cells, w)} * ceil_div(p.h.cells, h) *
                              ceil_div(p.d.cells, d) * ceil_div(p.batch, n);
        const int run = (w << p.joined) * (w == p.w.cells ? h : 1);
        const double cost = static_cast<double>(boxes) * (1 + 4.0 / run);
        if (cost >= least) continue;
        least = cost;
        p.w.box = w, p.h.box = h, p.d.box = d, p.box_n = n;
      }
  count_boxes(p);
  p.window_w = p.w.box, p.window_h = p.h.box;
}

// ---- Time -------------------------------------------------------------------------------------------------

// Cycles, fitted to the times of all tiles and splits on 118 problems (NOTES.md): bytes that the L2 cache
// brings a multiprocessor in one; what a block takes besides its products, alone on a multiprocessor and
// beside another, and for each of its sums; and what it takes in a cluster in addition.
constexpr double l2_bytes = 57, alone = 8600, beside = 2800, of_sum = 0.09;
constexpr double in_cluster = 1700, of_sum_in_cluster = 0.2;
// The same for windows.cuh: of a tile besides its products, if outputs are stored by fours or one by one; and
// of a launch.
constexpr double of_tile = 3000, of_tile_by_ones = 18000, of_windows = 5000;

/// How many blocks run at once, one on a multiprocessor. Clusters do not find room for all: their blocks are
/// on multiprocessors of one part of the GPU, of 16 or 18 or fewer.
int blocks_at_once(int split, int multiprocessors) {
  return (split <= 2 ? multiprocessors : multiprocessors * 9 / 10) / split * split;
}

double cycles_of(const Plan& p, const TileShape& tile, int64_t steps, int multiprocessors) {
  const double step = std::max(4.0 * tile.products * tile.columns, tile.stage_bytes() / l2_bytes);
  const int at_once = blocks_at_once(p.split, multiprocessors);
  const int64_t rounds = ceil_div(p.blocks, at_once * p.resident) * p.resident;
  const double sums = static_cast<double>(tile.rows()) * tile.columns;
  double block = static_cast<double>(ceil_div(steps, p.split)) * step + of_sum * sums;
  block += p.resident > 1 ? beside : alone;
  if (p.split > 1) block += in_cluster + of_sum_in_cluster * sums;
  return static_cast<double>(rounds) * block;
}

/// Whether numbers fit their types.
bool moderate(const Conv3dGeometry& g, bool transposed) {
  for (int64_t i = 0; i < 3; ++i) {
    if (g.kernel[i] > most_taps || g.stride[i] > (transposed ? most_phases : 8)) return false;
    if (g.padding[i] + g.kernel[i] * g.dilation[i] > 1 << 14) return false;
  }
  for (const auto& [channels, cells] :
       {std::pair(g.big_channels, g.big_cells()), std::pair(g.small_channels, g.small_cells())})
    if (cells > most_int / 4 || g.batch * channels > most_int / 4 / cells) return false;
  return true;
}

/// The plan without what depends on the tile.
std::optional<Plan> uncut(const Conv3dGeometry& g, bool transposed, int operand_bytes) {
  if (g.batch == 0 || !moderate(g, transposed)) return std::nullopt;
  Plan p{};
  p.transposed = transposed;
  p.d = axis_of(g, transposed, 0), p.h = axis_of(g, transposed, 1), p.w = axis_of(g, transposed, 2);
  if (transposed)
    if (const auto joined = joined_axis(g)) p.w = *joined, p.joined = g.stride.w == 2 ? 1 : 2;
  for (Axis* axis : {&p.d, &p.h, &p.w}) axis->by_taps = divisor_of(std::max(axis->taps(), 1));
  p.batch = narrow(g.batch), p.groups = narrow(g.groups);
  p.in_per_group = narrow(transposed ? g.small_per_group() : g.big_per_group());
  p.out_per_group = narrow(transposed ? g.big_per_group() : g.small_per_group());
  p.out_cells = narrow(transposed ? g.big_cells() : g.small_cells());
  p.chunks = ceil_div(p.in_per_group * operand_bytes, row_bytes);
  return p;
}

/// The rest of a plan whose cells are cut.
std::optional<Planned> cut(Plan p, const TileShape& tile, int split, int multiprocessors) {
  p.column_tiles = ceil_div(p.out_per_group << p.joined, tile.columns);
  p.split = split;
  p.quads = p.w.out % 4 == 0 && (p.w.box << p.joined) % 4 == 0 && p.w.out_step == 1 << p.joined &&
            p.w.first_out[0] == 0;
  p.staged_pitch = (tile.rows() << p.joined) + (p.joined ? 8 : 4);
  const int64_t tiles = int64_t{p.d.tiles} * p.h.tiles * p.w.tiles * p.batch_tiles;
  const int64_t phases = int64_t{p.d.phases} * p.h.phases * p.w.phases;
  const int64_t columns = int64_t{p.groups} * p.column_tiles;
  if (tiles * phases * columns > most_int / most_split) return std::nullopt;
  p.blocks = narrow(tiles * phases * columns * split);
  // Few blocks are kept apart by the shared memory that they take.
  p.resident = p.blocks > blocks_at_once(split, multiprocessors) ? tile.most_resident() : 1;
  p.stage_bytes = tile.stage_bytes();
  p.stages = std::min(((228 / p.resident - 1) * 1024 - barrier_space) / p.stage_bytes, most_stages);
  p.shared_bytes = barrier_space + p.stages * p.stage_bytes;
  const int64_t taps = int64_t{p.d.taps()} * p.h.taps() * p.w.taps();
  if (columns * p.chunks * taps * tile.columns > most_int / row_bytes) return std::nullopt;
  const int64_t steps = ceil_div(taps, phases) * p.chunks;  // of a tile, on average
  return Planned{tile, p, cycles_of(p, tile, steps, multiprocessors)};
}

}  // namespace

std::optional<Planned> make_plan(const Conv3dGeometry& g, bool transposed, int operand_bytes,
                                 const TileShape& tile, int split, int multiprocessors) {
  auto p = uncut(g, transposed, operand_bytes);
  if (!p) return std::nullopt;
  cut_cells(*p, tile.rows());
  return cut(*p, tile, split, multiprocessors);
}

std::optional<Planned> best_plan(const Conv3dGeometry& g, bool transposed, int operand_bytes,
                                 int multiprocessors) {
  const auto p = uncut(g, transposed, operand_bytes);
  if (!p) return std::nullopt;
  std::optional<Planned> best;
  std::optional<Plan> of_products[3];  // cells cut once for the tiles with so many products, 1 or 2
  for (const TileShape& tile : tile_shapes) {
    std::optional<Plan>& cells = of_products[tile.products];
    if (!cells) cut_cells(cells.emplace(*p), tile.rows());
    for (const int split : splits) {
      const auto one = cut(*cells, tile, split, multiprocessors);
      if (one && (!best || one->cycles < best->cycles)) best = one;
    }
  }
  return best;
}

std::optional<Planned> make_windows_plan(const Conv3dGeometry& g, bool transposed, int operand_bytes,
                                         int multiprocessors) {
  if (g.stride != Triple(1)) return std::nullopt;
  auto planned = uncut(g, transposed, operand_bytes);
  if (!planned) return std::nullopt;
  Plan& p = *planned;
  p.w.box = p.h.box = slice_edge, p.d.box = slices, p.box_n = 1;
  count_boxes(p);
  const auto window = [](const Axis& axis) {
    return axis.box + std::abs(axis.offset[axis.taps() - 1] - axis.offset[0]);
  };
  p.window_w = window(p.w), p.window_h = window(p.h);
  if (std::max(p.window_w, p.window_h) > most_box) return std::nullopt;
  p.window_bytes = ceil_div(slices * p.window_w * p.window_h * row_bytes, 1024) * 1024;
  p.stage_bytes = windows_tile.columns * row_bytes;
  const int space = 227 * 1024 - barrier_space - window_slots * p.window_bytes;
  if (space < 3 * p.stage_bytes) return std::nullopt;
  p.stages = std::min(space / p.stage_bytes, most_stages);
  p.shared_bytes = barrier_space + window_slots * p.window_bytes + p.stages * p.stage_bytes;
  p.column_tiles = ceil_div(p.out_per_group, windows_tile.columns);
  p.split = p.resident = 1;
  p.quads = p.w.out % 4 == 0;
  const int64_t columns = int64_t{p.groups} * p.column_tiles;
  const int64_t tiles = int64_t{p.d.tiles} * p.h.tiles * p.w.tiles * p.batch_tiles * columns;
  const int64_t taps = int64_t{p.d.taps()} * p.h.taps() * p.w.taps();
  if (tiles > most_int / 2 || columns * p.chunks * taps * windows_tile.columns > most_int / row_bytes)
    return std::nullopt;
  p.blocks = narrow(tiles);
  const bool half_rows = 2 * p.in_per_group * operand_bytes <= row_bytes;
  const double plane_taps = p.h.taps() * p.w.taps();
  const double step =
      std::max(half_rows ? 512.0 : 1024.0, (p.stage_bytes + p.window_bytes / plane_taps) / l2_bytes);
  const double tile = static_cast<double>(taps) * p.chunks * step + (p.quads ? of_tile : of_tile_by_ones);
  const int64_t rounds = ceil_div(tiles, int64_t{multiprocessors});
  return Planned{windows_tile, p, static_cast<double>(rounds) * tile + of_windows};
}

bool fills_windows(const Conv3dGeometry& g, bool transposed) {
  const auto planned = make_windows_plan(g, transposed, 2, 1);  // boxes do not depend on these numbers
  if (!planned) return false;
  const Plan& p = planned->plan;
  const int64_t of_boxes = int64_t{p.d.tiles} * p.h.tiles * p.w.tiles * p.box_rows;
  return p.quads && 100 * int64_t{p.out_cells} >= 95 * of_boxes;
}

}  // namespace vox::cuda::conv::dense
