#include <voxgrad/cuda/conv3d/flat/plan.h>

#include "tests/cuda/conv3d/evaluate.h"

// The index arithmetic of flat on the CPU: windows of the flat plane, shifts, planes and groups of taps,
// evaluated by loops. So the kernel's plan is tested on machines without a GPU.

namespace vox::cuda::conv::flat {
namespace {

using Numbers = Ints;  // of elements

constexpr int64_t most_shared = 226 * 1024;

/// A job of a product as in kernel.cuh.
struct Walk {
  const Product& p;
  const TileShape& t;
  const Conv3dGeometry& g;
  Evaluation& products;
  Job job;

  int first_position() const { return job.tile * t.positions; }

  /// A channel of one plane, as the window that begins at position `flat`.
  Numbers window_of(int in, int z, int flat) const {
    Numbers window(static_cast<size_t>(p.window), outside);
    for (int i = 0; i < p.window; ++i) {
      const Place at = place_of(flat + i, p);
      if (at.image < p.batch)
        window[static_cast<size_t>(i)] =
            products.input(at.image, job.group * p.in_per_group + in, {z, at.h + p.h.base, at.w + p.w.base});
    }
    return window;
  }

  /// The outputs of a tile in one depth and channel; `outside` where a sum is dropped.
  Numbers outputs_of(int j, int out) const {
    Numbers outputs(static_cast<size_t>(t.positions), outside);
    for (int m = 0; m < t.positions; ++m) {
      const Place at = place_of(first_position() + m, p);
      if (at.image >= p.batch || at.h >= p.h.cells || at.w >= p.w.cells) continue;
      outputs[static_cast<size_t>(m)] = products.output(at.image, job.group * p.out_per_group + out,
                                                        {job.first_depth + j * p.d.tap_step, at.h, at.w});
      products.store(outputs[static_cast<size_t>(m)]);
    }
    return outputs;
  }

  void multiply_plane(int in, int depth_group, int rows, int q, int z, const std::vector<Numbers>& outputs,
                      int first_out) const {
    const Numbers window = window_of(in, z, first_position() + rows * p.rows * p.row_shift);
    for (int th = rows * p.rows; th < std::min((rows + 1) * p.rows, p.h.taps); ++th)
      for (int tw = 0; tw < p.w.taps; ++tw)
        for (int j = std::max(0, q - t.taps_d + 1); j <= std::min(q, t.depths - 1); ++j) {
          if (j >= job.depths) continue;
          const int shift = (th - rows * p.rows) * p.row_shift + tw * p.column_shift;
          const int64_t tap = kernel_tap(p, g.kernel.h, g.kernel.w, depth_group * t.taps_d + q - j, th, tw);
          for (size_t out = 0; out * static_cast<size_t>(t.depths) < outputs.size(); ++out) {
            const int64_t weight = products.weight(job.group, in, first_out + static_cast<int>(out), tap);
            const Numbers& to = outputs[out * static_cast<size_t>(t.depths) + static_cast<size_t>(j)];
            for (size_t m = 0; m < to.size(); ++m)
              products.add(to[m], window.at(m + static_cast<size_t>(shift)), weight);
          }
        }
  }

  void run() const {
    const int first_out = job.channel_block * t.channels,
              outs = std::min(t.channels, p.out_per_group - first_out);
    std::vector<Numbers> outputs;
    for (int out = 0; out < outs; ++out)
      for (int j = 0; j < t.depths; ++j)
        outputs.push_back(j < job.depths ? outputs_of(j, first_out + out) : Numbers{});
    for (int k_block = 0; k_block < p.k_blocks; ++k_block)
      for (int depth_group = 0; depth_group < p.depth_groups; ++depth_group) {
        const Planes planes = planes_of(job, depth_group, t.taps_d, p);
        for (int rows = 0; rows < p.row_groups; ++rows)
          for (int q = planes.first; q < planes.end; ++q)
            for (int in = k_block * t.k_block_channels;
                 in < std::min((k_block + 1) * t.k_block_channels, p.in_per_group); ++in)
              multiply_plane(in, depth_group, rows, q, planes.cell + q * p.d.tap_step, outputs, first_out);
      }
  }
};

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

void expect_definition(const Conv3dGeometry& g, bool transposed, int depths, bool of_16_bits) {
  testing::evaluate(g, transposed, [&](Evaluation& products) {
    const Axes axes = *axes_of(g, transposed);
    const int taps_d = axes.d.taps % 3 == 0 ? 3 : axes.d.taps % 2 == 0 ? 2 : 1;
    const TileShape tile{256, depths, 16, taps_d, 8, of_16_bits};
    const auto p = cut_product(g, transposed, axes, tile, most_shared);
    ASSERT_TRUE(p.has_value());
    EXPECT_LE(shared_bytes(*p, tile), most_shared);
    EXPECT_LE(p->window, tile.most_window);
    if (rows_are_words(*p)) {
      EXPECT_TRUE(has_words(*p));
    }
    for (int64_t i = 0; i < p->jobs(); ++i) Walk{*p, tile, g, products, job_at(i, tile.depths, *p)}.run();
  });
}

TEST(Conv3dFlatPlan, EqualsTheReference) {
  Random random{std::mt19937_64(5)};
  int compared = 0;
  for (int i = 0; i < 300; ++i) {
    const bool transposed = i % 2 == 0, long_rows = i % 5 == 0, channels = i % 7 == 0;
    const Triple kernel{random(1, 6), random(1, 4), random(1, 4)}, dilation{random(1, 3), random(1, 3), 1};
    const int64_t groups = channels ? random(1, 2) : 1, most = channels ? 18 : 1;
    const Conv3dOptions options{.padding = random.triple(0, 2), .dilation = dilation, .groups = groups};
    const Shape input{channels ? 2 : 1, groups * random(1, most), random(1, channels ? 3 : 9), random(1, 5),
                      long_rows && !channels ? random(150, 320) : random(1, 9)};
    const auto g = geometry(transposed, input, groups * random(1, most), kernel, options);
    if (!g || testing::products_of(*g) > 300'000) continue;
    expect_definition(*g, transposed, static_cast<int>(random(1, 7)), i % 3 == 0);
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
              *geometry(transposed, {2, 8, 3, 5, width}, 8, {1, 3, taps}, {.padding = {0, 1, padding}});
          const Axes axes = *axes_of(g, transposed);
          const auto p = cut_product(g, transposed, axes, {256, 6, 16, 1, 16, true}, most_shared);
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
      const TileShape tile{256, 2, channels, 3, 8, false, true};
      const Conv3dGeometry g = testing::geometry({2, 32, 16, 32, 40}, {32, channels, 3, kernel, kernel}, {});
      const auto p = cut_product(g, true, *axes_of(g, true), tile, most_shared);
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
    const Axes axes = *axes_of(g, false);
    const TileShape tile{256, 6, 16, 1, 8};
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
