#include <voxgrad/cuda/conv3d/mma/plan.h>
#include <voxgrad/cuda/conv3d/model/ranges.h>
#include <voxgrad/cuda/conv3d/model/search.h>
#include <voxgrad/cuda/conv3d/model/sizes.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <vector>

namespace vox::cuda::conv::mma {

namespace {

// ---- Axes -------------------------------------------------------------------------------------------------

/// Nothing if numbers do not fit their types.
std::optional<Axis> axis_of(const Conv3dGeometry& g, bool transposed, int64_t i) {
  constexpr int64_t most = int64_t{1} << 29, most_taps = 1 << 10;
  const int64_t stride = g.stride[i], dilation = g.dilation[i], common = std::gcd(stride, dilation);
  if (g.kernel[i] > most_taps || !product_fits({stride, dilation, 4 * most_taps}, most) ||
      !all_fit({g.big[i], g.small[i], g.padding[i], g.kernel[i] * dilation, g.small[i] * stride}, most))
    return std::nullopt;
  Axis a{};
  a.in = narrow(transposed ? g.small[i] : g.big[i]), a.out = narrow(transposed ? g.big[i] : g.small[i]);
  a.kernel = narrow(g.kernel[i]), a.stride = narrow(stride);
  a.padding = narrow(g.padding[i]), a.dilation = narrow(dilation);
  a.tap_pace = narrow(stride / common);
  a.step = narrow(transposed ? 1 : stride / common),
  a.unit = narrow(transposed ? dilation / common : dilation);
  a.out_step = narrow(transposed ? stride * dilation / common : dilation / common);
  a.phases = std::min(a.out_step, a.out);
  a.most_taps = transposed ? ceil_div(a.kernel, a.tap_pace) : a.kernel;
  return a;
}

/// Cells of the largest phase.
int cells_of(const Axis& a) { return ceil_div(a.out, a.out_step); }

void set_box(Axis& a, int box) {
  a.box = box, a.tiles = ceil_div(cells_of(a), box);
  a.remainders = std::min(a.step, a.most_taps);
  a.run = box + (a.most_taps - 1) / a.step;
}

// ---- Cuts -------------------------------------------------------------------------------------------------

/// How a plan could be cut, and what that takes.
struct Cut {
  TileShape tile;
  std::array<int, 3> box;
  int box_n, k_granules, splits = 1;
};

constexpr int64_t most_partial_bytes = int64_t{64} << 20;

/// Shared memory is [window][window][stage][stage] and tables (Shared in kernel.cuh). Sums of 8 channels of
/// all rows take the place of the first part when they are complete.
void set_memory(Plan& p, const TileShape& tile, int weight_parts, int most_stage_bytes) {
  int taps = 1, run = p.box_n;
  p.classes = 1;
  for (const Axis& a : p.axis) {
    p.classes *= a.remainders, run *= a.run;
    taps *= (a.most_taps - 1) / a.step + 1;
  }
  p.slices = p.k_blocks * p.classes;
  p.items = ceil_div(taps * p.k_granules / p.item_granules, 2) * 2;
  p.columns = tile.columns();
  p.item_bytes = p.columns * weight_parts * 16;
  const int stages = ceil_div(p.items, std::max(most_stage_bytes / p.item_bytes / 2 * 2, 2));
  p.stage_items = ceil_div(ceil_div(p.items, stages), 2) * 2;
  p.stage_bytes = p.stage_items * p.item_bytes;
  p.window_cells = run;
  p.window_bytes = p.window_cells * p.k_granules * 16;
  p.tables_at =
      std::max(2 * (p.window_bytes + p.stage_bytes), TileShape::warps * 32 * (tile.m_tiles * 16 + 4));
  p.shared_bytes = p.tables_at + narrow(sizeof(CellEntry)) * p.window_cells +
                   narrow(sizeof(Row)) * tile.rows() +
                   p.classes * narrow(sizeof(CellRange) + sizeof(Item) * p.items + sizeof(int));
}

/// The tables of the kernel.
void set_divisors(Plan& p) {
  const auto& [d, h, w] = p.axis;
  const int jobs[]{d.tiles,  h.tiles,  w.tiles,         d.phases, h.phases,
                   w.phases, p.groups, p.column_blocks, p.splits};
  std::ranges::transform(jobs, p.of_job, divisor_of);
  for (size_t i = 0; i < 3; ++i) {
    Axis& a = p.axis[i];
    p.of_window[i] = divisor_of(a.run), p.of_box[i] = divisor_of(a.box);
    a.pace = divisor_of(int64_t{a.step} * a.unit);
  }
  p.of_slice = divisor_of(p.classes), p.of_stage = divisor_of(p.stage_items);
  p.of_k_block = divisor_of(p.k_granules);
}

/// Whether the coordinates of a window's cells have room, and the distances between them and between outputs.
bool cells_fit(const Plan& p) {
  const auto& [d, h, w] = p.axis;
  const auto& limit = Coordinates::limit;
  const auto fit = [&](int64_t channels, int64_t depth, int64_t of_d, int64_t of_h, int64_t of_w) {
    return product_fits({int64_t{p.box_n - 1} * p.groups * channels * depth + of_d, of_h, of_w});
  };
  const auto reach = [](const Axis& a) { return std::max<int64_t>(a.in, int64_t{a.run} * a.step * a.unit); };
  return p.box_n <= limit.n && d.run <= limit.d && h.run <= limit.h && w.run <= limit.w &&
         fit(1, d.in, reach(d), reach(h), reach(w)) &&
         fit(p.out_per_group, d.out, int64_t{d.box} * d.out_step, h.out, w.out);
}

/// The plan with a cut; nothing if it does not fit.
std::optional<Plan> cut(Plan p, const Cut& c, int parts) {
  int64_t window = c.box_n;  // positions of all classes
  for (size_t i = 0; i < 3; ++i) {
    set_box(p.axis[i], c.box[i]);
    if (!product_fits({window, p.axis[i].run, p.axis[i].remainders}, any_block_shared_bytes))
      return std::nullopt;
    window *= p.axis[i].run * p.axis[i].remainders;
  }
  p.box_n = c.box_n, p.box_rows = c.box_n * c.box[0] * c.box[1] * c.box[2];
  p.k_granules = c.k_granules, p.item_granules = parts, p.splits = c.splits;
  p.k_blocks = ceil_div(p.granules, c.k_granules);
  for (const int stage_bytes : {16 << 10, 8 << 10, 4 << 10}) {
    set_memory(p, c.tile, parts, stage_bytes);
    if (p.shared_bytes <= any_block_shared_bytes) break;
  }
  p.column_blocks = ceil_div(p.out_per_group, p.columns);
  p.quads = p.axis[2].out % 4 == 0 && p.axis[2].box % 4 == 0 && p.axis[2].out_step == 1;
  const auto& [d, h, w] = p.axis;
  const int64_t columns = int64_t{p.groups} * p.column_blocks;
  if (p.shared_bytes > any_block_shared_bytes || !cells_fit(p) ||
      !product_fits({ceil_div(p.batch, p.box_n), d.tiles, h.tiles, w.tiles, d.phases, h.phases, w.phases,
                     columns, p.splits}))
    return std::nullopt;
  p.jobs = narrow(columns * p.splits * ceil_div(p.batch, p.box_n) * d.tiles * h.tiles * w.tiles * d.phases *
                  h.phases * w.phases);
  return p;
}

// ---- Time -------------------------------------------------------------------------------------------------

// Cycles of a multiprocessor of an H200: of an instruction (16 x 8 by 32 bytes of k), and of 512 bytes of
// operands from shared memory without bank conflicts. Bytes that it gets from the L2 cache in a cycle. Cycles
// of a step, of a granule of a window, and of a tile, besides the products, beside another block; of a line
// of 128 bytes of the output; and how much longer all of that takes for a block alone.
constexpr double mma_cycles = 1.53, load_cycles = 4, l2_bytes_per_cycle = 40;
constexpr double step_cycles = 100, granule_cycles = 0.25, tile_cycles = 2000, line_cycles = 2, alone = 1.3;
constexpr double split_cycles = 5000, partial_bytes_per_cycle = 1500;
// Numbers that are split where they lie: of a granule, and of a barrier.
constexpr double parts_cycles = 0.25, barrier_cycles = 150;

/// How often a load of eight rows of the product meets a bank.
int conflicts_of(const Plan& p) {
  const auto& [d, h, w] = p.axis;
  int in_bank[8] = {}, most = 1;
  for (int row = 0; row < std::min(p.box_rows, 8); ++row) {
    const int by_h = row / w.box, position = (by_h / h.box * h.run + by_h % h.box) * w.run + row % w.box;
    most = std::max(most, ++in_bank[position % 8]);
  }
  return most;
}

double cycles_of(const Plan& p, const Cut& c, int parts, const Machine& machine) {
  const auto& [d, h, w] = p.axis;
  double items = c.k_granules / parts;  // of a k-block, on average over the phases
  for (const Axis& a : p.axis)
    items *=
        p.transposed ? std::max(a.kernel / static_cast<double>(std::min(a.tap_pace, a.out)), 1.0) : a.kernel;
  const int m = c.tile.m_tiles, n = c.tile.n_tiles;
  const double instructions = m * n * (parts > 1 ? 3 : 1) * mma_cycles,
               loads = parts * (m * conflicts_of(p) + n / 2) * load_cycles,
               products = std::ceil(items / 2) * TileShape::warps * std::max(instructions, loads),
               from_l2 = (p.classes * p.window_bytes + items * p.item_bytes) / l2_bytes_per_cycle,
               steps = std::max(std::ceil(items / p.stage_items), 1.0 * p.classes) * step_cycles +
                       (granule_cycles + (parts > 1 ? parts_cycles : 0)) * p.classes * p.window_cells *
                           p.k_granules +
                       (parts > 1 ? barrier_cycles : 0) * p.classes;
  const double runs = static_cast<double>(p.box_rows) / w.box * p.columns,  // of outputs along w
      lines = runs * ceil_div(w.box * w.out_step * (p.splits > 1 ? 4 : 2 * parts), 128);
  const double tile =
      p.k_blocks * (std::max(products, from_l2) + steps) / p.splits + tile_cycles + line_cycles * lines;
  const int64_t resident = resident_blocks(p, c.tile, parts, machine.multiprocessor_shared_bytes);
  const int64_t turns = ceil_div(p.jobs, machine.multiprocessors);
  double cycles = static_cast<double>(turns) * tile * (std::min(turns, resident) > 1 ? 1 : alone);
  if (p.splits > 1) {
    const double outputs = static_cast<double>(p.batch) * p.groups * p.out_per_group * d.out * h.out * w.out;
    cycles += split_cycles + 8 * outputs * p.splits / partial_bytes_per_cycle;
  }
  return cycles;
}

// ---- The search -------------------------------------------------------------------------------------------

/// The extents of a box along an axis: powers of two, and what cuts the cells into few equal parts.
std::vector<int> extents_of(int cells, int most) {
  std::vector<int> extents;
  for (int extent = 1; extent < std::min(cells, most); extent *= 2) extents.push_back(extent);
  for (int parts = 1; parts <= 4; ++parts)
    if (const int extent = ceil_div(cells, parts); extent <= most) extents.push_back(extent);
  return extents;
}

/// f(box, box_n) for boxes of `rows` cells at most that cannot be longer.
template <class F>
void for_each_box(const Plan& p, int rows, F f) {
  const int d_cells = cells_of(p.axis[0]), h_cells = cells_of(p.axis[1]), w_cells = cells_of(p.axis[2]);
  for (const int w : extents_of(w_cells, rows))
    for (const int h : extents_of(h_cells, rows / w)) {
      const int d = std::min(d_cells, rows / (w * h)),
                n = std::min({p.batch, rows / (w * h * d), Coordinates::limit.n});
      f(std::array{d, h, w}, n);
      if (n > 1) f(std::array{d, h, w}, 1);
    }
}

/// The plan without a cut; nothing if numbers do not fit their types.
std::optional<Plan> uncut(const Conv3dGeometry& g, bool transposed, int parts) {
  Plan p{};
  for (size_t i = 0; i < 3; ++i) {
    const auto axis = axis_of(g, transposed, static_cast<int64_t>(i));
    if (!axis) return std::nullopt;
    p.axis[i] = *axis;
  }
  const int64_t in = transposed ? g.small_per_group() : g.big_per_group(),
                in_cells = transposed ? g.small_cells() : g.big_cells();
  const int64_t granules = ceil_div(in, 8) * parts;
  if (g.batch == 0 || !product_fits({g.batch, g.groups, in_cells, granules}) ||
      !product_fits({g.taps(), 8, 8}) ||
      !all_fit({g.big_cells(), g.small_cells(), g.big_channels, g.small_channels}))
    return std::nullopt;
  set_sizes(p, g, transposed);
  p.granules = narrow(granules), p.taps = narrow(g.taps());
  return p;
}

}  // namespace

std::optional<Planned> make_plan(const Conv3dGeometry& g, bool transposed, int parts, bool may_split,
                                 const Machine& machine) {
  const auto whole = uncut(g, transposed, parts);
  if (!whole) return std::nullopt;
  const int64_t outputs =
      g.batch * (transposed ? g.big_channels * g.big_cells() : g.small_channels * g.small_cells());
  Least<Planned> best;
  for (const TileShape& tile : tile_shapes) {
    if (!has_kernel(tile, parts)) continue;
    for (const int k_granules : {8, 4, 3, 2, 1}) {
      if (k_granules > whole->granules + 1 || k_granules % parts != 0) continue;
      for_each_box(*whole, tile.rows(), [&](const std::array<int, 3>& box, int box_n) {
        Cut c{tile, box, box_n, k_granules};
        while (c.box[0] > 1 && !cut(*whole, c, parts)) c.box[0] /= 2;
        for (const int splits : {1, 2, 3, 4, 6, 8, 12, 16}) {
          c.splits = splits;
          const auto p = cut(*whole, c, parts);
          if (!p || splits > p->slices * ceil_div(p->items, p->stage_items)) break;
          best.offer({tile, *p, 0}, cycles_of(*p, c, parts, machine));
          const int64_t next_bytes = 8 * outputs * splits;
          if (!may_split || p->jobs >= 2 * machine.multiprocessors || next_bytes > most_partial_bytes) break;
        }
      });
    }
  }
  if (!best.best()) return std::nullopt;
  Planned planned = *best.best();
  planned.cycles = best.time();
  set_divisors(planned.plan);
  return planned;
}

}  // namespace vox::cuda::conv::mma
