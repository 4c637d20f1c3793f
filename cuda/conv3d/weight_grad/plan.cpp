#include <voxgrad/cuda/conv3d/common/integers.h>
#include <voxgrad/cuda/conv3d/model/ranges.h>
#include <voxgrad/cuda/conv3d/model/search.h>
#include <voxgrad/cuda/conv3d/weight_grad/plan.h>
#include <voxgrad/ops/conv3d_lattice.h>

#include <algorithm>

namespace vox::cuda::conv::weight_grad {

namespace {

constexpr int most_shared = h200.block_shared_bytes - (2 << 10);  // barriers need some
constexpr int64_t most_workspace = int64_t{32} << 20;
constexpr int64_t limit = int64_t{1} << 30;

/// Phases and extents of an axis, without those that depend on the tile.
std::optional<PhasedAxis> phased(Conv3dGeometry g, int i) {
  if (!all_fit({g.big[i], g.small[i], g.kernel[i], g.stride[i], g.padding[i], g.dilation[i],
                g.kernel[i] * g.dilation[i], g.small[i] * g.stride[i]},
               1 << 24))
    return std::nullopt;
  PhasedAxis a{};
  a.big = narrow(g.big[i]), a.small = narrow(g.small[i]), a.kernel = narrow(g.kernel[i]);
  a.stride = narrow(g.stride[i]), a.padding = narrow(g.padding[i]), a.dilation = narrow(g.dilation[i]);
  g.big[i] = std::max(g.big[i], g.stride[i]);  // taps of phases beyond a short axis read zeros
  std::vector<Lattice> lattices = conv_transpose3d_lattices(g, i);
  if (lattices.size() > most_phases) return std::nullopt;
  std::ranges::sort(lattices, {}, &Lattice::tap_first);
  int high = 0;
  for (const Lattice& phase : lattices) {
    const int n = a.phases++;
    const int first = narrow(-phase.input_cell(0, 0)), last = narrow(-phase.input_cell(0, phase.taps - 1));
    a.residue[n] = narrow(phase.out_first), a.first[n] = first, a.span[n] = last - first + 1;
    a.low = n ? std::min(a.low, first) : first;
    high = n ? std::max(high, last) : last;
  }
  a.reach = high - a.low;
  return a;
}

/// Tiles of `tile` cells. extent_of: how many slots, rows or words a phase takes, by its span.
template <class F>
void cut(PhasedAxis& a, int tile, F extent_of) {
  a.tile = tile, a.tiles = ceil_div(a.small, tile), a.extent = 0;
  for (int p = 0; p < a.phases; ++p) {
    a.offset[p] = a.extent;
    a.extent += extent_of(a.span[p]);
  }
}

void cut_rows(PhasedAxis& a, int tile) {
  cut(a, tile, [&](int span) { return tile + span - 1; });
}

/// Cuts the rows themselves. A row has a second copy if a shift may be odd. Both copies have room for one
/// number more than is read, which completes the last word. The second copy begins with the second number:
/// the first would lie before it, in the first copy.
void cut_columns(Plan& p, int tile) {
  PhasedAxis& a = p.axis[2];
  const int longest = *std::max_element(a.span, a.span + a.phases);
  const bool twice = p.per_word == 2 && longest > 1;
  p.copy_words = twice ? (tile + longest - 1) / 2 + 1 : 0;
  cut(a, tile, [&](int span) { return twice ? 2 * p.copy_words : (tile + span - 1) / p.per_word; });
}

/// Lays out shared memory; false if it does not fit. Spans may be as long as the distance of taps, so
/// products of extents are bounded before they are computed in 32 bits.
bool lay_out(Plan& p) {
  const auto& [d, h, w] = p.axis;
  constexpr int64_t most_words = most_shared / 4;
  if (d.extent > most_words || int64_t{h.extent} * w.extent > most_words ||
      int64_t{h.extent} * (w.tile + w.reach) * w.phases > most_words)
    return false;
  // 4 modulo 8 words from channel to channel: the 8 x 4 words that a warp loads lie in different banks.
  p.channel_pitch = ceil_div(h.extent * w.extent + 4, 8) * 8 - 4;
  p.slot_words = p.octets * 8 * p.channel_pitch;
  p.plane_words = (p.columns + 1) * 4;
  p.across = ceil_div((w.tile + w.reach) * w.phases, p.per_word) * p.per_word;
  p.big_entries = h.extent * p.across;
  p.small_entries = h.tile * w.tile;
  const int64_t words = int64_t{d.extent} * p.slot_words + 2 * p.parts * p.tile_words() +
                        2 * (p.big_entries + p.small_entries) + 2 * p.products * 8;
  if (words > most_words) return false;
  p.shared_bytes = narrow(4 * words);
  return true;
}

/// Cycles of a plan. Each step takes the longer of its products (bound by shared memory) and its loads, and
/// some more because the two slow each other down. A row in memory costs a few words more than it has,
/// because it begins and ends within sectors of 32 bytes.
struct Cycles {
  double multiply, load;  // of a step
  double column;          // of the beginning of a column, the depths of one tile
  double steps, waves;    // of a split; of splits

  double all(const Plan& p) const {
    const double step =
        std::max(multiply, load) + std::min(multiply, load) / 3 + 500 + column / p.axis[0].small;
    return waves * (steps * step + column + 10000);
  }
};
Cycles cycles_of(const Plan& p) {
  const auto& [d, h, w] = p.axis;
  const double rows = static_cast<double>(h.small) / h.tiles, chunks = ceil_div(w.small, 16 * w.tiles);
  const double product =
      p.parts == 1 ? (16 + p.columns / 4.0) * 1.5 : std::max(28.0, p.columns / 2.0) * 3 * 1.2;
  const double multiply = rows * chunks * 2 / p.per_word * p.products * product;
  const double across = (w.tile + w.reach) * w.phases;
  const double plane = p.octets * 8 * h.extent * (across + 20), tile = h.tile * (w.tile + 20) * p.columns;
  const double load = d.phases * plane / 3 + tile / 6;
  double more = 0;  // planes at the beginning of a column (the depths of one tile)
  for (int i = 0; i < d.phases; ++i) more += d.span[i] - 1;
  return {multiply, load, more * plane / 3 + multiply + 2000,
          static_cast<double>(ceil_div(p.steps, p.splits)),
          static_cast<double>(ceil_div(p.slices * p.splits, h200.multiprocessors))};
}

}  // namespace

Work work_of(const Plan& p) {
  const Cycles c = cycles_of(p);
  return {.products = c.waves * c.steps * c.multiply,
          .loads = c.waves * (c.steps * (c.load + c.column / p.axis[0].small) + c.column),
          .rounds = c.waves,
          .stages = c.waves * c.steps,
          .stores = static_cast<double>(p.splits * p.slices * p.slice_floats())};
}

std::optional<Plan> make_plan(const Conv3dGeometry& g, Factors factors) {
  Plan p{};
  const bool paired = factors == Factors::tf32x3;
  p.parts = paired ? 2 : 1, p.per_word = factors == Factors::of_16_bits ? 2 : 1;
  if (!all_fit({g.batch, g.big_channels, g.small_channels, g.big.h * g.big.w, g.small_cells()}, limit) ||
      g.taps() > 4096)
    return std::nullopt;
  for (int i = 0; i < 3; ++i) {
    const auto axis = phased(g, i);
    if (!axis) return std::nullopt;
    p.axis[i] = *axis;
  }
  p.batch = narrow(g.batch), p.groups = narrow(g.groups);
  p.big_per_group = narrow(g.big_per_group()), p.small_per_group = narrow(g.small_per_group());
  p.big_cells = g.big_cells(), p.small_cells = g.small_cells();
  p.taps = narrow(g.taps());
  // The fewest blocks of columns, and then the least padding.
  p.columns = *std::ranges::lower_bound(
      column_counts,
      ceil_div(p.small_per_group, ceil_div(p.small_per_group, std::ranges::max(column_counts))));
  p.column_blocks = ceil_div(p.small_per_group, p.columns);
  cut(p.axis[0], 1, [](int span) { return span + 1; });
  p.deep = std::ranges::any_of(p.axis[0].span, [](int span) { return span > 1; });
  if (PhasedAxis& w = p.axis[2]; p.per_word == 2 && w.stride == 1 && w.low % 2 != 0)
    --w.first[0], ++w.span[0], --w.low, ++w.reach;  // windows begin with a word of memory

  Least<Plan> best;
  const int all_octets = ceil_div(p.big_per_group, 8);
  const ProductCounts counts = warpgroup_products(p.columns, paired);
  const int most_products = *std::ranges::max_element(counts.of);
  for (p.octet_blocks = all_octets; p.octet_blocks > 0; --p.octet_blocks) {
    p.octets = ceil_div(all_octets, p.octet_blocks);
    if (p.octets > 1 && p.octets * p.taps > 16 * most_products) break;
    if (ceil_div(all_octets, p.octets) != p.octet_blocks) continue;
    p.tap_blocks = ceil_div(p.taps, 16 * most_products);
    p.slice_taps = ceil_div(p.taps, p.tap_blocks);
    const int products = ceil_div(p.octets_in_slice(), 8);
    p.first_products = most_products;
    for (const int count : counts.of)
      if (2 * count >= products) p.first_products = std::min(p.first_products, count);
    p.products = std::max(products, 2 * p.first_products - 1);
    p.slices = int64_t{p.groups} * p.column_blocks * p.tap_blocks * p.octet_blocks;
    if (p.slices > limit) continue;
    for (const int rows : {1, 2, 3, 4, 5, 6, 8, 12, 16, 24, 32}) {
      if (rows > p.axis[1].small) break;
      cut_rows(p.axis[1], rows);
      for (int cuts = 1, last = 0; cuts <= 8; ++cuts) {
        const int width = ceil_div(ceil_div(p.axis[2].small, cuts), 16) * 16;
        if (width == last || width > 1024) continue;
        last = width;
        cut_columns(p, width);
        if (!lay_out(p)) continue;
        p.steps = int64_t{p.batch} * p.axis[1].tiles * p.axis[2].tiles * p.axis[0].small;
        for (int waves = 1; waves <= 3; ++waves) {
          p.splits = std::max<int64_t>(1, std::min({waves * h200.multiprocessors / p.slices, p.steps,
                                                    most_workspace / (4 * p.slices * p.slice_floats())}));
          best.offer(p, cycles_of(p).all(p));
        }
      }
    }
  }
  return best.best();
}

}  // namespace vox::cuda::conv::weight_grad
