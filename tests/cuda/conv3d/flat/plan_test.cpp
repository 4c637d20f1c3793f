#include <gtest/gtest.h>

#include <voxgrad/cuda/conv3d/flat/plan.h>

#include <algorithm>
#include <random>

#include "tests/support/conv3d.h"

// The index arithmetic of flat on the CPU: windows of the flat plane, shifts, planes and groups of taps,
// evaluated by loops. So the kernel's plan is tested on machines without a GPU.

namespace vox::cuda::conv::flat {
namespace {

using testing::Values;

constexpr int64_t most_shared = 226 * 1024;

struct Place {
  int image, h, w;
};
Place place_of(int flat, const Product& p) {
  const int row = p.pitch_w.quotient(flat), image = p.pitch_h.quotient(row);
  return {image, row - image * p.pitch_h.divisor, flat - row * p.pitch_w.divisor};
}

/// A channel of one plane, as the window that begins at position `flat`.
Values window_of(const Values& plane, int flat, const Product& p) {
  Values window(static_cast<size_t>(p.window), 0.0);
  for (int i = 0; i < p.window; ++i) {
    const Place at = place_of(flat + i, p);
    const int h = at.h + p.h.base, w = at.w + p.w.base;
    if (at.image == 0 && h >= 0 && h < p.h.in_cells && w >= 0 && w < p.w.in_cells)
      window[static_cast<size_t>(i)] = plane[static_cast<size_t>(h * p.w.in_cells + w)];
  }
  return window;
}

/// The product of one image, one input channel and one output channel, added to `out`.
void multiply(const Product& p, const TileShape& t, const Conv3dGeometry& g, const Values& in,
              const Values& weight, Values& out) {
  const int step = p.d.tap_step, in_plane = p.h.in_cells * p.w.in_cells;
  for (int block = 0; block < p.depth_blocks; ++block)
    for (int tile = 0; tile < p.tiles; ++tile) {
      const int first_depth = block % step + block / step * t.depths * step;
      for (int group = 0; group < p.depth_groups; ++group)
        for (int rows = 0; rows < p.row_groups; ++rows)
          for (int q = 0; q < t.depths + t.taps_d - 1; ++q) {
            const int z = first_depth + (group * t.taps_d + q) * step + p.d.base;
            if (z < 0 || z >= p.d.in_cells) continue;
            const Values plane(in.begin() + z * in_plane, in.begin() + (z + 1) * in_plane);
            const Values window = window_of(plane, tile * t.positions + rows * p.rows * p.row_shift, p);
            for (int th = rows * p.rows; th < std::min((rows + 1) * p.rows, p.h.taps); ++th)
              for (int tw = 0; tw < p.w.taps; ++tw)
                for (int j = std::max(0, q - t.taps_d + 1); j <= std::min(q, t.depths - 1); ++j) {
                  const int td = group * t.taps_d + q - j, depth = first_depth + j * step;
                  if (depth >= p.d.cells) continue;
                  const int shift = (th - rows * p.rows) * p.row_shift + tw * p.column_shift;
                  const int64_t tap =
                      ((p.d.first_tap + td * p.d.tap_pace) * g.kernel.h + p.h.first_tap + th * p.h.tap_pace) *
                          g.kernel.w +
                      p.w.first_tap + tw * p.w.tap_pace;
                  for (int m = 0; m < t.positions; ++m) {
                    const Place at = place_of(tile * t.positions + m, p);
                    if (at.image > 0 || at.h >= p.h.cells || at.w >= p.w.cells) continue;
                    const int64_t d = depth * p.d.out_step + p.d.out_base,
                                  h = at.h * p.h.out_step + p.h.out_base,
                                  w = at.w * p.w.out_step + p.w.out_base;
                    out[static_cast<size_t>((d * p.out_h + h) * p.out_w + w)] +=
                        window.at(static_cast<size_t>(m + shift)) * weight[static_cast<size_t>(tap)];
                  }
                }
          }
    }
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

Values by_products(const Conv3dGeometry& g, bool transposed, const Values& in, const Values& weight,
                   int depths, bool of_16_bits) {
  Values out(static_cast<size_t>(transposed ? g.big_cells() : g.small_cells()), 0.0);
  const Triple phases = transposed ? g.stride : Triple(1);
  for (int64_t d = 0; d < std::min(phases.d, g.big.d); ++d)
    for (int64_t h = 0; h < std::min(phases.h, g.big.h); ++h)
      for (int64_t w = 0; w < std::min(phases.w, g.big.w); ++w) {
        const Axes axes = axes_of(g, transposed, {d, h, w});
        if (axes.dead()) continue;
        const int taps_d = axes.d.taps % 3 == 0 ? 3 : axes.d.taps % 2 == 0 ? 2 : 1;
        const TileShape tile{256, depths, 16, taps_d, 8, 1, of_16_bits};
        const auto p = cut_product(g, transposed, axes, tile, most_shared);
        EXPECT_TRUE(p.has_value());
        if (!p) continue;
        EXPECT_LE(shared_bytes(*p, tile), most_shared);
        EXPECT_LE(p->window, tile.most_window);
        if (rows_are_words(*p)) {
          EXPECT_TRUE(has_words(*p));
        }
        multiply(*p, tile, g, in, weight, out);
      }
  return out;
}

TEST(Conv3dFlatPlan, EqualsTheReference) {
  std::mt19937_64 random(5);
  const auto between = [&](int64_t low, int64_t high) {
    return low + static_cast<int64_t>(random() % static_cast<uint64_t>(high - low + 1));
  };
  int compared = 0;
  for (int i = 0; i < 200; ++i) {
    const bool transposed = i % 2 == 0, long_rows = i % 5 == 0;
    const Triple kernel{between(1, 6), between(1, 4), between(1, 4)},
        dilation{between(1, 3), between(1, 3), 1}, padding{between(0, 2), between(0, 2), between(0, 2)};
    const Triple stride = transposed ? Triple{between(1, 2), between(1, 2), between(1, 3)} : Triple(1);
    const Shape input{1, 1, between(1, 9), between(1, 5), long_rows ? between(150, 320) : between(1, 9)};
    Conv3dGeometry g;
    try {
      g = detail::conv_transpose3d_geometry("flat", input, {1, 1, kernel.d, kernel.h, kernel.w},
                                            {stride, padding, 0, 1, dilation});
    } catch (const ShapeError&) {  // padding crops all outputs
      continue;
    }
    const Values in = testing::integers(transposed ? g.small_cells() : g.big_cells(), 1),
                 weight = testing::integers(g.taps(), 2);
    const auto r = testing::reference_of(g);
    const Values expected =
        transposed ? reference::conv_transpose3d(r, in, weight, {}) : reference::conv3d(r, in, weight, {});
    EXPECT_TRUE(by_products(g, transposed, in, weight, static_cast<int>(between(1, 7)), i % 3 == 0) ==
                expected)
        << "big " << g.big_shape() << " small " << g.small_shape() << " kernel " << kernel << " stride "
        << stride << " padding " << padding << " dilation " << dilation << " transposed " << transposed;
    ++compared;
  }
  EXPECT_GT(compared, 150);
}

TEST(Conv3dFlatPlan, LongEvenRowsOf16BitsAreWords) {
  int words = 0;
  for (const int64_t width : {4, 15, 16, 17, 64, 66})
    for (const int64_t taps : {1, 2, 3, 4, 7})
      for (const int64_t padding : {0, 1, 2, 5})
        for (const bool transposed : {false, true}) {
          if (width + 2 * padding < taps || (transposed && width + taps - 1 <= 2 * padding)) continue;
          const Conv3dGeometry g =
              transposed ? detail::conv_transpose3d_geometry("flat", {2, 8, 3, 5, width}, {8, 8, 1, 3, taps},
                                                             {.padding = {0, 1, padding}})
                         : detail::conv3d_geometry("flat", {2, 8, 3, 5, width}, {8, 8, 1, 3, taps},
                                                   {.padding = {0, 1, padding}});
          const Axes axes = axes_of(g, transposed, Triple(0));
          const auto p = cut_product(g, transposed, axes, {256, 6, 16, 1, 16, 1, true}, most_shared);
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

// Where taps are multiplied in pairs, weights take half as much again. A chunk of taps is even, unless one
// more tap does not fit.
TEST(Conv3dFlatPlan, ChunksOfPairs) {
  for (const int64_t kernel : {3, 5, 7}) {
    for (const int channels : {16, 32, 64}) {
      const TileShape tile{256, 2, channels, 3, 8, 1, false, true};
      const Conv3dGeometry g = detail::conv_transpose3d_geometry("pairs", {2, 32, 16, 32, 40},
                                                                 {32, channels, 3, kernel, kernel}, {});
      const auto p = cut_product(g, true, axes_of(g, true, 0), tile, most_shared);
      ASSERT_TRUE(p);
      EXPECT_EQ(tap_bytes(tile), 3 * channels * 48);
      EXPECT_LE(shared_bytes(*p, tile), most_shared);
      Product longer = *p;
      ++longer.chunk;
      EXPECT_TRUE(p->chunk == p->rows * p->w.taps || p->chunk % 2 == 0 ||
                  shared_bytes(longer, tile) > most_shared)
          << kernel << ' ' << channels << ' ' << p->chunk;
    }
  }
}

// The kernel numbers positions in 32 bits, including those that the last row of taps reads beyond the plane.
TEST(Conv3dFlatPlan, PositionsFit32Bits) {
  for (const int64_t dilation : {60'000, 65'000, 65'600, 80'000, 120'000}) {
    const auto g =
        detail::conv3d_geometry("flat", {1, 8, 1, 16, 32768}, {16, 8, 1, 2, 1},
                                {.padding = Triple(0, dilation / 2, 0), .dilation = Triple(1, dilation, 1)});
    const Axes axes = axes_of(g, false, Triple(0));
    const TileShape tile{256, 6, 16, 1, 8, 1};
    const auto p = cut_product(g, false, axes, tile, most_shared);
    EXPECT_EQ(p.has_value(), dilation <= 65'000) << dilation;
    if (!p) continue;
    const int64_t last = int64_t{p->tiles} * tile.positions + tile.most_window +
                         int64_t{p->row_groups - 1} * p->rows * p->row_shift;
    EXPECT_LT(last, int64_t{1} << 31) << dilation;
  }
}

TEST(Conv3dFlatPlan, DivisorsAreExact) {
  std::mt19937_64 random(6);
  for (const int64_t d : {1, 2, 3, 7, 66, 98, 255, 256, 65535, 65537, 2147483647})
    for (const int64_t n : {int64_t{0}, d - 1, d, 2 * d - 1, int64_t{2147483647} / d * d - 1,
                            int64_t{2147483647}, static_cast<int64_t>(random() >> 33)}) {
      if (n < 0 || n > 2147483647) continue;
      EXPECT_EQ(divisor_of(d).quotient(static_cast<int>(n)), n / d) << n << " / " << d;
    }
}

}  // namespace
}  // namespace vox::cuda::conv::flat
