#include <gtest/gtest.h>

#include <voxgrad/cuda/conv3d/dense/weight_grad_plan.h>

#include <array>
#include <random>
#include <vector>

#include "tests/support/conv3d.h"

// How dense/weight_grad.cuh evaluates its plan, on the CPU by loops: runs of steps, tiles and slabs, boxes of
// small, windows of big with zeros outside, and the products of 16 cells at a time.

namespace vox::cuda::conv::dense {
namespace {

using testing::Values;

double& at(Values& v, int64_t i) { return v.at(static_cast<size_t>(i)); }
double at(const Values& v, int64_t i) { return v.at(static_cast<size_t>(i)); }

/// What the copy engine brings: cells `step` apart of a channel, zeros outside. Axes w, h, d, n.
Values copied(const Values& x, int64_t channels, int64_t channel, const std::array<int64_t, 4>& size,
              const std::array<int64_t, 4>& from, const std::array<int64_t, 4>& count,
              const std::array<int64_t, 3>& step) {
  Values box;
  for (int64_t n = 0; n < count[3]; ++n)
    for (int64_t d = 0; d < count[2]; ++d)
      for (int64_t h = 0; h < count[1]; ++h)
        for (int64_t w = 0; w < count[0]; ++w) {
          const std::array<int64_t, 4> cell{from[0] + w * step[0], from[1] + h * step[1],
                                            from[2] + d * step[2], from[3] + n};
          bool inside = channel < channels;
          for (size_t axis = 0; axis < 4; ++axis)
            inside = inside && cell[axis] >= 0 && cell[axis] < size[axis];
          const int64_t plane = (cell[3] * channels + channel) * size[2] + cell[2];
          box.push_back(inside ? at(x, (plane * size[1] + cell[1]) * size[0] + cell[0]) : 0);
        }
  return box;
}

/// Adds a step of a tile to dweight.
void add_step(const WeightGradPlan& p, const Conv3dGeometry& g, int tile, int64_t step, const Values& big,
              const Values& small, Values& dweight) {
  const std::array<int64_t, 4> big_size{g.big.w, g.big.h, g.big.d, g.batch},
      small_size{g.small.w, g.small.h, g.small.d, g.batch};
  std::array<int64_t, 4> box{}, count{}, from{}, extent{p.window[0], p.window[1], p.box[2], p.box[3]};
  for (size_t axis = 0; axis < 4; ++axis)
    box[axis] = step % p.boxes[axis] * p.box[axis], step /= p.boxes[axis], count[axis] = p.box[axis];
  const int first_row = tile / p.window_tiles * p.tile.rows * chunk_channels;
  const int rows_end = std::min(first_row + p.tile.rows * chunk_channels, p.small_channels);
  for (int v = 0; v < p.tile.windows; ++v) {
    int index = tile % p.window_tiles * p.tile.windows + v;
    if (index >= p.windows()) continue;
    const int channel = index % p.chunks * chunk_channels;
    index /= p.chunks;
    const int k[3]{index / p.groups[2] / p.groups[1], index / p.groups[2] % p.groups[1] * p.tile.group_h,
                   index % p.groups[2] * p.tile.group_w};
    for (size_t axis = 0; axis < 3; ++axis) {
      const size_t of = 2 - axis;
      from[axis] = box[axis] * p.stride[of] + k[of] * p.dilation[of] - p.padding[of];
    }
    from[3] = box[3];
    for (int64_t bc = channel; bc < std::min(channel + chunk_channels, p.big_channels); ++bc) {
      const Values a =
          copied(big, g.big_channels, bc, big_size, from, extent, {p.stride[2], p.stride[1], p.stride[0]});
      for (int64_t sc = first_row; sc < rows_end; ++sc) {
        const Values b = copied(small, g.small_channels, sc, small_size, box, count, {1, 1, 1});
        for (int h = 0; h < p.tile.group_h; ++h)
          for (int w = 0; w < p.tile.group_w; ++w) {
            if (k[1] + h >= p.kernel[1] || k[2] + w >= p.kernel[2]) continue;
            const int64_t tap = (k[0] * p.kernel[1] + k[1] + h) * p.kernel[2] + k[2] + w;
            for (int slice = 0; slice < box_cells / 16; ++slice)
              for (int i = 0; i < 16; ++i)
                at(dweight, (sc * g.big_channels + bc) * p.taps + tap) +=
                    at(a, p.slice_cell[slice] + h * p.tap_cell[1] + w * p.tap_cell[0] + i) *
                    at(b, slice * 16 + i);
          }
      }
    }
  }
}

Values evaluated(const WeightGradPlan& p, const Conv3dGeometry& g, const Values& big, const Values& small) {
  Values dweight(static_cast<size_t>(p.elements()));
  std::vector<int> slabs(static_cast<size_t>(p.tiles()));
  for (int block = 0; block < p.blocks; ++block) {
    EXPECT_LT(p.begin_of(block), p.begin_of(block + 1));
    for (int64_t step = p.begin_of(block); step < p.begin_of(block + 1); ++step) {
      const auto tile = static_cast<int>(step / p.steps);
      int& known =
          slabs.at(static_cast<size_t>(tile));  // a block's slab is the next one, or that of its step before
      const int slab = block - p.first_block(tile);
      EXPECT_TRUE(slab == known || slab == known - 1);
      known = slab + 1;
      add_step(p, g, tile, step % p.steps, big, small, dweight);
    }
  }
  EXPECT_EQ(p.begin_of(p.blocks), p.tiles() * p.steps);
  for (int tile = 0; tile < p.tiles(); ++tile) {
    EXPECT_EQ(slabs.at(static_cast<size_t>(tile)), p.slabs_of(tile));
    EXPECT_LE(p.slabs_of(tile), p.slabs);
  }
  return dweight;
}

Values defined(const Conv3dGeometry& g, const Values& big, const Values& small) {
  Values dweight(static_cast<size_t>(g.small_channels * g.big_channels * g.taps()));
  for (int64_t n = 0; n < g.batch; ++n)
    for (int64_t i = 0; i < g.small_cells(); ++i)
      for (int64_t k = 0; k < g.taps(); ++k) {
        const Triple cell{i / g.small.h / g.small.w, i / g.small.w % g.small.h, i % g.small.w},
            tap{k / g.kernel.h / g.kernel.w, k / g.kernel.w % g.kernel.h, k % g.kernel.w};
        Triple o;
        bool inside = true;
        for (int64_t axis = 0; axis < 3; ++axis) {
          o[axis] = cell[axis] * g.stride[axis] - g.padding[axis] + tap[axis] * g.dilation[axis];
          inside = inside && o[axis] >= 0 && o[axis] < g.big[axis];
        }
        if (!inside) continue;
        const int64_t fine = (o.d * g.big.h + o.h) * g.big.w + o.w;
        for (int64_t sc = 0; sc < g.small_channels; ++sc)
          for (int64_t bc = 0; bc < g.big_channels; ++bc)
            at(dweight, (sc * g.big_channels + bc) * g.taps() + k) +=
                at(small, (n * g.small_channels + sc) * g.small_cells() + i) *
                at(big, (n * g.big_channels + bc) * g.big_cells() + fine);
      }
  return dweight;
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
  std::mt19937 random(1);
  const auto values = [&](const Shape& shape) {
    Values v(static_cast<size_t>(checked_numel("plan", shape)));
    for (double& x : v) x = std::uniform_int_distribution(-3, 3)(random);
    return v;
  };
  int uneven = 0;  // some block does a part of one tile and a part of another
  for (const Case& c : cases) {
    const Conv3dGeometry g = detail::conv_transpose3d_geometry("plan", c.input, c.weight, c.options);
    for (const int multiprocessors : {1, 5, 132}) {
      const auto p = make_weight_grad_plan(g, multiprocessors);
      ASSERT_TRUE(p) << c.weight;
      EXPECT_EQ(p->tile.group_taps(), c.group_taps) << c.input << c.weight;
      EXPECT_LE(p->stages * p->stage_bytes, 200 * 1024);
      EXPECT_GE(p->stages, 3);
      const Values big = values(g.big_shape()), small = values(g.small_shape());
      EXPECT_EQ(evaluated(*p, g, big, small), defined(g, big, small)) << c.input << c.weight;
      uneven += p->blocks % p->tiles() != 0 && p->tiles() % p->blocks != 0;
    }
  }
  EXPECT_GT(uneven, 0);
}

TEST(DenseWeightGradPlan, RefusesWhatItCannotDo) {
  const auto plan = [](const Shape& input, const Shape& weight, const ConvTranspose3dOptions& options) {
    return make_weight_grad_plan(detail::conv_transpose3d_geometry("plan", input, weight, options), 132);
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
