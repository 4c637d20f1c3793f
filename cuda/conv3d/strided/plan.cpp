#include <voxgrad/cuda/conv3d/model/ranges.h>
#include <voxgrad/cuda/conv3d/model/search.h>
#include <voxgrad/cuda/conv3d/model/sizes.h>
#include <voxgrad/cuda/conv3d/strided/plan.h>
#include <voxgrad/ops/conv3d_lattice.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <span>
#include <utility>
#include <vector>

namespace vox::cuda::conv::strided {

namespace {

constexpr int64_t shared_limit = h200.block_shared_bytes - 1024;  // less barriers and alignment
constexpr int64_t column_bytes = 32;  // k of an instruction, for one column or position

/// Whether all numbers of the geometry are small enough for the plan's arithmetic.
bool moderate(const Conv3dGeometry& g, bool transposed) {
  for (int64_t axis = 0; axis < 3; ++axis)
    if (g.stride[axis] > (transposed ? 2 : 4) || g.kernel[axis] > 64 || g.dilation[axis] > 1024 ||
        g.padding[axis] > (1 << 20) || !all_fit({g.big[axis], g.small[axis]}, 1 << 24))
      return false;
  // The kernel counts a channel's bytes in 32 bits.
  return all_fit({g.big_cells(), g.small_cells()}, 1 << 30) && g.batch <= most_int &&
         all_fit({g.big_channels, g.small_channels}, 1 << 20);
}

// ---- Taps -------------------------------------------------------------------------------------------------

/// Shifts from `low` to `high`.
struct Range {
  int64_t low, high;
  int64_t count() const { return high - low + 1; }
};

/// The taps of one axis, as phases and shifts.
struct AxisTaps {
  std::vector<Lattice> lattices;  // of the live phases, as conv_transpose3d writes them
  std::vector<int64_t> alive;     // these phases
  int64_t phases;                 // that exist on the fine side, with the dead ones
  bool transposed;

  /// From the coarse cell of an output to that of the input.
  int64_t shift(const Lattice& phase, int64_t m) const {
    return transposed ? phase.input_cell(0, m) : -phase.input_cell(0, m);
  }
  /// The tap that is this shift seen from this phase, or -1.
  int64_t tap(int64_t phase, int64_t shift_of_tap) const {
    for (const Lattice& l : lattices)
      for (int64_t m = 0; m < l.taps && l.out_first == phase; ++m)
        if (shift(l, m) == shift_of_tap) return l.tap_first + m * l.tap_step;
    return -1;
  }
  /// The shifts of some phases; 0 if all are dead.
  Range shifts(const std::vector<int64_t>& of) const {
    std::vector<int64_t> all;
    for (const Lattice& l : lattices)
      if (std::ranges::count(of, l.out_first) > 0) all.insert(all.end(), {shift(l, 0), shift(l, l.taps - 1)});
    if (all.empty()) return {0, 0};
    return {std::ranges::min(all), std::ranges::max(all)};
  }
  bool is_alive(int64_t phase) const { return std::ranges::count(alive, phase) > 0; }
  bool has_dead() const { return std::ssize(alive) < phases; }
};

AxisTaps axis_taps(const Conv3dGeometry& g, bool transposed, int64_t axis) {
  AxisTaps taps{conv_transpose3d_lattices(g, axis), {}, std::min(g.stride[axis], g.big[axis]), transposed};
  for (const Lattice& l : taps.lattices) taps.alive.push_back(l.out_first);
  return taps;
}

/// The taps along w as items of both phases see them (Form::wide), and the first cell's elements before the
/// output's row. If more shifts then have taps for both, cells begin with the second phase.
std::pair<AxisTaps, int> pair_taps(Conv3dGeometry g) {
  const AxisTaps taps = axis_taps(g, true, 2);
  --g.padding.w;
  const AxisTaps moved = axis_taps(g, true, 2);
  if (moved.shifts({0, 1}).count() < taps.shifts({0, 1}).count()) return {moved, 1};
  return {taps, 0};
}

// ---- Kinds and items --------------------------------------------------------------------------------------

/// The largest numbers of shifts along d and h that a kind covers.
struct Cut {
  int64_t d, h;
};

/// Cuts a range of shifts into pieces of at most `most`, as equal as possible.
std::vector<Range> pieces(const Range& all, int64_t most) {
  const int64_t count = ceil_div(all.count(), most);
  std::vector<Range> list;
  for (int64_t i = 0; i < count; ++i)
    list.push_back({all.low + all.count() * i / count, all.low + all.count() * (i + 1) / count - 1});
  return list;
}

struct Builder {
  const TileShape& tile;
  AxisTaps d, h, w;
  Range range_w = w.shifts(w.alive);
  Cut cut{};
  Planned out{};
  Plan& p = out.plan;
  int items = 0;
  int64_t step_channels = column_bytes / tile.bytes.operand;                 // of an instruction
  int64_t part_bytes = tile.bytes.scaled ? int64_t{tile.channels} * 16 : 0;  // of an item, where it has three

  bool wide = tile.form == Form::wide;

  /// Phases of the input for conv3d, and of the output for conv_transpose3d. In wide form w stands for both.
  struct Phases {
    int64_t d, h, w;
  };

  /// Adds kinds for input phase (phase_d, phase_h) and shifts of these ranges, cut into pieces.
  bool add_kinds(int64_t phase_d, int64_t phase_h, Range range_d, Range range_h, int64_t in_phases_w,
                 const std::vector<std::vector<Phases>>& slots) {
    for (const Range& piece_d : pieces(range_d, cut.d))
      for (const Range& piece_h : pieces(range_h, cut.h))
        if (!add_kind(phase_d, phase_h, piece_d, piece_h, in_phases_w, slots)) return false;
    return true;
  }

  /// Whether the last cells of a tile, whose taps read past it, are the last of a row. Then they have no
  /// output, or what they read is multiplied by zero (Form::wide), so a window need not include it. (With one
  /// tile of 64 cells this makes the kernel a tenth slower.)
  bool rows_end_with_tiles() const {
    return wide && tile.tiles == 2 && p.low_w == 0 && 64 * 2 * tile.tiles / p.depths % p.pitch == 0;
  }

  /// Adds a kind. `slots` lists what each slot sums over: phases, in the order of the input's phases along w.
  /// An unused slot has none.
  bool add_kind(int64_t phase_d, int64_t phase_h, Range range_d, Range range_h, int64_t in_phases_w,
                const std::vector<std::vector<Phases>>& slots) {
    if (p.kinds == most_kinds) return false;
    const int64_t cells = 64 * 2 * tile.tiles / p.depths;
    int64_t plane = cells + (range_h.count() - 1) * p.pitch;
    if (!rows_end_with_tiles()) plane += range_w.count() - 1;
    const int64_t planes = range_d.count() + p.depths - 1;
    int64_t phase_pitch = planes * plane;
    // The stores of 8 lanes, all phases of 8 / lanes_w neighbours, fall into different banks.
    if (p.lanes_w > 1) phase_pitch += ((8 / p.lanes_w - phase_pitch) % 8 + 8) % 8;
    if (phase_pitch * in_phases_w > 1 << 14) return false;
    Kind kind{};
    kind.phase_d = narrow(phase_d), kind.phase_h = narrow(phase_h);
    kind.low_d = narrow(range_d.low), kind.low_h = narrow(range_h.low);
    kind.planes = narrow(planes), kind.plane = narrow(plane);
    kind.phase_pitch = narrow(phase_pitch), kind.granule_pitch = narrow(phase_pitch * in_phases_w);
    kind.weights = p.block_weights;
    for (size_t slot = 0; slot < most_slots; ++slot) {
      kind.first[slot] = static_cast<uint16_t>(items);
      if (slot >= slots.size()) continue;
      for (size_t phase = 0; phase < slots[slot].size(); ++phase) {
        const Phases& of = slots[slot][phase];
        for (int64_t a = 0; a < range_d.count(); ++a)
          for (int64_t b = 0; b < range_h.count(); ++b)
            for (int64_t c = 0; c < range_w.count(); ++c) {
              const int64_t tap_d = d.tap(of.d, range_d.low + a), tap_h = h.tap(of.h, range_h.low + b),
                            tap_w = w.tap(of.w, range_w.low + c),
                            second_w = wide ? w.tap(1, range_w.low + c) : -1;
              if (tap_d < 0 || tap_h < 0 || (tap_w < 0 && second_w < 0)) continue;
              if (items == most_items) return false;
              p.item[items] = {static_cast<uint32_t>(static_cast<int64_t>(phase) * phase_pitch + a * plane +
                                                     b * p.pitch + c),
                               static_cast<uint32_t>(kind.stage_weights / 16)};
              const auto tap = [&](int64_t k) {
                return k < 0 ? no_tap : static_cast<uint16_t>((tap_d * p.h.kernel + tap_h) * p.w.kernel + k);
              };
              out.taps.of[items] = tap(tap_w), out.taps.second[items] = tap(second_w);
              p.half_items |= wide ? (tap_w < 0) | (second_w < 0) << 1 : 0;
              kind.stage_weights +=
                  narrow(int64_t{p.k_steps} * weight_rows_of(tile) * column_bytes + part_bytes);
              ++items;
            }
      }
    }
    kind.first[most_slots] = static_cast<uint16_t>(items);
    if (kind.stage_weights > 0) kind.stage_weights += narrow(part_bytes);  // zeros
    const int64_t weights = p.block_weights + int64_t{kind.stage_weights} * p.k_blocks;
    if (weights > most_int) return false;
    p.block_weights = narrow(weights);
    p.kind[p.kinds++] = kind;
    return true;
  }

  /// Builds the kinds for a tile of `depths` and stages of `k_steps`.
  bool build(int depths, int k_steps) {
    p.depths = depths;
    p.k_steps = k_steps;
    p.k_blocks = narrow(ceil_div(p.in_per_group, int64_t{k_steps} * step_channels));
    p.row_blocks = p.kinds = p.block_weights = items = 0;
    if (p.transposed) {
      const int per_row = tile.slots > 1 && !wide ? 2 : 1, rows = tile.slots / per_row;
      for (int first = 0; first == 0 || first < p.rows; first += rows) {
        const int here = std::min(rows, p.rows - first);
        std::vector<int64_t> phases_d, phases_h;
        for (int i = 0; i < here; ++i)
          phases_d.push_back(p.row[first + i].d), phases_h.push_back(p.row[first + i].h);
        std::vector<std::vector<Phases>> slots(most_slots);
        for (int i = 0; i < here; ++i)
          for (int j = 0; j < (wide ? 1 : p.phases_w); ++j)
            slots[static_cast<size_t>(i * per_row + (per_row == 2 ? p.phase_w[j] : 0))] = {
                {p.row[first + i].d, p.row[first + i].h, p.phase_w[j]}};
        if (!add_kinds(0, 0, d.shifts(phases_d), h.shifts(phases_h), 1, slots)) return false;
        p.first_kind[++p.row_blocks] = p.kinds;
      }
      return true;
    }
    for (const int64_t phase_d : d.alive)
      for (const int64_t phase_h : h.alive) {
        std::vector<Phases> phases;
        for (const int64_t phase_w : w.alive) phases.push_back({phase_d, phase_h, phase_w});
        if (!add_kinds(phase_d, phase_h, d.shifts({phase_d}), h.shifts({phase_h}), p.phases_w, {phases}))
          return false;
      }
    p.first_kind[++p.row_blocks] = p.kinds;
    return true;
  }

  /// Divides shared memory into weights and a ring of at least `least` stages.
  bool divide(bool resident, int least) {
    const std::span kinds(p.kind, static_cast<size_t>(p.kinds));
    const auto window = [&](const Kind& k) { return narrow(p.k_steps * k.granule_pitch * column_bytes); };
    int64_t stage_weights = 0;
    p.window_bytes = p.table_bytes = 0;
    for (const Kind& k : kinds) {
      p.window_bytes = std::max(p.window_bytes, window(k));
      stage_weights = std::max<int64_t>(stage_weights, k.stage_weights);
      p.table_bytes = std::max(p.table_bytes, ceil_div(8 * k.planes * k.plane * p.lanes_w, 128) * 128);
    }
    p.weight_bytes = resident ? p.block_weights : 0;
    // What is read behind a window must be finite and the same in every run: its neighbour in the stage, the
    // stage's own weights, or zeros. (Whatever another kernel left there, times zero, may be NaN.)
    p.zero_bytes =
        resident && rows_end_with_tiles() ? narrow(ceil_div((range_w.count() - 1) * 16, 128) * 128) : 0;
    if (p.zero_bytes > 0)
      for (Kind& k : kinds) k.begin = p.window_bytes - window(k);
    const int64_t others = int64_t{p.weight_bytes} + (tile.channels + 8) * 4 + p.table_bytes +
                           (tile.bytes.scaled ? tile.channels * 4 : 0);
    const int64_t stage =
        std::max<int64_t>(p.window_bytes + p.zero_bytes + (resident ? 0 : stage_weights), 1024);
    const int64_t left = shared_limit - others;
    const int64_t stages = std::min<int64_t>(left / stage, 8);
    if (left < 0 || stages < least) return false;
    p.stages = narrow(stages), p.stage_bytes = narrow(stage);
    p.shared_bytes = narrow(others + stages * stage);
    return true;
  }

  bool choose_memory() {
    // Smaller stages, and more of them, where stored numbers are twice as long as operands: 0.465 instead of
    // 0.528 ms.
    const bool single = tile.bytes.scaled || (wide && tile.bytes.operand < tile.bytes.storage);
    const auto attempt = [&](bool resident, int k_steps, int least) {
      return ceil_div(p.in_per_group, step_channels) % k_steps == 0 && build(p.depths, k_steps) &&
             divide(resident, least);
    };
    for (const bool resident : {true, false})
      for (const int k_steps : {4, 2, 1})
        if ((k_steps == 1 || !single) && attempt(resident, k_steps, 3)) return true;
    return attempt(true, 1, 2) || attempt(false, 1, 2);
  }

  /// The depths of a tile for which the fewest positions are loaded.
  bool choose_depths(int64_t positions) {
    Least<int, int64_t> best;
    for (const int depths : {1, 2}) {
      if (depths > p.d.cells || !build(depths, 1)) continue;
      const int64_t cells = 128 * tile.tiles;
      int64_t loaded = cells;
      for (int i = 0; i < p.kinds; ++i) loaded += int64_t{p.kind[i].planes} * p.kind[i].plane;
      best.offer(depths, ceil_div(p.d.cells, depths) * ceil_div(positions, cells / depths) * loaded);
    }
    p.depths = best.best().value_or(0);
    return p.depths > 0;
  }

  /// Chooses cuts for planes of this many positions. A kind covers all shifts if its window and weights fit
  /// shared memory; else it covers fewer, and its window is loaded again for the others.
  bool choose(int64_t positions) {
    for (const Cut c : {Cut{most_int, most_int}, {2, most_int}, {1, most_int}, {1, 2}, {1, 1}}) {
      cut = c;
      if (choose_depths(positions) && choose_memory()) return true;
    }
    return false;
  }
};

/// Whether the wide form is faster for a conv_transpose3d of several phases: where its smaller tiles occupy
/// more multiprocessors, where rows are long, and where TF32's products take longer than the store. It is not
/// for dilations that keep the phases' taps apart, where most weights of an item are zeros. (Over the sweep
/// this is 0.7 % slower than the faster form in the mean, and 17 % at worst.)
bool wide_pays(const Conv3dGeometry& g, int width, bool dead, Bytes bytes) {
  const bool fits = width == 32 && g.stride.w == 2 && g.big.w >= 2 && !dead && !bytes.scaled &&
                    g.kernel.w > 2 && 2 * g.kernel.w >= 3 * pair_taps(g).first.shifts({0, 1}).count();
  return fits && (g.batch * g.groups * g.small_cells() < 12'000 || g.small.w >= 128 ||
                  (bytes.operand == 4 && g.small_per_group() > 16));
}

/// How many taps a sum may hold: truncation (Note [Truncating sums] in common/operands.cuh) is then about as
/// large as f32's own error. An even number, so that all taps except the last have partners.
int most_taps_in_sum(double products) {
  return std::clamp(static_cast<int>(std::sqrt(products) / 4) * 2, 2, 20);
}

}  // namespace

TileShape tile_for(const Conv3dGeometry& g, bool transposed, Bytes bytes) {
  const int64_t channels = transposed ? g.big_per_group() : g.small_per_group();
  const int64_t per_block = ceil_div(channels, ceil_div(channels, 64));
  int width = 64;
  for (const int w : {48, 32, 16, 8})
    if (per_block <= w) width = w;
  size_t phases = 1;
  bool dead = false;
  for (int64_t axis = 0; axis < 3 && transposed; ++axis) {
    const AxisTaps taps = axis_taps(g, true, axis);
    phases *= taps.alive.size();
    dead |= taps.has_dead();
  }
  const TileShape shape = shape_of(width, phases > 1, bytes);
  if (phases > 1 && wide_pays(g, width, dead, bytes)) {
    // Smaller tiles where larger ones would not occupy every multiprocessor, or where there is no halo to
    // share. For short rows, several of which fit a tile, kernels of 3 and 5 are slower wide.
    const bool few_cells = g.batch * g.groups * g.small_cells() < h200.multiprocessors * 256;
    if (few_cells || g.small.w >= 32 || (g.kernel.w != 3 && g.kernel.w != 5))
      return few_cells || g.taps() <= 8 ? TileShape{32, 4, 1, bytes, Form::wide}
                                        : TileShape{32, 2, 2, bytes, Form::wide};
  }
  return shape;
}

std::optional<Planned> make_plan(const Conv3dGeometry& g, bool transposed, const TileShape& tile) {
  if (!moderate(g, transposed)) return std::nullopt;
  const bool wide = tile.form == Form::wide;
  auto [taps_w, origin_w] = wide ? pair_taps(g) : std::pair(axis_taps(g, transposed, 2), 0);
  Builder b{tile, axis_taps(g, transposed, 0), axis_taps(g, transposed, 1), std::move(taps_w)};
  Plan& p = b.p;
  set_sizes(p, g, transposed);
  Axis* const axes[]{&p.d, &p.h, &p.w};
  for (int64_t i = 0; i < 3; ++i) {
    set_sizes(*axes[i], g, transposed, i);
    axes[i]->padding = narrow(g.padding[i]), axes[i]->dilation = narrow(g.dilation[i]);
    axes[i]->stride = narrow(g.stride[i]);
  }
  p.origin_w = origin_w;
  if (wide) p.w.cells = narrow(ceil_div(g.big.w + origin_w, g.stride.w));
  p.in_channel = narrow(transposed ? g.small_cells() : g.big_cells());
  p.out_channel = narrow(transposed ? g.big_cells() : g.small_cells());
  p.channel_blocks = narrow(ceil_div(p.out_per_group, tile.channels));
  p.phases_w = narrow(static_cast<int64_t>(b.w.alive.size()));
  p.lanes_w = transposed ? 1 : static_cast<int>(std::bit_ceil(b.w.alive.size()));
  for (size_t i = 0; i < b.w.alive.size(); ++i) p.phase_w[i] = static_cast<int8_t>(b.w.alive[i]);
  // The shift of a cell that has an output must read padding zeros where it leaves its row.
  const int64_t in_cells = ceil_div(p.w.in, p.w.in_step), low = b.range_w.low;
  int64_t enough = std::max<int64_t>(p.w.cells, in_cells - low);
  for (const int64_t phase : b.w.alive) {
    const int64_t last = transposed ? ceil_div(p.w.out + p.origin_w - phase, g.stride.w) : p.w.cells;
    enough = std::max(enough, last + b.w.shifts({phase}).high);
  }
  int64_t pitch = std::min(p.w.cells + b.range_w.high - low, enough);
  // Both cells of a thread must lie in one row.
  if (wide) pitch += pitch % 2;
  if (pitch > 1 << 24 || pitch * p.h.cells > 1 << 30) return std::nullopt;
  p.pitch = narrow(pitch), p.low_w = narrow(low);
  p.per_pitch = (1 << 20) / p.pitch + 1;

  p.rows = transposed ? 0 : 1;
  p.dead_row = -1;
  for (int64_t d = 0; d < b.d.phases && transposed; ++d) {
    const int rows_before = p.rows;
    for (int64_t h = 0; h < b.h.phases && b.d.is_alive(d) && !b.w.alive.empty(); ++h)
      if (b.h.is_alive(h))
        p.row[p.rows++] = {static_cast<int8_t>(d), static_cast<int8_t>(h)};
      else
        p.dead_row = static_cast<int>(h);
    if (p.rows == rows_before) p.dead_depth[p.dead_depths++] = static_cast<int8_t>(d);
  }

  const int64_t positions = (p.h.cells - 1) * pitch + p.w.cells;
  if (!b.choose(positions)) return std::nullopt;
  p.plane_tiles = narrow(ceil_div(positions, 128 * tile.tiles / p.depths));
  p.depth_blocks = narrow(ceil_div(p.d.cells, p.depths));
  if (!product_fits({p.plane_tiles, p.depth_blocks, p.batch}) ||
      !product_fits({p.groups, p.channel_blocks}, 65535))
    return std::nullopt;
  b.out.tile = tile;
  return b.out;
}

std::optional<Planned> make_tiled_plan(const Conv3dGeometry& g, bool transposed, const Bytes& bytes) {
  return make_plan(g, transposed, tile_for(g, transposed, bytes));
}

std::optional<ScaledPlanned> make_scaled_plan(const Conv3dGeometry& g, bool transposed) {
  TileShape tile = tile_for(g, transposed, {.operand = 4, .storage = 4, .scaled = true});
  if (tile.channels == 64 && tile.slots > 1) tile.tiles = scaled_tiles_of_64;
  auto planned = make_plan(g, transposed, tile);
  if (!planned && tile.channels > 32) {  // half of a stage's weights may fit
    tile = shape_of(32, tile.slots > 1, tile.bytes);
    planned = make_plan(g, transposed, tile);
  }
  if (!planned) return std::nullopt;
  ScaledPlanned scaled{*planned, planned->plan, {}};
  const Plan& p = scaled.items.plan;
  Plan& to = scaled.instructions;
  int count = 0;
  const auto add = [&](uint32_t position, uint32_t input_distance, uint32_t weights, uint32_t distance) {
    if (count < most_items) to.item[count] = {position | input_distance << 16, weights | distance << 16};
    ++count;
  };
  const auto part = static_cast<uint32_t>(tile.channels);  // of an item's weights, in units of 16 bytes
  for (int k = 0; k < p.kinds; ++k) {
    const Kind& kind = p.kind[k];
    const auto to_low = static_cast<uint32_t>(kind.granule_pitch),
               zeros = static_cast<uint32_t>(kind.stage_weights) / 16 - part;
    for (int slot = 0; slot < most_slots; ++slot) {
      const int first = kind.first[slot], last = kind.first[slot + 1], taps = last - first;
      const int of_output = transposed ? taps : p.kind[p.kinds - 1].first[most_slots];
      const int most = most_taps_in_sum(static_cast<double>(of_output) * p.in_per_group);
      const int chunks = std::max(ceil_div(taps, most), 1);
      const int chunk = std::max(ceil_div(taps, 2 * chunks) * 2, 2);
      scaled.most_in_sum.of[k][slot] = static_cast<uint8_t>(chunk + chunk / 2);
      to.kind[k].first[slot] = static_cast<uint16_t>(count);
      for (int begin = first; begin < last; begin += chunk) {
        const int end = std::min(begin + chunk, last);
        for (int i = begin; i < end; ++i) add(p.item[i].position, to_low, p.item[i].weights, part);
        for (int i = begin; i < end; i += 2) {
          const auto [position, weights] = p.item[i];
          const uint32_t high = weights + 2 * part;
          if (i + 1 == end) {
            add(position, to_low, high, zeros - high);
          } else {
            if (p.item[i + 1].position < position) return std::nullopt;
            add(position, p.item[i + 1].position - position, high, 3 * part);
          }
        }
      }
    }
    to.kind[k].first[most_slots] = static_cast<uint16_t>(count);
  }
  if (count >= most_items) return std::nullopt;  // the kernel reads one beyond the end
  return scaled;
}

}  // namespace vox::cuda::conv::strided
