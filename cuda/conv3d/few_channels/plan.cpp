#include <voxgrad/cuda/conv3d/common/integers.h>
#include <voxgrad/cuda/conv3d/few_channels/plan.h>
#include <voxgrad/cuda/conv3d/flat/plan.h>

#include <algorithm>
#include <cmath>
#include <limits>

namespace vox::cuda::conv::few_channels {

namespace {

constexpr int64_t most_shared = 96 * 1024;  // bytes, which every GPU since sm_80 has
constexpr int64_t most_int = std::numeric_limits<int>::max() / 2;

/// The axis, without its tiles. Nothing if there are too many phases or taps.
std::optional<Axis> axis_of(const Conv3dGeometry& g, bool transposed, int64_t axis) {
  const int64_t out = (transposed ? g.big : g.small)[axis], stride = g.stride[axis];
  const int64_t phases = transposed ? std::min(stride, out) : 1;
  if (phases > most_phases || g.kernel[axis] > most_slots) return std::nullopt;
  const auto phase = [&](int64_t p) {
    const flat::Axes all = flat::axes_of(g, transposed, Triple(p));
    return axis == 0 ? all.d : axis == 1 ? all.h : all.w;
  };
  const flat::Axis first = phase(0);
  Axis a{};
  a.in_cells = first.in_cells, a.out_cells = narrow(out), a.cells = first.cells;
  a.kernel = narrow(g.kernel[axis]), a.stride = narrow(stride);
  a.padding = narrow(g.padding[axis]), a.dilation = narrow(g.dilation[axis]);
  a.in_step = transposed ? 1 : narrow(stride), a.out_step = first.out_step;
  a.phases = narrow(phases), a.tap_step = 1;
  for (int64_t p = 0; p < phases; ++p)
    if (const flat::Axis one = phase(p); one.taps > a.taps) a.taps = one.taps, a.tap_step = one.tap_step;
  a.taps = std::max(a.taps, 1);  // if no tap reaches an output: one of weight 0
  if (a.slots() > most_slots) return std::nullopt;
  a.low = narrow(most_int);
  for (int p = 0; p < a.phases; ++p)
    if (const flat::Axis one = phase(p); one.taps > 0) a.low = std::min(a.low, one.base);
  if (a.low == most_int) a.low = 0;
  int last = 0;
  if (a.taps > 1 && a.tap_step > (1 << 16)) return std::nullopt;
  for (int p = 0; p < a.phases; ++p) {
    const flat::Axis one = phase(p);
    a.base[p] = one.taps > 0 ? one.base - a.low : 0;
    last = std::max(last, a.base[p]);
    for (int t = 0; t < a.taps; ++t)
      a.tap[p * a.taps + t] = static_cast<int8_t>(t < one.taps ? one.first_tap + t * one.tap_pace : -1);
  }
  a.window = last + (a.taps - 1) * a.tap_step + 1;  // of one cell
  constexpr int most_window = 1 << 16;              // far more than fits
  if (a.window > most_window || a.in_step > most_window / 256) return std::nullopt;
  return a;
}

void set_tile(Axis& a, int tile) {
  const int of_one_cell = a.window - (a.tile > 0 ? (a.tile - 1) * a.in_step : 0);
  a.tile = tile, a.tiles = ceil_div(a.cells, tile);
  a.window = of_one_cell + (tile - 1) * a.in_step;
}

Window window(int d, int h, int w, int step) {
  const int strips = ceil_div(h, strip_rows), columns = ceil_div(w, step);
  return {d,
          h,
          w,
          strips,
          strip_rows * strips + 1,
          step,
          columns,
          divisor_of(w),
          divisor_of(strips),
          divisor_of(d),
          divisor_of(step)};
}

int64_t floats(const Window& w) { return int64_t{w.d} * w.step * w.residue_columns * w.pitch; }

/// Whether a channel of a window may fit shared memory, and 32 bits hold its offsets in a grid (which may be
/// far smaller than the window).
bool window_fits(const Window& w, int64_t grid_h, int64_t grid_w) {
  const int64_t rows = w.d * grid_h + int64_t{strip_rows} * w.strips;
  return floats(w) <= most_shared && rows < most_int && rows * grid_w + w.w < most_int;
}

/// Calls `f` for many tile sizes, which it sets in the axes; along h they are multiples of `run`.
template <class F>
void visit_tiles(Axis& d, Axis& h, Axis& w, int run, F f) {
  int last_w = 0;
  for (const int lanes : {256, 128, 64, 32, 16}) {
    const int tile_w = ceil_div(w.cells, ceil_div(w.cells * w.phases, lanes));
    if (tile_w == last_w) continue;
    set_tile(w, last_w = tile_w);
    int last_runs = 0;
    for (const int most_runs : {8, 6, 4, 3, 2, 1}) {
      const int all_runs = ceil_div(h.cells, run), runs = ceil_div(all_runs, ceil_div(all_runs, most_runs));
      if (runs == last_runs) continue;
      set_tile(h, run * (last_runs = runs));
      int last_d = 0;
      for (const int most_d : {16, 12, 8, 6, 4, 3, 2, 1}) {
        const int tile_d = ceil_div(d.cells, ceil_div(d.cells, most_d));
        if (tile_d == last_d) continue;
        set_tile(d, last_d = tile_d);
        f();
      }
    }
  }
}

/// What a block does for one job: instructions of warps (a multiprocessor starts four in a cycle), loads and
/// stores of warps in shared memory (one in a cycle), and bytes from and to memory.
struct Work {
  double instructions, shared, bytes;
};

/// Cycles of an H200 for all jobs. `most_blocks` jobs run at once on a multiprocessor if shared memory
/// suffices. A job that runs alone spends most of its time waiting.
double cycles(int64_t jobs, const Work& work, int64_t shared_bytes, int most_blocks) {
  const double issue = work.instructions / 4, memory = work.bytes / 20;
  const double longest = std::max({issue, work.shared, memory});
  const double job = longest + 0.3 * (issue + work.shared + memory - longest);
  const auto at_once =
      static_cast<double>(std::min<int64_t>(most_blocks, 227 * 1024 / (shared_bytes + 1024)));
  const auto each = static_cast<double>(ceil_div(jobs, int64_t{h200_multiprocessors}));
  return std::ceil(each / at_once) * job * std::max(std::min(each, at_once), 2.5);
}

bool fits(const Conv3dGeometry& g) {
  return g.batch > 0 && g.big_per_group() <= most_int / 64 && g.small_per_group() <= most_int / 64 &&
         g.taps() <= most_int;
}

/// How many of `channels` a thread takes, at most `most`.
int channel_block(int channels, int most) {
  int block = 1;
  while (block < most && block < channels) block *= 2;
  return block;
}

/// The number of warps' rounds in which `threads` process `units`.
double warps(int64_t units, int threads = most_threads) {
  return static_cast<double>(ceil_div(units, threads) * (threads / 32));
}

/// The work of bringing a window. Rows come in whole sectors of 8 numbers.
Work bringing(const Window& w, int64_t channels, int threads) {
  const double strips = warps(channels * w.d * w.strips * w.w, threads);
  return {70 * strips, strip_rows * strips, 4.0 * static_cast<double>(channels * w.d * w.h * (w.w + 8))};
}

/// The jobs and the time of a plan whose tiles, window and channels are set.
struct Cost {
  int64_t jobs;
  double cycles;
};
Cost cost(const Plan& p, int64_t batch) {
  const int64_t chunks = ceil_div(p.in_per_group, p.channels);
  const auto stagings = static_cast<double>(chunks > 1 ? chunks * ceil_div(p.items, most_threads) : 1);
  const bool shares = p.h.tap_step == 1 && shares_column(p.h.taps, p.h.in_step);
  const double column = shares ? (p.run - 1) * p.h.in_step + p.h.taps : p.run * p.h.taps;
  const double rows_of_taps = static_cast<double>(p.in_per_group) * p.d.taps * p.w.taps;
  const double items = warps(p.items), results = p.run * p.outs;
  // A sector to which two blocks write costs twice.
  const int row = p.w.tile * p.w.phases;
  const bool whole_sectors = p.w.tiles == 1 || (row % 8 == 0 && p.w.out_cells % 8 == 0);
  const double written = 4.0 * p.items * results * (whole_sectors ? 1 : 1 + 16.0 / row);
  const Work window = bringing(p.window, p.channels, most_threads);
  const Work work{
      1500 + stagings * (window.instructions + 40 * warps(p.weight_words) + 300) +
          items * (80 + rows_of_taps * (column + p.h.taps * p.outs * (0.5 + p.run) + 8) + 5 * results),
      stagings * window.shared + items * rows_of_taps * (column + p.h.taps * p.outs),
      stagings * window.bytes + written};
  const int64_t jobs = int64_t{p.d.tiles} * p.h.tiles * p.w.tiles * p.out_blocks * p.groups * batch;
  return {jobs, cycles(jobs, work, p.shared_bytes, p.outs == 8 ? 2 : 3)};
}

}  // namespace

std::optional<Plan> make_plan(const Conv3dGeometry& g, bool transposed) {
  if (!fits(g)) return std::nullopt;
  const auto d = axis_of(g, transposed, 0), h = axis_of(g, transposed, 1), w = axis_of(g, transposed, 2);
  if (!d || !h || !w) return std::nullopt;
  Plan p{};
  p.d = *d, p.h = *h, p.w = *w, p.transposed = transposed;
  p.groups = g.groups, p.taps = g.taps();
  p.in_cells = transposed ? g.small_cells() : g.big_cells();
  p.out_cells = transposed ? g.big_cells() : g.small_cells();
  p.in_per_group = narrow(transposed ? g.small_per_group() : g.big_per_group());
  p.out_per_group = narrow(transposed ? g.big_per_group() : g.small_per_group());
  // With more input channels a thread also has totals.
  p.outs = channel_block(p.out_per_group, p.in_per_group > 8 ? 4 : 8);
  p.out_blocks = ceil_div(p.out_per_group, p.outs);
  const int slots = p.d.slots() * p.h.slots() * p.w.slots();

  double least = std::numeric_limits<double>::infinity();
  Plan best{};
  const auto consider = [&] {
    p.window = window(p.d.window, p.h.window, p.w.window, p.w.in_step);
    if (!window_fits(p.window, p.h.in_cells, p.w.in_cells)) return;
    const int64_t items =
        int64_t{p.w.tile} * p.w.phases * (p.h.tile / p.run) * p.h.phases * p.d.tile * p.d.phases;
    for (int64_t channels = p.in_per_group;; channels = ceil_div(channels, 2)) {
      const int64_t totals = channels < p.in_per_group ? most_threads * p.run * p.outs : 0;
      const int64_t weights = channels * slots * p.outs;
      const int64_t bytes = 4 * (channels * floats(p.window) + weights + totals);
      if (bytes <= most_shared) {
        p.channels = narrow(channels), p.items = narrow(items);
        p.weight_words = narrow(weights), p.total_words = narrow(totals), p.shared_bytes = narrow(bytes);
        const Cost c = cost(p, g.batch);
        if (c.jobs < most_int && c.cycles < least) {
          least = c.cycles, best = p;
          best.jobs = narrow(c.jobs);
        }
      }
      if (channels == 1) break;
    }
  };
  for (const int run : {short_run, 2 * short_run}) {
    p.run = run;
    if (run == short_run || p.outs == 1) visit_tiles(p.d, p.h, p.w, run, consider);
  }
  if (best.jobs == 0) return std::nullopt;
  for (int t = 0; t < p.w.taps; ++t) best.column_shift[t] = best.window.shift(t * p.w.tap_step);
  best.by_slots_h = divisor_of(p.h.slots()), best.by_slots_w = divisor_of(p.w.slots());
  best.by_slots_d = divisor_of(p.d.slots());
  best.by_column = divisor_of(best.w.tile * best.w.phases), best.by_run = divisor_of(best.h.tile / best.run);
  best.by_depth = divisor_of(best.d.tile), best.by_phase_h = divisor_of(best.h.phases);
  best.by_phase_w = divisor_of(best.w.phases);
  best.by_tile_w = divisor_of(best.w.tiles), best.by_tile_h = divisor_of(best.h.tiles);
  best.by_tile_d = divisor_of(best.d.tiles);
  best.by_out_block = divisor_of(best.out_blocks), best.by_group = divisor_of(best.groups);
  return best;
}

std::optional<WeightGradPlan> make_weight_grad_plan(const Conv3dGeometry& g) {
  if (!fits(g)) return std::nullopt;
  const auto d = axis_of(g, false, 0), h = axis_of(g, false, 1), w = axis_of(g, false, 2);
  if (!d || !h || !w) return std::nullopt;
  WeightGradPlan p{};
  p.d = *d, p.h = *h, p.w = *w;
  p.batch = g.batch, p.groups = g.groups, p.taps = g.taps();
  p.big_cells = g.big_cells(), p.small_cells = g.small_cells();
  p.big_per_group = narrow(g.big_per_group()), p.small_per_group = narrow(g.small_per_group());
  const bool shares = p.h.tap_step == 1 && shares_column(p.h.taps, p.h.in_step);
  p.taps_h = shares ? p.h.taps : 1;
  p.outs = channel_block(p.small_per_group, 4);
  p.out_blocks = ceil_div(p.small_per_group, p.outs);
  p.rows_of_thread = most_rows(p.taps_h, p.outs);
  const int64_t rows = p.taps / p.taps_h * p.big_per_group;
  if (rows > most_int) return std::nullopt;
  const int64_t sets = ceil_div(rows, p.rows_of_thread);
  p.row_jobs = narrow(ceil_div(sets, int64_t{8}));
  p.rows = narrow(rows), p.row_blocks = narrow(ceil_div(sets, p.row_jobs));
  p.teams = 8 / p.row_blocks;
  p.threads = 32 * p.row_blocks * p.teams;
  // A block's rows are neighbours, so this many channels at most separate the first from the last one's.
  const int64_t of_channel = p.taps / p.taps_h, of_block = int64_t{p.row_blocks} * p.rows_of_thread;
  p.channels = narrow(std::min<int64_t>(
      p.big_per_group, p.row_jobs == 1 ? p.big_per_group : (of_block - 2 + of_channel) / of_channel + 1));

  const double column = (short_run - 1) * (shares ? p.h.in_step : 1) + p.taps_h;
  double least = std::numeric_limits<double>::infinity();
  WeightGradPlan best{};
  visit_tiles(p.d, p.h, p.w, short_run, [&] {
    p.big = window(p.d.window, p.h.window, p.w.window, p.w.in_step);
    p.small = window(p.d.tile, p.h.tile, p.w.tile, 1);
    if (!window_fits(p.big, p.h.in_cells, p.w.in_cells) ||
        !window_fits(p.small, p.h.out_cells, p.w.out_cells))
      return;
    const int64_t sums = int64_t{8} * p.rows_of_thread * p.taps_h * p.outs;
    const int64_t bytes = 4 * std::max(p.channels * floats(p.big) + p.outs * floats(p.small), sums);
    if (bytes > most_shared) return;
    const int64_t items = int64_t{p.w.tile} * (p.h.tile / short_run) * p.d.tile;
    const Work big = bringing(p.big, p.channels, p.threads), small = bringing(p.small, p.outs, p.threads);
    const double of_items = static_cast<double>(ceil_div(items, 32 * p.teams)) * (p.threads / 32);
    const double products = short_run * p.taps_h * p.outs;
    const Work work{1000 + big.instructions + small.instructions +
                        of_items * (40 + short_run * p.outs + p.rows_of_thread * (3 + column + products)),
                    big.shared + small.shared + of_items * (short_run * p.outs + p.rows_of_thread * column),
                    big.bytes + small.bytes};
    const int64_t tiles = int64_t{p.d.tiles} * p.h.tiles * p.w.tiles * g.batch;
    const double time = cycles(tiles * g.groups * p.out_blocks * p.row_jobs, work, bytes, 2);
    if (time >= least) return;
    least = time, best = p;
    best.items = narrow(items), best.tiles = tiles, best.shared_bytes = narrow(bytes);
  });
  if (best.tiles == 0) return std::nullopt;
  best.by_column = divisor_of(best.w.tile), best.by_run = divisor_of(best.h.tile / short_run);

  // Some blocks for each multiprocessor.
  const int64_t blocks = g.groups * p.out_blocks * p.row_jobs;
  const int64_t dweight_bytes = 4 * g.small_channels * p.big_per_group * p.taps;
  constexpr int64_t wanted_blocks = h200_multiprocessors * 6, most_workspace = int64_t{32} << 20;
  const int64_t most_slabs =
      std::max<int64_t>(1, std::min(ceil_div(wanted_blocks, blocks), most_workspace / dweight_bytes));
  best.slabs = ceil_div(best.tiles, ceil_div(best.tiles, most_slabs));
  best.jobs = blocks * best.slabs;
  return best;
}

}  // namespace vox::cuda::conv::few_channels
