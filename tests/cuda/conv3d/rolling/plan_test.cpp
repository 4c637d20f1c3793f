#include <voxgrad/cuda/conv3d/rolling/plan.h>

#include "tests/cuda/conv3d/evaluate.h"

// The marches of rolling on the CPU, evaluated by loops for any number of blocks: pieces of steps, planes,
// slots and the rotation of the weights.

namespace vox::cuda::conv::rolling {
namespace {

constexpr int64_t most_shared = 200 * 1024;

/// The input at position `flat` of plane `z`.
int64_t input_at(int n_channel, int z, int flat, const Product& p, const Evaluation& products) {
  const Place at = place_of(flat, p);
  return at.image < p.batch ? products.input(at.image, n_channel, {z, at.h + p.h.base, at.w + p.w.base})
                            : outside;
}

/// The products of a march with one output channel of its block. The factors that a position's sum in a slot
/// has, until its depth is complete.
void multiply(const March& m, int out, const Product& p, const TileShape& t, const Conv3dGeometry& g,
              Evaluation& products) {
  using Factors = std::vector<std::pair<int64_t, int64_t>>;
  std::vector<std::vector<Factors>> sums(static_cast<size_t>(t.taps_d),
                                         std::vector<Factors>(static_cast<size_t>(t.positions)));
  const auto add_plane = [&](int in, int v, int slot) {
    const int td = (v % t.taps_d - slot + t.taps_d) % t.taps_d;
    for (int th = 0; th < p.h.taps; ++th)
      for (int tw = 0; tw < p.w.taps; ++tw) {
        const int64_t weight =
            products.weight(m.group, in, out, kernel_tap(p, g.kernel.h, g.kernel.w, td, th, tw));
        const int first = m.tile * t.positions + th * p.row_shift + tw * p.column_shift;
        for (int i = 0; i < t.positions; ++i)
          sums[static_cast<size_t>(slot)][static_cast<size_t>(i)].emplace_back(
              input_at(m.group * p.in_per_group + in, v + p.d.base, first + i, p, products), weight);
      }
  };
  for (int v = m.first; v < m.end + t.taps_d - 1; ++v) {
    const bool inside = v >= m.first_plane && v < m.end_plane;
    EXPECT_EQ(inside, v + p.d.base >= 0 && v + p.d.base < p.d.in_cells);
    for (int in = 0; inside && in < p.in_per_group; ++in)
      for (int slot = 0; slot < t.taps_d; ++slot) add_plane(in, v, slot);
    const int ready = v - (t.taps_d - 1);
    auto& sum = sums[static_cast<size_t>((v + 1) % t.taps_d)];
    for (int i = 0; ready >= m.first && i < t.positions; ++i) {
      const Place at = place_of(m.tile * t.positions + i, p);
      if (at.image >= p.batch || at.h >= p.h.cells || at.w >= p.w.cells) continue;
      const int64_t to = products.output(at.image, m.group * p.out_per_group + out, {ready, at.h, at.w});
      products.store(to);
      for (const auto& [input, weight] : sum[static_cast<size_t>(i)]) products.add(to, input, weight);
    }
    std::ranges::fill(sum, Factors{});
  }
}

TEST(Conv3dRollingPlan, MarchesEqualTheReference) {
  Random random{std::mt19937_64(5)};
  int compared = 0;
  for (int i = 0; i < 200; ++i) {
    const bool transposed = i % 2 == 0, channels = i % 7 == 0;
    const Triple kernel{random(2, 5), random(1, 4), random(1, 4)};
    const int64_t groups = channels ? random(1, 2) : 1, most = channels ? 20 : 1;
    const Shape input{channels ? 2 : 1, groups * random(1, channels ? 3 : 1), random(1, channels ? 4 : 9),
                      random(1, channels ? 5 : 20), random(1, channels ? 8 : 30)};
    const auto g = geometry(transposed, input, groups * random(1, most), kernel,
                            {.padding = {random(0, 4), random(0, 2), random(0, 2)},
                             .dilation = {1, random(1, 3), random(1, 2)},
                             .groups = groups});
    if (!g || testing::products_of(*g) > 300'000) continue;
    const TileShape tile{static_cast<int>(random(1, 4)) * 128, 16, static_cast<int>(kernel.d), 8, false, 800};
    const auto p = cut_product(*g, transposed, tile, most_shared);
    ASSERT_TRUE(p.has_value());
    EXPECT_LE(shared_bytes(*p, tile), most_shared);
    EXPECT_LE(p->window, tile.most_window);
    EXPECT_GE(p->planes, 2);
    EXPECT_GE(p->stages, 2);
    const Plan plan = cut_steps(*p, with_multiprocessors(static_cast<int>(random(1, 9))));
    testing::evaluate(*g, transposed, [&](Evaluation& products) {
      for (int b = 0; b < plan.blocks; ++b)
        for_each_march(plan, b, [&](const March& m) {
          const int first = m.channel_block * tile.channels;
          for (int out = first; out < std::min(first + tile.channels, p->out_per_group); ++out)
            multiply(m, out, *p, tile, *g, products);
        });
    });
    ++compared;
  }
  EXPECT_GT(compared, 100);
}

// Every step is in exactly one piece, and no piece is much longer than necessary.
TEST(Conv3dRollingPlan, PiecesAreEven) {
  Random random{std::mt19937_64(6)};
  const auto between = [&](int low, int high) { return static_cast<int>(random(low, high)); };
  for (int i = 0; i < 500; ++i) {
    Product p{};
    p.groups = between(1, 3), p.channel_blocks = between(1, 2), p.tiles = between(1, i % 5 ? 60 : 5000);
    p.d.taps = between(2, 7), p.d.base = between(-p.d.taps + 1, 2);
    p.d.cells = between(1, i % 3 ? 30 : 400);
    p.d.in_cells = std::max(1, p.d.cells + p.d.base + between(-2, p.d.taps));
    const int most = i % 2 ? 132 : between(1, 40);
    const Plan plan = cut_steps(p, with_multiprocessors(most));
    ASSERT_GE(plan.blocks, 1);
    ASSERT_LE(plan.blocks, most);
    EXPECT_EQ(plan.cuts[0], 0);
    EXPECT_EQ(plan.cuts[plan.blocks], steps_of(p));
    for (int b = 0; b < plan.blocks; ++b) EXPECT_LT(plan.cuts[b], plan.cuts[b + 1]);
    Ints planes(static_cast<size_t>(plan.blocks));
    int64_t steps = 0;
    for (int b = 0; b < plan.blocks; ++b)
      for_each_march(plan, b, [&](const March& m) {
        planes[static_cast<size_t>(b)] += m.planes();
        steps += m.end - m.first;
        EXPECT_LT(m.first, m.end);
        EXPECT_LT(m.tile, p.tiles);
        EXPECT_LT(m.channel_block, p.channel_blocks);
        EXPECT_LT(m.group, p.groups);
      });
    EXPECT_EQ(steps, steps_of(p));
    const int64_t all = steps_of(p) / p.d.cells * march_at(0, p.d.cells, p).planes();
    EXPECT_LE(std::ranges::max(planes), std::max<int64_t>(all / most + 1, p.d.taps) + 2 * (p.d.taps - 1));
  }
}

/// The planes of the longest piece in the best cut of all, by trying the end of every piece.
int64_t best_longest(const Product& p, int most_blocks) {
  const int64_t all = steps_of(p);
  const auto planes_of = [&](int64_t begin, int64_t end) {
    int64_t planes = 0;
    for (int64_t step = begin; step < end;) {
      const March m = march_at(step, end, p);
      planes += m.planes();
      step += m.end - m.first;
    }
    return planes;
  };
  Ints best(static_cast<size_t>(all) + 1, std::numeric_limits<int64_t>::max());
  best[0] = 0;  // of the steps before the index
  for (int block = 0; block < most_blocks; ++block)
    for (int64_t end = all; end > 0; --end)
      for (int64_t begin = 0; begin < end; ++begin)
        best[static_cast<size_t>(end)] =
            std::min(best[static_cast<size_t>(end)],
                     std::max(best[static_cast<size_t>(begin)], planes_of(begin, end)));
  return best[static_cast<size_t>(all)];
}

TEST(Conv3dRollingPlan, NoCutHasAShorterLongestPiece) {
  Random random{std::mt19937_64(8)};
  int compared = 0;
  for (int i = 0; i < 300; ++i) {
    Product p{};
    p.groups = 1, p.channel_blocks = 1, p.tiles = static_cast<int>(random(1, 4));
    p.d.taps = static_cast<int>(random(2, 5)), p.d.base = static_cast<int>(random(-p.d.taps + 1, 1));
    p.d.cells = static_cast<int>(random(1, 8));
    p.d.in_cells = static_cast<int>(std::max<int64_t>(1, p.d.cells + p.d.base + random(-2, p.d.taps)));
    if (march_at(0, p.d.cells, p).planes() == 0) continue;  // some output reads the input
    const int blocks = static_cast<int>(random(1, 6));
    EXPECT_EQ(cut_steps(p, with_multiprocessors(blocks)).planes, best_longest(p, blocks))
        << "tiles " << p.tiles << " cells " << p.d.cells << " taps " << p.d.taps << " base " << p.d.base
        << " in_cells " << p.d.in_cells << " blocks " << blocks;
    ++compared;
  }
  EXPECT_GT(compared, 250);
}

TEST(Conv3dRollingPlan, TakesUnitStepsOnly) {
  const auto takes = [](const Triple& stride, const Triple& dilation, int taps) {
    const auto g =
        testing::geometry({1, 8, 6, 6, 6}, {8, 8, 3, 3, 3}, {.stride = stride, .dilation = dilation});
    return cut_product(g, true, TileShape{256, 16, taps, 8}, most_shared).has_value();
  };
  EXPECT_TRUE(takes(1, 1, 3));
  EXPECT_TRUE(takes(1, {1, 2, 3}, 3));
  EXPECT_FALSE(takes(1, 1, 2));
  EXPECT_FALSE(takes({1, 1, 2}, 1, 3));
  EXPECT_FALSE(takes(1, {2, 1, 1}, 3));
}

/// Whether the guarantee of rows_are_words holds, for the first rows and images.
bool has_words(const Product& p) {
  const auto cell = [&](int flat) {
    const Place at = place_of(flat, p);
    const int h = at.h + p.h.base, w = at.w + p.w.base;
    const bool inside = h >= 0 && h < p.h.in_cells && w >= 0 && w < p.w.in_cells;
    return inside ? (at.image * p.h.in_cells + h) * p.w.in_cells + w : -1;
  };
  for (int flat = p.w.base & 1; flat < 3 * p.pitch_h.divisor * p.pitch_w.divisor; flat += 2) {
    const int first = cell(flat), second = cell(flat + 1);
    if (first < 0 ? second >= 0 : (first % 2 != 0 || second != first + 1)) return false;
  }
  return (p.w.base & 1) == 0 || cell(0) < 0;
}

TEST(Conv3dRollingPlan, LongEvenRowsOf16BitsAreWords) {
  int words = 0;
  for (const int64_t width : {4, 15, 16, 17, 64, 66})
    for (const int64_t taps : {1, 2, 3, 4, 7})
      for (const int64_t padding : {0, 1, 2, 5})
        for (const bool transposed : {false, true}) {
          if (width + 2 * padding < taps || (transposed && width + taps - 1 <= 2 * padding)) continue;
          const Conv3dGeometry g =
              *geometry(transposed, {2, 8, 3, 5, width}, 8, {1, 3, taps}, {.padding = {0, 1, padding}});
          const auto p = cut_in_tiles(g, transposed, {256, 16, 1, 16, true});
          ASSERT_TRUE(p.has_value());
          const bool cropped = transposed && padding > taps - 1;  // rows may begin in the middle of a word
          if (width % 2 || (width >= 16 && !cropped)) {
            EXPECT_EQ(rows_are_words(*p), width % 2 == 0) << width << ' ' << taps << ' ' << padding;
          }
          if (rows_are_words(*p)) {
            EXPECT_TRUE(has_words(*p)) << width << ' ' << taps << ' ' << padding;
            ++words;
          }
        }
  EXPECT_GT(words, 100);
}

// The kernel numbers positions in 32 bits, including those that the last row of taps reads beyond the plane.
TEST(Conv3dRollingPlan, PositionsFit32Bits) {
  for (const int64_t dilation : {60'000, 65'000, 65'600, 80'000, 120'000}) {
    const auto g =
        detail::conv3d_geometry("rolling", {1, 8, 1, 16, 32768}, {16, 8, 1, 2, 1},
                                {.padding = Triple(0, dilation / 2, 0), .dilation = Triple(1, dilation, 1)});
    const TileShape tile{256, 16, 1, 8};
    const auto p = cut_in_tiles(g, false, tile);
    EXPECT_EQ(p.has_value(), dilation <= 65'000) << dilation;
    if (!p) continue;
    const int64_t last = int64_t{p->tiles} * tile.positions + tile.most_window +
                         int64_t{p->row_groups - 1} * p->rows * p->row_shift;
    EXPECT_LT(last, int64_t{1} << 31) << dilation;
  }
}

TEST(Conv3dRollingPlan, DivisorsAreExact) {
  std::mt19937_64 random(6);
  for (const int64_t d : {1, 2, 3, 7, 66, 98, 255, 256, 65535, 65537, 2147483647})
    for (const int64_t n : {int64_t{0}, d - 1, d, 2 * d - 1, int64_t{2147483647} / d * d - 1,
                            int64_t{2147483647}, static_cast<int64_t>(random() >> 33)}) {
      if (n < 0 || n > 2147483647) continue;
      EXPECT_EQ(divisor_of(d).quotient(static_cast<int>(n)), n / d) << n << " / " << d;
    }
}

}  // namespace
}  // namespace vox::cuda::conv::rolling
