#include <voxgrad/cuda/conv3d/mma/weight_grad_plan.h>
#include <voxgrad/cuda/conv3d/model/machine.h>
#include <voxgrad/cuda/conv3d/model/ranges.h>
#include <voxgrad/cuda/conv3d/model/search.h>

#include <algorithm>
#include <numeric>
#include <vector>

namespace vox::cuda::conv::mma {

namespace {

constexpr int64_t most_workspace = 32 << 20;  // bytes of partial results, unless one split needs more
constexpr int most_box_cells = 512;

/// Whether numbers fit their types.
bool moderate(const Conv3dGeometry& g) {
  const int64_t samples = g.batch * g.groups, cells = std::max(g.big_cells(), g.small_cells()),
                channels = std::max(g.big_per_group(), g.small_per_group());
  return g.batch > 0 && all_fit({g.big_channels, g.small_channels, cells}) &&
         product_fits({g.big.d + g.padding.d + 1, g.big.h + g.padding.h + 1, g.big.w + g.padding.w + 1}) &&
         product_fits({samples, cells, 2 * ceil_div(channels, 8)});  // granules of the copies
}

/// Lengths of pieces that an axis can be cut into, at most `longest`; the longest first.
std::vector<int> cuts(int size, int longest) {
  std::vector<int> lengths;
  for (const int most : {32, 24, 16, 12, 8, 6, 4, 3, 2, 1}) {
    const int length = ceil_div(size, ceil_div(size, most));
    if (most <= longest && (lengths.empty() || length != lengths.back())) lengths.push_back(length);
  }
  return lengths;
}

WeightGradAxis axis_of(const Conv3dGeometry& g, int64_t i) {
  return {narrow(g.big[i]),     narrow(g.small[i]),    narrow(g.stride[i]),
          narrow(g.padding[i]), narrow(g.dilation[i]), narrow(g.kernel[i])};
}

/// Sets what an axis of windows is for its box and its group of taps. Returns the extent, of any size.
int64_t set_window(WeightGradAxis& a) {
  const bool one_cell = a.box == 1, one_tap = a.taps == 1;
  a.unit = one_tap ? a.stride : one_cell ? a.dilation : std::gcd(a.stride, a.dilation);
  a.step = one_tap || one_cell ? 1 : a.stride / a.unit;
  a.tap_step = one_tap || one_cell ? 1 : a.dilation / a.unit;
  const int64_t extent = (a.box - int64_t{1}) * a.step + (a.taps - int64_t{1}) * a.tap_step + 1;
  a.extent = narrow(std::min(extent, most_int));
  return extent;
}

/// Whether the distances between two cells of a window or a box, in the tensor, fit 32 bits.
bool offsets_fit(const WeightGradPlan& p) {
  const auto fit = [&](int64_t d, int64_t h, int64_t w, const GridPlace& grid) {
    return product_fits({(p.n.box - 1) * int64_t{p.groups} * grid.d + d + 2, std::max<int64_t>(grid.h, h),
                         std::max<int64_t>(grid.w, w)});
  };
  const auto reach = [](const WeightGradAxis& a) { return int64_t{a.extent} * a.unit; };
  return fit(reach(p.d), reach(p.h), reach(p.w), {0, p.d.big, p.h.big, p.w.big}) &&
         fit(p.d.box, p.h.box, p.w.box, {0, p.d.small, p.h.small, p.w.small});
}

/// Shared memory for the box and the taps, in two stages; false if it does not suffice. Octets of
/// neighbouring granules lie in different banks.
bool lay_out(WeightGradPlan& p, int parts) {
  constexpr int64_t most_granules = any_block_shared_bytes / 16;
  const int64_t n = set_window(p.n), d = set_window(p.d), h = set_window(p.h), w = set_window(p.w);
  p.phase_cells = narrow(ceil_div(w, p.w.step));
  const auto& limit = Coordinates::limit;
  if (n > limit.n || d > limit.d || h > limit.h || int64_t{p.phase_cells} * p.w.step > limit.w ||
      !product_fits({n, d, h, p.phase_cells, p.w.step}, most_granules) || !offsets_fit(p))
    return false;
  const int window = narrow(n * d * h) * p.window_row();
  const auto pitch = [](int cells, int octets) { return ceil_div(cells, 8) * 8 + std::max(1, 8 / octets); };
  p.box_cells = p.n.box * p.d.box * p.h.box * p.w.box;
  p.k_steps = ceil_div(p.box_cells, p.k);
  p.window_pitch = pitch(window, p.octets);
  p.small_pitch = pitch(p.k_steps * p.k, 2 * p.row_tiles);
  p.window_cells = window;
  p.window_granules = p.octets * p.window_pitch;
  p.stage_granules = parts * (p.window_granules + 2 * p.row_tiles * p.small_pitch);
  return p.shared_bytes() <= any_block_shared_bytes;
}

/// Cycles of a step: those of the products, or of loading their operands from shared memory, and those in
/// which granules come from the L2 cache.
struct StepCycles {
  double products, loads;
  double all() const { return std::max(products, loads) + std::min(products, loads) / 4 + 800; }
};
StepCycles cycles_of(const WeightGradPlan& p, int parts) {
  // Of an octet's products with 16 channels of small, for two warps: measured with one part; three products
  // of two.
  const double octet = parts == 1 ? 18 : 3 * 16;
  const int k_steps = ceil_div(p.k_steps, p.teams);
  const double multiply = k_steps * p.kernel_octets * p.row_tiles * octet,
               fragments = k_steps * p.warps * parts * (p.row_tiles + ceil_div(p.kernel_octets, 2)) * 4.0;
  const double granules = p.window_cells * ceil_div(p.octets, 2) * 2 + p.k_steps * p.k * 2 * p.row_tiles;
  const double splitting = parts == 1 ? 0 : granules / 2;
  return {std::max(multiply, fragments), parts * granules * 16 / 24 + splitting};
}

/// The time of a number of splits, in cycles.
double time_of(const WeightGradPlan& p, double step_cycles, int64_t splits) {
  constexpr double split_cycles = 4000, bytes_of_cycle = 1500;
  const auto waves = static_cast<double>(ceil_div(p.jobs * splits, h200.multiprocessors)),
             steps = static_cast<double>(ceil_div(p.steps, splits));
  return waves * (steps * step_cycles + split_cycles) +
         8 * static_cast<double>(splits * p.split_floats()) / bytes_of_cycle;
}

/// Chooses the number of splits; returns the time.
double choose_splits(WeightGradPlan& p, double step_cycles) {
  const int64_t most =
      std::clamp<int64_t>(most_workspace / (4 * p.split_floats()), 1, std::min(p.steps, 4096));
  Least<int> best;
  for (int waves = 1; waves <= 4; ++waves) {
    const int64_t splits = std::clamp<int64_t>(waves * int64_t{h200.multiprocessors} / p.jobs, 1, most);
    best.offer(narrow(splits), time_of(p, step_cycles, splits));
  }
  p.splits = *best.best();
  return best.time();
}

/// Calls f for boxes.
template <class F>
void for_each_box(WeightGradPlan& p, F f) {
  const auto images = cuts(p.n.small, 32), depths = cuts(p.d.small, 8), rows = cuts(p.h.small, 16),
             columns = cuts(p.w.small, 32);
  for (const int w : columns)
    for (const int h : rows)
      for (const int d : depths)
        for (const int n : images) {
          const bool whole = w == p.w.small && h == p.h.small && d == p.d.small;
          if (w * h * d * n > most_box_cells || (n > 1 && !whole)) continue;
          p.w.box = w, p.h.box = h, p.d.box = d, p.n.box = n;
          f();
        }
}

/// Chooses the octets of a block, and the warps that share its columns, for the group of taps; false if they
/// are too many.
bool cut_columns(WeightGradPlan& p) {
  const int most = most_octets(p.row_tiles), octets = ceil_div(p.big_per_group, 8);
  if (!product_fits({p.d.taps, p.h.taps, p.w.taps}, p.warps * most)) return false;
  const int taps = p.d.taps * p.h.taps * p.w.taps;
  p.octet_blocks = ceil_div(octets, std::min(octets, p.warps * most / taps));
  p.octets = ceil_div(octets, p.octet_blocks);
  p.column_warps = 1;
  while (p.column_warps * most < p.columns()) p.column_warps *= 2;
  p.warp_octets = ceil_div(p.columns(), p.column_warps);
  p.teams = p.warps / p.column_warps;
  const int fewer = fewer_octets(p.row_tiles);
  p.kernel_octets = p.warp_octets <= fewer ? fewer : most;
  const int groups_of_taps[]{p.d.groups(), p.h.groups(), p.w.groups()},
      sums = p.columns() * p.row_tiles * 128;
  if (!product_fits({p.groups, p.row_blocks, p.octet_blocks, groups_of_taps[0], groups_of_taps[1],
                     groups_of_taps[2], sums}))
    return false;
  p.jobs =
      p.groups * p.row_blocks * p.octet_blocks * groups_of_taps[0] * groups_of_taps[1] * groups_of_taps[2];
  return true;
}

/// Calls f for groups of taps, from all taps to a single one: cut along d, then along h, then along w.
template <class F>
void for_each_group_of_taps(WeightGradPlan& p, F f) {
  const auto set = [&](int d, int h, int w) { p.d.taps = d, p.h.taps = h, p.w.taps = w, f(); };
  for (const int d : cuts(p.d.kernel, 32)) set(d, p.h.kernel, p.w.kernel);
  for (const int h : cuts(p.h.kernel, 32))
    if (h < p.h.kernel) set(1, h, p.w.kernel);
  for (const int w : cuts(p.w.kernel, 32))
    if (w < p.w.kernel) set(1, 1, w);
}

/// Sets what follows from the choice.
void complete(WeightGradPlan& p) {
  p.by_window[0] = divisor_of(p.d.extent), p.by_window[1] = divisor_of(p.h.extent);
  p.by_window[2] = divisor_of(p.w.step), p.by_window[3] = divisor_of(p.phase_cells);
  p.by_box[0] = divisor_of(p.d.box), p.by_box[1] = divisor_of(p.h.box), p.by_box[2] = divisor_of(p.w.box);
  const WeightGradAxis* const axes[]{&p.d, &p.h, &p.w};
  for (int i = 0; i < 3; ++i)
    p.by_step[i] = divisor_of(axes[i]->boxes()), p.by_unit[i] = divisor_of(axes[i]->unit);
}

}  // namespace

std::optional<WeightGradPlan> make_weight_grad_plan(const Conv3dGeometry& g, int parts) {
  if (!moderate(g)) return std::nullopt;
  WeightGradPlan p{};
  p.n = {narrow(g.batch), narrow(g.batch)};
  p.d = axis_of(g, 0), p.h = axis_of(g, 1), p.w = axis_of(g, 2);
  p.groups = narrow(g.groups);
  p.small_per_group = narrow(g.small_per_group()), p.big_per_group = narrow(g.big_per_group());
  const int row_tiles = ceil_div(p.small_per_group, 16);
  p.row_blocks = ceil_div(row_tiles, most_row_tiles(parts));
  p.row_tiles = ceil_div(row_tiles, p.row_blocks);

  Least<WeightGradPlan> best;
  for_each_group_of_taps(p, [&] {
    if (!cut_columns(p)) return;
    for_each_box(p, [&] {
      const auto boxes = {int64_t{p.n.boxes()}, int64_t{p.d.boxes()}, int64_t{p.h.boxes()},
                          int64_t{p.w.boxes()}};
      if (!product_fits(boxes) || !lay_out(p, parts)) return;
      p.steps = p.n.boxes() * p.d.boxes() * p.h.boxes() * p.w.boxes();
      const double time = choose_splits(p, cycles_of(p, parts).all());
      best.offer(p, time);
    });
  });
  if (!best.best()) return std::nullopt;
  p = *best.best();
  complete(p);
  return p;
}

Work work_of(const WeightGradPlan& p, int parts) {
  const StepCycles c = cycles_of(p, parts);
  const auto waves = static_cast<double>(ceil_div(int64_t{p.jobs} * p.splits, h200.multiprocessors)),
             steps = waves * static_cast<double>(ceil_div(p.steps, p.splits));
  return {.products = steps * c.products,
          .loads = steps * c.loads,
          .rounds = waves,
          .stages = steps,
          .stores = static_cast<double>(p.splits * p.split_floats())};
}

}  // namespace vox::cuda::conv::mma
