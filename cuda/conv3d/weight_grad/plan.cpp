#include <voxgrad/cuda/conv3d/common/integers.h>
#include <voxgrad/cuda/conv3d/weight_grad/plan.h>

#include <algorithm>

namespace vox::cuda::conv::weight_grad {

namespace {

constexpr int most_shared = 225 << 10;  // bytes, of the 227 KiB of a block; barriers need some
constexpr int64_t most_workspace = int64_t{32} << 20;

/// Phases and extents of an axis, without those that depend on the tile.
std::optional<PhasedAxis> phased(const Conv3dGeometry& g, int i) {
  PhasedAxis a{};
  constexpr int64_t limit = int64_t{1} << 24;
  for (const int64_t size : {g.big[i], g.small[i], g.kernel[i], g.stride[i], g.padding[i], g.dilation[i],
                             g.kernel[i] * g.dilation[i], g.small[i] * g.stride[i]})
    if (size > limit) return std::nullopt;
  a.big = narrow(g.big[i]), a.small = narrow(g.small[i]), a.kernel = narrow(g.kernel[i]);
  a.stride = narrow(g.stride[i]), a.padding = narrow(g.padding[i]), a.dilation = narrow(g.dilation[i]);
  int high = 0;
  for (int k = 0; k < a.kernel; ++k) {
    const int t = k * a.dilation - a.padding;
    const int r = (t % a.stride + a.stride) % a.stride, q = (t - r) / a.stride;
    int p = 0;
    while (p < a.phases && a.residue[p] != r) ++p;
    if (p == a.phases) {
      if (p == most_phases) return std::nullopt;
      ++a.phases;
      a.residue[p] = r, a.first[p] = q;
    }
    a.span[p] = q - a.first[p] + 1;  // q grows with k
    a.low = k ? std::min(a.low, q) : q;
    high = k ? std::max(high, q) : q;
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
  p.shared_bytes = static_cast<int>(4 * words);
  return true;
}

/// Roughly the cycles of a plan. Each step takes the longer of its products (bound by shared memory) and its
/// loads, and some more because the two slow each other down. A row in memory costs a few words more than it
/// has, because it begins and ends within sectors of 32 bytes.
double cycles(const Plan& p) {
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
  const double per_column = more * plane / 3 + multiply + 2000;
  const double step = std::max(multiply, load) + std::min(multiply, load) / 3 + 500 + per_column / d.small;
  const double waves = static_cast<double>(ceil_div(p.slices * p.slabs, h200_multiprocessors));
  return waves * (static_cast<double>(ceil_div(p.steps, p.slabs)) * step + per_column + 10000);
}

}  // namespace

std::optional<Plan> make_plan(const Conv3dGeometry& g, Factors factors) {
  Plan p{};
  const bool split = factors == Factors::tf32x3;
  p.parts = split ? 2 : 1, p.per_word = factors == Factors::of_16_bits ? 2 : 1;
  for (int i = 0; i < 3; ++i) {
    const auto axis = phased(g, i);
    if (!axis) return std::nullopt;
    p.axis[i] = *axis;
  }
  constexpr int64_t limit = int64_t{1} << 30;
  if (g.taps() > 4096 || g.batch > limit || g.big_channels > limit || g.small_channels > limit ||
      g.big.h * g.big.w > limit || g.small_cells() > limit)
    return std::nullopt;
  p.batch = static_cast<int>(g.batch), p.groups = static_cast<int>(g.groups);
  p.big_per_group = static_cast<int>(g.big_per_group());
  p.small_per_group = static_cast<int>(g.small_per_group());
  p.big_cells = g.big_cells(), p.small_cells = g.small_cells();
  p.taps = static_cast<int>(g.taps());
  visit_channel_tiles(p.small_per_group, [&](auto tiles) { p.columns = 8 * tiles; });
  p.column_blocks = ceil_div(p.small_per_group, p.columns);
  cut(p.axis[0], 1, [](int span) { return span + 1; });
  if (PhasedAxis& w = p.axis[2]; p.per_word == 2 && w.stride == 1 && w.low % 2 != 0)
    --w.first[0], ++w.span[0], --w.low, ++w.reach;  // windows begin with a word of memory

  std::optional<Plan> best;
  double fewest = 0;
  const int all_octets = ceil_div(p.big_per_group, 8);
  const ProductCounts counts = warpgroup_products(p.columns, split);
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
          p.slabs = std::max<int64_t>(1, std::min({waves * h200_multiprocessors / p.slices, p.steps,
                                                   most_workspace / (4 * p.slices * p.slice_floats())}));
          if (const double needed = cycles(p); !best || needed < fewest) best = p, fewest = needed;
        }
      }
    }
  }
  if (best) {
    best->deep = false;
    for (int i = 0; i < best->axis[0].phases; ++i) best->deep |= best->axis[0].span[i] > 1;
  }
  return best;
}

}  // namespace vox::cuda::conv::weight_grad
