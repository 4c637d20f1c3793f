#include <voxgrad/cuda/conv3d/dense/weight_grad_plan.h>

#include <array>
#include <vector>

#include "tests/cuda/conv3d/evaluate.h"

namespace vox::cuda::conv::dense {
namespace {

using testing::Evaluation;
using testing::outside;

/// What TMA loads of a tensor's channel: the numbers of the elements of a box of cells (w, h, d, batch),
/// `step` cells apart.
template <class Element>
std::vector<int64_t> loaded(const std::array<int64_t, 4>& from, const std::array<int, 4>& box,
                            const int (&step)[3], Element element) {
  std::vector<int64_t> numbers;
  for (int i = 0; i < box[0] * box[1] * box[2] * box[3]; ++i) {
    const auto [n, d, h, w] = digits(i, {box[2], box[1], box[0]});
    const int64_t image = from[3] + n;
    numbers.push_back(element(image, {from[2] + d * step[0], from[1] + h * step[1], from[0] + w * step[2]}));
  }
  return numbers;
}

/// The products of a step of a tile, 16 cells at a time. With `stores`, its elements of dweight are stored.
void add_step(Evaluation& products, const WeightGradPlan& p, const Conv3dGeometry& g, int tile, int64_t step,
              bool stores) {
  const auto [in, id, ih, iw] = digits(step, {p.boxes[2], p.boxes[1], p.boxes[0]});
  const std::array<int64_t, 4> at{iw * p.box[0], ih * p.box[1], id * p.box[2], in * p.box[3]};
  const int first_row = tile / p.window_tiles * p.tile.rows * chunk_channels;
  const int rows_end = std::min(first_row + p.tile.rows * chunk_channels, p.small_channels);
  const auto of_channel = [&](int64_t channel, auto element) {
    return [=, &products, &g](int64_t n, const Evaluation::Cell& cell) {
      return n < g.batch ? (products.*element)(n, channel, cell) : outside;
    };
  };
  std::vector<std::vector<int64_t>> rows;  // of small
  for (int sc = first_row; sc < rows_end; ++sc)
    rows.push_back(
        loaded(at, {p.box[0], p.box[1], p.box[2], p.box[3]}, {1, 1, 1}, of_channel(sc, &Evaluation::small)));
  for (int v = 0; v < p.tile.windows; ++v) {
    const int index = tile % p.window_tiles * p.tile.windows + v;
    if (index >= p.windows()) continue;
    const Window window = window_at(p, index);
    const std::array<int64_t, 4> begin{at[0] * p.stride[2] + window.w, at[1] * p.stride[1] + window.h,
                                       at[2] * p.stride[0] + window.d, at[3]};
    for (int bc = window.first_channel; bc < std::min(window.first_channel + chunk_channels, p.big_channels);
         ++bc) {
      const auto a = loaded(begin, {p.window[0], p.window[1], p.box[2], p.box[3]}, p.stride,
                            of_channel(bc, &Evaluation::big));
      for (int sc = first_row; sc < rows_end; ++sc) {
        const auto& b = rows[static_cast<size_t>(sc - first_row)];
        for (int part = 0; part < p.tile.group_taps(); ++part) {
          const auto [h, w] = digits(part, {p.tile.group_w});
          if (window.k_h + h >= p.kernel[1] || window.k_w + w >= p.kernel[2]) continue;
          const int64_t weight =
              products.weight(sc, bc, products.tap({window.k_d, window.k_h + h, window.k_w + w}));
          if (stores) products.store(weight);
          const int shift = h * p.tap_cell[1] + w * p.tap_cell[0];
          for (int i = 0; i < box_cells; ++i)
            products.multiply(a.at(static_cast<size_t>(p.slice_cell[i / 16] + shift + i % 16)),
                              b.at(static_cast<size_t>(i)), weight);
        }
      }
    }
  }
}

/// As dense/weight_grad.cuh: runs of steps, tiles and splits.
void walk(Evaluation& products, const WeightGradPlan& p, const Conv3dGeometry& g) {
  std::vector<int> splits(static_cast<size_t>(p.tiles()));
  for (int block = 0; block < p.blocks; ++block) {
    EXPECT_LT(p.begin_of(block), p.begin_of(block + 1));
    for (int64_t step = p.begin_of(block); step < p.begin_of(block + 1); ++step) {
      const auto tile = static_cast<int>(step / p.steps);
      int& known = splits.at(
          static_cast<size_t>(tile));  // a block's split is the next one, or that of its step before
      const int split = block - p.first_block(tile);
      EXPECT_TRUE(split == known || split == known - 1);
      known = split + 1;
      add_step(products, p, g, tile, step % p.steps, step % p.steps == 0);
    }
  }
  EXPECT_EQ(p.begin_of(p.blocks), p.tiles() * p.steps);
  for (int tile = 0; tile < p.tiles(); ++tile) {
    EXPECT_EQ(splits.at(static_cast<size_t>(tile)), p.splits_of(tile));
    EXPECT_LE(p.splits_of(tile), p.splits);
  }
}

TEST(DenseWeightGradPlan, EvaluatesTheDefinition) {
  struct Case {
    Shape input, weight;
    ConvTranspose3dOptions options;
    int group_taps;  // of the tile that is chosen
  };
  const Case cases[]{
      {{1, 2, 4, 4, 4}, {2, 3, 3, 3, 3}, {.padding = 1}, 1},
      {{3, 3, 2, 4, 4}, {3, 2, 3, 3, 3}, {.padding = 1}, 1},
      {{2, 3, 3, 4, 16}, {3, 2, 3, 3, 3}, {.padding = 1}, 9},
      {{1, 2, 2, 8, 48}, {2, 2, 2, 3, 5}, {.padding = {0, 1, 2}}, 9},
      {{1, 2, 2, 4, 16}, {2, 2, 1, 3, 3}, {.dilation = {1, 2, 3}}, 9},
      {{1, 65, 2, 4, 16}, {65, 2, 1, 1, 3}, {}, 3},
      {{2, 2, 4, 4, 4}, {2, 2, 3, 3, 3}, {.stride = 2, .padding = 1, .output_padding = 1}, 1},
      {{5, 2, 2, 2, 4}, {2, 66, 2, 4, 1}, {.stride = {1, 2, 3}, .dilation = {2, 1, 1}}, 1},
      {{1, 64, 1, 4, 48}, {64, 130, 3, 3, 3}, {.padding = 1}, 9},
      {{1, 2, 2, 8, 48}, {2, 2, 3, 3, 3}, {.padding = 1}, 9},
  };
  int uneven = 0;  // some block does a part of one tile and a part of another
  for (const Case& c : cases) {
    const Conv3dGeometry g = testing::geometry(c.input, c.weight, c.options);
    for (const int multiprocessors : {1, 5, 132}) {
      const auto p = make_weight_grad_plan(g, testing::with_multiprocessors(multiprocessors));
      ASSERT_TRUE(p) << c.weight;
      EXPECT_EQ(p->tile.group_taps(), c.group_taps) << c.input << c.weight;
      EXPECT_LE(p->stages * p->stage_bytes, 200 * 1024);
      EXPECT_GE(p->stages, 3);
      testing::evaluate(g, Conv3dPass::weight_grad, [&](Evaluation& e) { walk(e, *p, g); });
      uneven += p->blocks % p->tiles() != 0 && p->tiles() % p->blocks != 0;
    }
  }
  EXPECT_GT(uneven, 0);
}

TEST(DenseWeightGradPlan, RefusesWhatItCannotDo) {
  const auto plan = [](const Shape& input, const Shape& weight, const ConvTranspose3dOptions& options) {
    return make_weight_grad_plan(testing::geometry(input, weight, options), h200);
  };
  EXPECT_TRUE(plan({1, 64, 4, 4, 4}, {64, 64, 3, 3, 3}, {}));
  EXPECT_FALSE(plan({1, 64, 4, 4, 4}, {64, 32, 3, 3, 3}, {.groups = 2}));
  EXPECT_FALSE(plan({0, 64, 4, 4, 4}, {64, 64, 3, 3, 3}, {}));
  EXPECT_FALSE(plan({1, 64, 4, 5, 6}, {64, 64, 3, 3, 3}, {}));  // boxes would end outside
  EXPECT_FALSE(plan({1, 64, 4, 4, 4}, {64, 64, 3, 3, 3}, {.stride = {1, 1, 9}}));
  EXPECT_FALSE(plan({1, 64, 4, 4, 4}, {64, 64, 9, 9, 9}, {}));
  EXPECT_FALSE(plan({1, 64, 300, 400, 400}, {64, 64, 1, 1, 1}, {}));
}

}  // namespace
}  // namespace vox::cuda::conv::dense
