#include <voxgrad/cuda/conv3d/few_channels/plan.h>
#include <voxgrad/cuda/conv3d/model/ranges.h>
#include <voxgrad/cuda/conv3d/model/search.h>
#include <voxgrad/ops/conv3d_lattice.h>

#include <algorithm>
#include <cmath>
#include <initializer_list>
#include <vector>

namespace vox::cuda::conv::few_channels {

namespace {

constexpr int64_t most_shared = any_block_shared_bytes;
constexpr int64_t most_number = most_int / 2;

/// The axis, without its tiles. Nothing if there are too many phases or taps.
std::optional<Axis> axis_of(const Conv3dGeometry& g, bool transposed, int64_t axis) {
  const int64_t out = (transposed ? g.big : g.small)[axis], stride = g.stride[axis];
  const int64_t phases = transposed ? std::min(stride, out) : 1;
  if (phases > most_phases || g.kernel[axis] > most_slots) return std::nullopt;
  const auto live = ascending_lattices(g, transposed, axis);
  Axis a{};
  a.in_cells = narrow((transposed ? g.small : g.big)[axis]), a.out_cells = narrow(out);
  a.kernel = narrow(g.kernel[axis]), a.stride = narrow(stride);
  a.padding = narrow(g.padding[axis]), a.dilation = narrow(g.dilation[axis]);
  a.in_step = transposed ? 1 : a.stride, a.out_step = transposed ? a.stride : 1;
  a.cells = ceil_div(a.out_cells, a.out_step), a.phases = narrow(phases);
  int64_t tap_step = 1, low = live.empty() ? 0 : live[0].in_first, last = 0;
  a.taps = 1;  // if no tap reaches an output: one of weight 0
  for (const Lattice& l : live) {
    if (l.taps > a.taps) a.taps = narrow(l.taps), tap_step = l.in_per_tap;
    low = std::min(low, l.in_first);
  }
  for (const Lattice& l : live) last = std::max(last, l.in_first - low);
  constexpr int most_window = 1 << 16;                        // far more than fits
  const int64_t window = last + (a.taps - 1) * tap_step + 1;  // of one cell
  if (a.slots() > most_slots || window > most_window || a.in_step > most_window / 256) return std::nullopt;
  a.tap_step = narrow(tap_step), a.low = narrow(low), a.window = narrow(window);
  std::fill_n(a.tap, a.slots(), int8_t{-1});
  for (const Lattice& l : live) {
    a.base[l.out_first] = narrow(l.in_first - low);
    for (int64_t t = 0; t < l.taps; ++t)
      a.tap[l.out_first * a.taps + t] = static_cast<int8_t>(l.tap_first + t * l.tap_step);
  }
  return a;
}

void set_tile(Axis& a, int tile) {
  const int of_one_cell = a.window - (a.tile > 0 ? (a.tile - 1) * a.in_step : 0);
  a.tile = tile, a.tiles = ceil_div(a.cells, tile);
  a.window = of_one_cell + (tile - 1) * a.in_step;
}

Window window(int d, int h, int w, int step) {
  const int strips = ceil_div(h, strip_rows);
  return {.d = d,
          .h = h,
          .w = w,
          .strips = strips,
          .pitch = strip_rows * strips + 1,
          .step = step,
          .residue_columns = ceil_div(w, step),
          .by_w = divisor_of(w),
          .by_strip = divisor_of(strips),
          .by_d = divisor_of(d),
          .by_step = divisor_of(step)};
}

int64_t floats(const Window& w) { return int64_t{w.d} * w.step * w.residue_columns * w.pitch; }

/// Whether a channel of a window may fit shared memory, and 32 bits hold its offsets in a grid (which may be
/// far smaller than the window).
bool window_fits(const Window& w, int64_t grid_h, int64_t grid_w) {
  const int64_t rows = w.d * grid_h + int64_t{strip_rows} * w.strips;
  return floats(w) <= most_shared && rows < most_number && rows * grid_w + w.w < most_number;
}

/// The sizes of equal parts of `cells` cells in which `each` numbers for a cell are at most one of `most`.
std::vector<int> equal_parts(int cells, int each, std::initializer_list<int> most) {
  std::vector<int> sizes;
  for (const int limit : most) sizes.push_back(ceil_div(cells, ceil_div(cells * each, limit)));
  sizes.erase(std::ranges::unique(sizes).begin(), sizes.end());
  return sizes;
}

/// Calls `f` for many tile sizes, which it sets in the axes; along h they are multiples of `run`.
template <class F>
void visit_tiles(Axis& d, Axis& h, Axis& w, int run, F f) {
  for (const int columns : equal_parts(w.cells, w.phases, {256, 128, 64, 32, 16}))
    for (const int runs : equal_parts(ceil_div(h.cells, run), 1, {8, 6, 4, 3, 2, 1}))
      for (const int depths : equal_parts(d.cells, 1, {16, 12, 8, 6, 4, 3, 2, 1})) {
        set_tile(w, columns), set_tile(h, run * runs), set_tile(d, depths);
        f();
      }
}

/// What a block does for one job: instructions of warps (a multiprocessor starts four in a cycle), loads and
/// stores of warps in shared memory (one in a cycle), and bytes from and to memory.
struct BlockWork {
  double instructions, shared, bytes;

  double issue_cycles() const { return instructions / 4; }
  double memory_cycles() const { return bytes / 20; }
  double cycles() const {
    const double all = issue_cycles() + shared + memory_cycles(),
                 longest = std::max({issue_cycles(), shared, memory_cycles()});
    return longest + 0.3 * (all - longest);
  }
};

/// The jobs of a multiprocessor of an H200, one after the other, if it runs `most_blocks` at once or as many
/// as shared memory suffices for. A job that runs alone spends most of its time waiting: it counts as 2.5.
struct Turns {
  double rounds, jobs;
};
Turns turns_of(int64_t jobs, int64_t shared_bytes, int most_blocks) {
  const auto at_once =
      static_cast<double>(std::min<int64_t>(most_blocks, h200.block_shared_bytes / (shared_bytes + 1024)));
  const auto each = static_cast<double>(ceil_div(jobs, h200.multiprocessors));
  const double rounds = std::ceil(each / at_once);
  return {rounds, rounds * std::max(std::min(each, at_once), 2.5)};
}

bool fits(const Conv3dGeometry& g) {
  return g.batch > 0 && all_fit({g.big_per_group() * 64, g.small_per_group() * 64, g.taps()}, most_number);
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

/// The work of loading a window. Rows come in whole sectors of 8 numbers.
BlockWork loading(const Window& w, int64_t channels, int threads) {
  const double strips = warps(channels * w.d * w.strips * w.w, threads);
  return {70 * strips, strip_rows * strips, 4.0 * static_cast<double>(channels * w.d * w.h * (w.w + 8))};
}

/// For a plan whose tiles, window and channels are set.
BlockWork block_work(const Plan& p) {
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
  const BlockWork window = loading(p.window, p.channels, most_threads);
  return {1500 + stagings * (window.instructions + 40 * warps(p.weight_words) + 300) +
              items * (80 + rows_of_taps * (column + p.h.taps * p.outs * (0.5 + p.run) + 8) + 5 * results),
          stagings * window.shared + items * rows_of_taps * (column + p.h.taps * p.outs),
          stagings * window.bytes + written};
}

Turns turns_of(const Plan& p) { return turns_of(p.jobs, p.shared_bytes, p.outs == 8 ? 2 : 3); }

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

  Least<Plan> least;
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
        const int64_t jobs = int64_t{p.d.tiles} * p.h.tiles * p.w.tiles * p.out_blocks * p.groups * g.batch;
        p.jobs = narrow(jobs);
        if (jobs < most_number) least.offer(p, turns_of(p).jobs * block_work(p).cycles());
      }
      if (channels == 1) break;
    }
  };
  for (const int run : {short_run, 2 * short_run}) {
    p.run = run;
    if (run == short_run || p.outs == 1) visit_tiles(p.d, p.h, p.w, run, consider);
  }
  if (!least.best()) return std::nullopt;
  p = *least.best();
  for (int t = 0; t < p.w.taps; ++t) p.column_shift[t] = p.window.shift(t * p.w.tap_step);
  const auto divide_by = [](auto& by, auto... radix) {
    int i = 0;
    ((by[i++] = divisor_of(radix)), ...);
  };
  divide_by(p.by_slot, p.d.slots(), p.w.slots(), p.h.slots());
  divide_by(p.by_item, p.h.phases, p.d.tile, p.h.tile / p.run, p.w.tile, p.w.phases);
  divide_by(p.by_job, p.groups, p.out_blocks, p.d.tiles, p.h.tiles, p.w.tiles);
  return p;
}

Work work_of(const Plan& p) {
  const BlockWork block = block_work(p);
  const auto [rounds, jobs] = turns_of(p);
  return {.products = jobs * block.issue_cycles(), .loads = jobs * block.memory_cycles(), .rounds = rounds};
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
  if (rows > most_number) return std::nullopt;
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
  Least<WeightGradPlan> least;
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
    const BlockWork big = loading(p.big, p.channels, p.threads), small = loading(p.small, p.outs, p.threads);
    const double of_items = static_cast<double>(ceil_div(items, 32 * p.teams)) * (p.threads / 32);
    const double products = short_run * p.taps_h * p.outs;
    const BlockWork work{
        1000 + big.instructions + small.instructions +
            of_items * (40 + short_run * p.outs + p.rows_of_thread * (3 + column + products)),
        big.shared + small.shared + of_items * (short_run * p.outs + p.rows_of_thread * column),
        big.bytes + small.bytes};
    p.tiles = int64_t{p.d.tiles} * p.h.tiles * p.w.tiles * g.batch;
    p.items = narrow(items), p.shared_bytes = narrow(bytes);
    p.cycles = turns_of(p.tiles * g.groups * p.out_blocks * p.row_jobs, bytes, 2).jobs * work.cycles();
    least.offer(p, p.cycles);
  });
  if (!least.best()) return std::nullopt;
  p = *least.best();
  p.by_column = divisor_of(p.w.tile), p.by_run = divisor_of(p.h.tile / short_run);

  // Some blocks for each multiprocessor of an H200.
  const int64_t blocks = g.groups * p.out_blocks * p.row_jobs;
  const int64_t dweight_bytes = 4 * g.small_channels * p.big_per_group * p.taps;
  constexpr int64_t wanted_blocks = h200.multiprocessors * 6, most_workspace = int64_t{32} << 20;
  const int64_t most_splits =
      std::max<int64_t>(1, std::min(ceil_div(wanted_blocks, blocks), most_workspace / dweight_bytes));
  p.splits = ceil_div(p.tiles, ceil_div(p.tiles, most_splits));
  p.jobs = blocks * p.splits;
  return p;
}

}  // namespace vox::cuda::conv::few_channels
