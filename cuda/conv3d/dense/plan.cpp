#include <voxgrad/cuda/conv3d/dense/plan.h>
#include <voxgrad/cuda/conv3d/model/ranges.h>
#include <voxgrad/cuda/conv3d/model/search.h>
#include <voxgrad/cuda/conv3d/model/sizes.h>
#include <voxgrad/ops/conv3d_lattice.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <vector>

namespace vox::cuda::conv::dense {

namespace {

constexpr int most_stages = 8;
constexpr int most_box = 256;  // elements along an axis that a TMA load covers, with gaps

// ---- Axes -------------------------------------------------------------------------------------------------

/// Adds a phase whose first output is `first`, with the taps of its lattice. It has none if no tap touches
/// it; its outputs are the bias.
void add_phase(Axis& axis, int64_t first, const Lattice* lattice) {
  const int begin = axis.taps(), taps = lattice ? narrow(lattice->taps) : 0;
  for (int m = 0; m < taps; ++m) {
    axis.offset[begin + m] = static_cast<int16_t>(lattice->input_cell(0, m));
    axis.tap[0][begin + m] = static_cast<int16_t>(lattice->tap_first + m * lattice->tap_step);
  }
  axis.first_out[axis.phases] = narrow(first);
  axis.first_tap[++axis.phases] = begin + taps;
}

Axis axis_of(const Conv3dGeometry& g, bool transposed, int64_t i) {
  Axis axis{};
  set_sizes(axis, g, transposed, i);
  const auto lattices = transposed ? conv_transpose3d_lattices(g, i) : std::vector{conv3d_lattice(g, i)};
  for (int64_t first = 0; first < (transposed ? std::min(g.stride[i], g.big[i]) : 1); ++first) {
    const auto found = std::ranges::find(lattices, first, &Lattice::out_first);
    add_phase(axis, first, found == lattices.end() ? nullptr : &*found);
  }
  return axis;
}

/// All phases of `w` as one, if they are 2 or 4 and there is a first output from which they have the same
/// offsets. (Joined with zeros for taps that a phase does not have, an Inf of the input would reach outputs
/// that it does not touch.)
std::optional<Axis> joined_axis(const Conv3dGeometry& g, const Axis& w) {
  const int phases = w.phases, taps = w.taps() / phases;
  if ((phases != 2 && phases != 4) || phases != g.stride.w) return std::nullopt;
  for (int first = 0; first > -phases; --first) {
    Axis axis{};
    set_sizes(axis, g, true, 2);
    bool same = true;
    for (int e = 0; e < phases && same; ++e) {
      const int phase = (first + e + phases) % phases, begin = w.first_tap[phase];
      same = w.first_tap[phase + 1] - begin == taps;
      for (int m = 0; m < taps && same; ++m) {
        const auto offset = static_cast<int16_t>(w.offset[begin + m] - (first + e < 0));
        same = e == 0 || offset == axis.offset[m];
        axis.offset[m] = offset, axis.tap[e][m] = w.tap[0][begin + m];
      }
    }
    if (!same) continue;
    axis.cells = ceil_div(axis.out - first, phases);
    axis.first_out[0] = first, axis.first_tap[1] = taps, axis.phases = 1;
    return axis;
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

void set_boxes(Plan& p, const std::array<int, 4>& box) {
  p.w.box = box[0], p.h.box = box[1], p.d.box = box[2], p.box_n = box[3];
  for (Axis* axis : {&p.d, &p.h, &p.w}) axis->tiles = ceil_div(axis->cells, axis->box);
  p.batch_tiles = ceil_div(p.batch, p.box_n);
  p.box_rows = p.w.box * p.h.box * p.d.box * p.box_n;
}

/// Cuts the cells into boxes of `rows` at most: as few as possible, but not with short runs of outputs in
/// memory.
void cut_cells(Plan& p, int rows) {
  Least<std::array<int, 4>> best;
  for (const int w : extents_of(p.w.cells, most_extent(p.w, rows)))
    for (const int h : extents_of(p.h.cells, most_extent(p.h, rows / w)))
      for (const int d : extents_of(p.d.cells, most_extent(p.d, rows / (w * h)))) {
        const int n = p.groups == 1 ? std::min({p.batch, rows / (w * h * d), most_box}) : 1;
        const int64_t boxes = int64_t{ceil_div(p.w.cells, w)} * ceil_div(p.h.cells, h) *
                              ceil_div(p.d.cells, d) * ceil_div(p.batch, n);
        const int run = (w << p.joined) * (w == p.w.cells ? h : 1);
        best.offer({w, h, d, n}, static_cast<double>(boxes) * (1 + 4.0 / run));
      }
  set_boxes(p, *best.best());
  p.window_w = p.w.box, p.window_h = p.h.box;
}

// ---- Time -------------------------------------------------------------------------------------------------

// Fitted to the times of all tiles and splits on 118 problems (NOTES.md): bytes that the L2 cache sends a
// multiprocessor in a cycle; cycles of a block besides its products, alone on a multiprocessor and beside
// another; for each of its sums; and for each of these in a cluster, in addition.
constexpr double l2_bytes_per_cycle = 57;
constexpr double lone_block_cycles = 8600, paired_block_cycles = 2800, sum_cycles = 0.09;
constexpr double cluster_block_cycles = 1700, cluster_sum_cycles = 0.2;
// The same for windows.cuh: of a tile besides its products, if outputs are stored by fours or one by one; and
// of a launch.
constexpr double window_tile_cycles = 3000, window_tile_by_ones_cycles = 18000, windows_cycles = 5000;

/// How many blocks run at once, one on a multiprocessor. Clusters do not find room for all: their blocks are
/// on multiprocessors of one part of the GPU, of 16 or 18 or fewer.
int blocks_at_once(int split, const Machine& machine) {
  return (split <= 2 ? machine.multiprocessors : machine.multiprocessors * 9 / 10) / split * split;
}

double cycles_of(const Plan& p, const TileShape& tile, int64_t steps, int at_once) {
  const double step = std::max(4.0 * tile.products * tile.columns, tile.stage_bytes() / l2_bytes_per_cycle);
  const int64_t rounds = ceil_div(p.blocks, at_once * p.resident) * p.resident;
  const double sums = static_cast<double>(tile.rows()) * tile.columns;
  double block = static_cast<double>(ceil_div(steps, p.split)) * step + sum_cycles * sums;
  block += p.resident > 1 ? paired_block_cycles : lone_block_cycles;
  if (p.split > 1) block += cluster_block_cycles + cluster_sum_cycles * sums;
  return static_cast<double>(rounds) * block;
}

double windows_cycles_of(const Plan& p, bool half_rows, const Machine& machine) {
  const double plane_taps = p.h.taps() * p.w.taps();
  const double step = std::max(half_rows ? 512.0 : 1024.0,
                               (p.stage_bytes + p.window_bytes / plane_taps) / l2_bytes_per_cycle);
  const double tile = static_cast<double>(p.taps()) * p.chunks * step +
                      (p.quads ? window_tile_cycles : window_tile_by_ones_cycles);
  return static_cast<double>(ceil_div(p.blocks, machine.multiprocessors)) * tile + windows_cycles;
}

// ---- Plans ------------------------------------------------------------------------------------------------

/// The plan without what depends on the tile; nothing if numbers do not fit their types.
std::optional<Plan> uncut(const Conv3dGeometry& g, bool transposed, int operand_bytes) {
  for (int64_t i = 0; i < 3; ++i)
    if (g.kernel[i] > most_taps || g.stride[i] > (transposed ? most_phases : 8) ||
        g.padding[i] + g.kernel[i] * g.dilation[i] > 1 << 14)
      return std::nullopt;
  if (g.batch == 0 || !product_fits({4, g.big_cells(), g.batch, g.big_channels}) ||
      !product_fits({4, g.small_cells(), g.batch, g.small_channels}))
    return std::nullopt;
  Plan p{};
  set_sizes(p, g, transposed);
  p.d = axis_of(g, transposed, 0), p.h = axis_of(g, transposed, 1), p.w = axis_of(g, transposed, 2);
  if (transposed)
    if (const auto joined = joined_axis(g, p.w)) p.w = *joined, p.joined = g.stride.w == 2 ? 1 : 2;
  for (Axis* axis : {&p.d, &p.h, &p.w}) axis->by_taps = divisor_of(std::max(axis->taps(), 1));
  p.out_cells = narrow(transposed ? g.big_cells() : g.small_cells());
  p.chunks = ceil_div(p.in_per_group * operand_bytes, row_bytes);
  return p;
}

/// Counts the columns and the blocks of a plan whose cells are cut; false if numbers do not fit their types.
bool count(Plan& p, const TileShape& tile, int split) {
  p.split = split;
  p.column_tiles = ceil_div(p.out_per_group << p.joined, tile.columns);
  p.quads = p.w.out % 4 == 0 && (p.w.box << p.joined) % 4 == 0 && p.w.out_step == 1 << p.joined &&
            p.w.first_out[0] == 0;
  const int64_t columns = int64_t{p.groups} * p.column_tiles,
                boxes = int64_t{p.d.tiles} * p.h.tiles * p.w.tiles * p.batch_tiles * p.phases();
  if (!product_fits({boxes, columns, most_split}) ||
      !product_fits({columns, p.chunks, p.taps(), tile.columns, row_bytes}))
    return false;
  p.blocks = narrow(boxes * columns * split);
  return true;
}

/// The rest of a plan whose cells are cut.
std::optional<Planned> cut(Plan p, const TileShape& tile, int split, const Machine& machine) {
  const int at_once = blocks_at_once(split, machine);
  if (at_once == 0 || !count(p, tile, split)) return std::nullopt;
  p.staged_pitch = (tile.rows() << p.joined) + (p.joined ? 8 : 4);
  // Few blocks are kept apart by the shared memory that they take.
  p.resident = p.blocks > at_once ? tile.most_resident() : 1;
  const int64_t space = machine.multiprocessor_shared_bytes / p.resident - 1024 - barrier_bytes;
  p.stage_bytes = tile.stage_bytes();
  p.stages = narrow(std::min<int64_t>(space / p.stage_bytes, most_stages));
  p.shared_bytes = barrier_bytes + p.stages * p.stage_bytes;
  const int64_t steps = ceil_div(p.taps(), p.phases()) * p.chunks;  // of a tile, on average
  return Planned{tile, p, cycles_of(p, tile, steps, at_once)};
}

}  // namespace

std::optional<Planned> make_plan(const Conv3dGeometry& g, bool transposed, int operand_bytes,
                                 const TileShape& tile, int split, const Machine& machine) {
  auto p = uncut(g, transposed, operand_bytes);
  if (!p) return std::nullopt;
  cut_cells(*p, tile.rows());
  return cut(*p, tile, split, machine);
}

std::optional<Planned> best_plan(const Conv3dGeometry& g, bool transposed, int operand_bytes,
                                 const Machine& machine) {
  const auto p = uncut(g, transposed, operand_bytes);
  if (!p) return std::nullopt;
  Least<Planned> best;
  std::optional<Plan> of_products[3];  // cells cut once for the tiles with so many products, 1 or 2
  for (const TileShape& tile : tile_shapes) {
    std::optional<Plan>& cells = of_products[tile.products];
    if (!cells) cut_cells(cells.emplace(*p), tile.rows());
    for (const int split : splits)
      if (const auto planned = cut(*cells, tile, split, machine)) best.offer(*planned, planned->cycles);
  }
  return best.best();
}

std::optional<Planned> make_windows_plan(const Conv3dGeometry& g, bool transposed, int operand_bytes,
                                         const Machine& machine) {
  if (g.stride != Triple(1)) return std::nullopt;
  auto planned = uncut(g, transposed, operand_bytes);
  if (!planned) return std::nullopt;
  Plan& p = *planned;
  set_boxes(p, {slice_edge, slice_edge, slices, 1});
  const auto window = [](const Axis& axis) {
    return axis.box + std::abs(axis.offset[axis.taps() - 1] - axis.offset[0]);
  };
  p.window_w = window(p.w), p.window_h = window(p.h);
  if (std::max(p.window_w, p.window_h) > most_box) return std::nullopt;
  p.window_bytes = ceil_div(slices * p.window_w * p.window_h * row_bytes, 1024) * 1024;
  p.stage_bytes = windows_tile.columns * row_bytes;
  const int64_t windows = barrier_bytes + window_slots * p.window_bytes,
                stages = (machine.block_shared_bytes - windows) / p.stage_bytes;
  if (stages < 3 || !count(p, windows_tile, 1)) return std::nullopt;
  p.stages = narrow(std::min<int64_t>(stages, most_stages));
  p.shared_bytes = narrow(windows + p.stages * p.stage_bytes);
  p.resident = 1;
  const bool half_rows = 2 * p.in_per_group * operand_bytes <= row_bytes;
  return Planned{windows_tile, p, windows_cycles_of(p, half_rows, machine)};
}

}  // namespace vox::cuda::conv::dense
