#include <gtest/gtest.h>

#include <voxgrad/cuda/conv3d/rolling/plan.h>

#include <algorithm>
#include <random>

#include "tests/support/conv3d.h"

// The marches of rolling on the CPU, evaluated by loops for any number of blocks: pieces of steps, planes,
// slots and the rotation of the weights.

namespace vox::cuda::conv::rolling {
namespace {

using testing::Values;

constexpr int64_t most_shared = 200 * 1024;

/// f(march) for every march of every block.
template <class F>
void for_each_march(const Plan& plan, F f) {
  for (int b = 0; b < plan.blocks; ++b)
    for (int64_t step = plan.cuts[b]; step < plan.cuts[b + 1];) {
      const March m = march_at(step, plan.cuts[b + 1], plan.product);
      f(b, m);
      step += m.end - m.first;
    }
}

struct Place {
  int image, h, w;
};
Place place_of(int flat, const flat::Product& p) {
  const int row = p.pitch_w.quotient(flat), image = p.pitch_h.quotient(row);
  return {image, row - image * p.pitch_h.divisor, flat - row * p.pitch_w.divisor};
}

/// The value at position `flat` of plane `z`, for one image of one channel.
double cell_at(const Values& in, int z, int flat, const flat::Product& p) {
  const Place at = place_of(flat, p);
  const int h = at.h + p.h.base, w = at.w + p.w.base;
  if (at.image > 0 || h < 0 || h >= p.h.in_cells || w < 0 || w >= p.w.in_cells) return 0;
  return in[static_cast<size_t>((z * p.h.in_cells + h) * p.w.in_cells + w)];
}

Values by_marches(const Plan& plan, const flat::TileShape& t, const Conv3dGeometry& g, bool transposed,
                  const Values& in, const Values& weight) {
  const flat::Product& p = plan.product;
  Values out(static_cast<size_t>(transposed ? g.big_cells() : g.small_cells()), 0.0);
  for_each_march(plan, [&](int, const March& m) {
    std::vector<Values> sums(static_cast<size_t>(t.taps_d), Values(static_cast<size_t>(t.positions), 0.0));
    for (int v = m.first; v < m.end + t.taps_d - 1; ++v) {
      const bool inside = v >= m.first_plane && v < m.end_plane;
      EXPECT_EQ(inside, v + p.d.base >= 0 && v + p.d.base < p.d.in_cells);
      for (int slot = 0; inside && slot < t.taps_d; ++slot) {
        const int td = (v % t.taps_d - slot + t.taps_d) % t.taps_d;
        for (int th = 0; th < p.h.taps; ++th)
          for (int tw = 0; tw < p.w.taps; ++tw) {
            const int64_t tap =
                ((p.d.first_tap + td * p.d.tap_pace) * g.kernel.h + p.h.first_tap + th * p.h.tap_pace) *
                    g.kernel.w +
                p.w.first_tap + tw * p.w.tap_pace;
            const int shift = th * p.row_shift + tw * p.column_shift;
            for (int i = 0; i < t.positions; ++i)
              sums[static_cast<size_t>(slot)][static_cast<size_t>(i)] +=
                  cell_at(in, v + p.d.base, m.tile * t.positions + i + shift, p) *
                  weight[static_cast<size_t>(tap)];
          }
      }
      const int ready = v - (t.taps_d - 1);
      Values& sum = sums[static_cast<size_t>((v + 1) % t.taps_d)];
      for (int i = 0; ready >= m.first && i < t.positions; ++i) {
        const Place at = place_of(m.tile * t.positions + i, p);
        if (at.image > 0 || at.h >= p.h.cells || at.w >= p.w.cells) continue;
        out[static_cast<size_t>((ready * p.out_h + at.h) * p.out_w + at.w)] += sum[static_cast<size_t>(i)];
      }
      std::ranges::fill(sum, 0.0);
    }
  });
  return out;
}

TEST(Conv3dRollingPlan, MarchesEqualTheReference) {
  std::mt19937_64 random(5);
  const auto between = [&](int64_t low, int64_t high) {
    return low + static_cast<int64_t>(random() % static_cast<uint64_t>(high - low + 1));
  };
  int compared = 0;
  for (int i = 0; i < 200; ++i) {
    const bool transposed = i % 2 == 0;
    const Triple kernel{between(2, 5), between(1, 4), between(1, 4)},
        dilation{1, between(1, 3), between(1, 2)}, padding{between(0, 4), between(0, 2), between(0, 2)};
    Conv3dGeometry g;
    try {
      g = detail::conv_transpose3d_geometry("rolling", {1, 1, between(1, 9), between(1, 20), between(1, 30)},
                                            {1, 1, kernel.d, kernel.h, kernel.w},
                                            {.padding = padding, .dilation = dilation});
    } catch (const ShapeError&) {  // padding crops everything
      continue;
    }
    const flat::TileShape tile{
        static_cast<int>(between(1, 4)) * 128, 1, 16, static_cast<int>(kernel.d), 8, 1, false, false, 800};
    const auto p = cut_product(g, transposed, tile, most_shared);
    ASSERT_TRUE(p.has_value());
    EXPECT_LE(shared_bytes(*p, tile), most_shared);
    EXPECT_LE(p->window, tile.most_window);
    EXPECT_GE(p->planes, 2);
    EXPECT_GE(p->stages, 2);
    const Values in = testing::integers(transposed ? g.small_cells() : g.big_cells(), 1),
                 weight = testing::integers(g.taps(), 2);
    const auto r = testing::reference_of(g);
    const Values exact =
        transposed ? reference::conv_transpose3d(r, in, weight, {}) : reference::conv3d(r, in, weight, {});
    EXPECT_TRUE(by_marches(make_plan(*p, static_cast<int>(between(1, 9))), tile, g, transposed, in, weight) ==
                exact)
        << "big " << g.big_shape() << " weight " << g.weight_shape() << " padding " << g.padding
        << " dilation " << g.dilation << (transposed ? " transposed" : "");
    ++compared;
  }
  EXPECT_GT(compared, 100);
}

// Every step is in exactly one piece, and no piece is much longer than necessary.
TEST(Conv3dRollingPlan, PiecesAreEven) {
  std::mt19937_64 random(6);
  const auto between = [&](int low, int high) {
    return low + static_cast<int>(random() % static_cast<uint64_t>(high - low + 1));
  };
  for (int i = 0; i < 500; ++i) {
    flat::Product p{};
    p.groups = between(1, 3), p.channel_blocks = between(1, 2), p.tiles = between(1, i % 5 ? 60 : 5000);
    p.d.taps = between(2, 7), p.d.base = between(-p.d.taps + 1, 2);
    p.d.cells = between(1, i % 3 ? 30 : 400);
    p.d.in_cells = std::max(1, p.d.cells + p.d.base + between(-2, p.d.taps));
    const int most = i % 2 ? 132 : between(1, 40);
    const Plan plan = make_plan(p, most);
    ASSERT_GE(plan.blocks, 1);
    ASSERT_LE(plan.blocks, most);
    EXPECT_EQ(plan.cuts[0], 0);
    EXPECT_EQ(plan.cuts[plan.blocks], steps_of(p));
    for (int b = 0; b < plan.blocks; ++b) EXPECT_LT(plan.cuts[b], plan.cuts[b + 1]);
    std::vector<int64_t> planes(static_cast<size_t>(plan.blocks));
    int64_t steps = 0;
    for_each_march(plan, [&](int b, const March& m) {
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

TEST(Conv3dRollingPlan, TakesUnitStepsOnly) {
  const auto takes = [](const Triple& stride, const Triple& dilation, int taps) {
    const auto g = detail::conv_transpose3d_geometry("rolling", {1, 8, 6, 6, 6}, {8, 8, 3, 3, 3},
                                                     {.stride = stride, .dilation = dilation});
    return cut_product(g, true, flat::TileShape{256, 1, 16, taps, 8, 1}, most_shared).has_value();
  };
  EXPECT_TRUE(takes(1, 1, 3));
  EXPECT_TRUE(takes(1, {1, 2, 3}, 3));
  EXPECT_FALSE(takes(1, 1, 2));
  EXPECT_FALSE(takes({1, 1, 2}, 1, 3));
  EXPECT_FALSE(takes(1, {2, 1, 1}, 3));
}

}  // namespace
}  // namespace vox::cuda::conv::rolling
