#include <voxgrad/cuda/conv3d/call.h>
#include <voxgrad/cuda/conv3d/patches/plan.h>

#include "tests/cuda/conv3d/evaluate.h"

namespace vox::cuda::conv::patches {
namespace {

/// Machines, and parts of a number.
constexpr std::pair<Machine, int> kinds[]{{since_sm_80, 1}, {since_sm_80, 2}, {h200, 1}, {h200, 3}};

/// From `in` to `out` channels, with a kernel that equals its stride.
Conv3dGeometry patches(int64_t batch, int64_t in, int64_t out, const Triple& cells, const Triple& kernel) {
  return geometry({batch, in, cells.d, cells.h, cells.w}, {in, out, kernel.d, kernel.h, kernel.w},
                  {.stride = kernel});
}

bool taken(const Conv3dGeometry& g) {
  EXPECT_EQ(make_plan(g, false, 1, since_sm_80).has_value(), make_plan(g, true, 3, since_sm_80).has_value());
  EXPECT_EQ(make_plan(g, false, 1, since_sm_80).has_value(), make_weight_grad_plan(g, 1).has_value());
  return make_plan(g, false, 1, since_sm_80).has_value();
}

TEST(Conv3dPatchesPlan, TakesKernelsThatEqualTheirStride) {
  EXPECT_TRUE(taken(patches(2, 64, 32, {3, 5, 8}, 2)));
  EXPECT_TRUE(taken(patches(1, 7, 3, {1, 1, 24}, {3, 1, 2})));
  EXPECT_FALSE(taken(patches(1, 7, 3, {2, 2, 12}, 2)));  // rows of 12 cells
  EXPECT_FALSE(taken(patches(1, 7, 3, {2, 2, 8}, 3)));
  // Without taps along h or d, rows are joined.
  EXPECT_TRUE(taken(patches(1, 32, 2, {2, 2, 2}, 1)));
  EXPECT_FALSE(taken(patches(1, 32, 2, {3, 3, 3}, 1)));
  EXPECT_TRUE(taken(patches(1, 32, 2, {3, 2, 4}, {2, 1, 2})));
  EXPECT_FALSE(taken(patches(1, 32, 2, {2, 3, 4}, {2, 1, 1})));
  EXPECT_FALSE(taken(patches(1, 32, 2, {2, 2, 4}, {1, 2, 1})));
  EXPECT_FALSE(taken(patches(0, 32, 2, {2, 2, 8}, 2)));

  const Shape input{1, 4, 2, 2, 8}, weight{4, 4, 2, 2, 2};
  EXPECT_FALSE(taken(geometry(input, weight, {})));
  EXPECT_FALSE(taken(geometry(input, weight, {.stride = 2, .padding = {0, 1, 0}})));
  EXPECT_FALSE(taken(geometry(input, weight, {.stride = 2, .output_padding = {1, 0, 0}})));
  EXPECT_FALSE(taken(geometry(input, weight, {.stride = 2, .dilation = {1, 1, 2}})));
  EXPECT_FALSE(taken(geometry(input, weight, {.stride = 2, .groups = 2})));
  EXPECT_TRUE(taken(geometry(input, {4, 4, 2, 1, 2}, {.stride = {2, 1, 2}, .dilation = {1, 3, 1}})));
}

std::vector<Conv3dGeometry> cases() {
  std::vector<Conv3dGeometry> all;
  for (const Triple& kernel :
       {Triple(1), {1, 1, 2}, {2, 1, 1}, {2, 2, 1}, {1, 2, 2}, {2, 1, 2}, {2, 2, 2}, {3, 2, 1}})
    for (const Triple& cells : {Triple(1, 1, 8), {3, 5, 8}, {2, 3, 24}})
      all.push_back(patches(3, 3, 5, cells, kernel));
  return all;
}

// Every row of big meets every channel of small, at the cells of each chunk.
TEST(Conv3dPatchesPlan, EvaluatesTheDefinition) {
  for (const Conv3dGeometry& g : cases()) {
    const auto planned = make_plan(g, false, 1, since_sm_80);
    ASSERT_TRUE(planned);
    const Grids& p = planned->plan.grids;
    const auto walk = [&](Evaluation& e) {
      for (int number = 0; number < p.chunks; ++number)
        for (int i = 0; i < chunk * p.kernel_w * p.big_rows * p.small_rows; ++i) {
          const auto [channel, row, cell, tap] = digits(i, {p.big_rows, chunk, p.kernel_w});
          const Place place = place_of(p, number);
          e.multiply(place.big + p.big_row(row) + cell * p.kernel_w + tap,
                     place.small + channel * p.small_cells + cell,
                     (int64_t{channel} * p.big_rows + row) * p.kernel_w + tap);
        }
      e.store_all();
    };
    for (const auto pass : {Conv3dPass::conv3d, Conv3dPass::conv_transpose3d, Conv3dPass::weight_grad})
      testing::evaluate(g, pass, walk);
    EXPECT_FALSE(place_of(p, p.chunks).exists);
  }
}

TEST(Conv3dPatchesPlan, OwnsAllRowsWithinItsMemory) {
  for (const int64_t in : {1, 2, 16, 17, 32, 33, 64, 100, 128, 256, 400})
    for (const int64_t out : {1, 2, 8, 20, 33, 64, 128, 300})
      for (const Triple& kernel : {Triple(1), {2, 2, 1}, {1, 1, 2}, {2, 2, 2}})
        for (const bool transposed : {false, true})
          for (const auto& [machine, parts] : kinds) {
            const auto planned =
                make_plan(patches(2, in, out, {4, 4, 16}, kernel), transposed, parts, machine);
            if (!planned) continue;
            const Plan& p = planned->plan;
            EXPECT_LE(planned->shared_bytes, machine.wgmma ? 200 << 10 : any_block_shared_bytes);
            EXPECT_EQ(p.k_steps % planned->ahead, 0);
            EXPECT_GE(p.k_steps * p.in_rows_of_step, p.in_rows);
            EXPECT_TRUE(!planned->resident || p.k_steps == planned->ahead);
            EXPECT_EQ(p.m_tiles % planned->m_step, 0);
            EXPECT_GE(p.m_blocks * p.m_tiles * p.out_rows_of_tile, p.out_rows);
            EXPECT_LT((p.m_blocks - 1) * p.m_tiles * p.out_rows_of_tile, p.out_rows);
            EXPECT_EQ(p.parts, planned->resident ? 1 : p.m_tiles / planned->m_step);
            EXPECT_LE(planned->warps, most_warps(planned->m_step, planned->ahead, parts));
            EXPECT_GE(planned->warps, 1);
            EXPECT_EQ(planned->warps % p.parts, 0);
          }
}

TEST(Conv3dPatchesPlan, AWeightGradientHasSplitsOfEqualWork) {
  for (const int64_t small : {1, 2, 9, 20, 64, 256})
    for (const int64_t big : {1, 3, 32, 70, 128, 1000})
      for (const Triple& kernel : {Triple(1), {2, 2, 1}, {2, 2, 2}})
        for (const auto& [cells, parts] : {std::pair{8, 1}, {24, 3}, {64, 1}, {64, 2}}) {
          const auto planned =
              make_weight_grad_plan(patches(2, small, big, {cells, cells, cells}, kernel), parts);
          ASSERT_TRUE(planned);
          const WeightGradPlan& p = planned->plan;
          EXPECT_GE(p.small_blocks * planned->n_tiles * 8, small);
          EXPECT_GE(p.big_blocks * p.row_warps * row_groups(parts) * 8, p.grids.big_rows);
          EXPECT_EQ(block_warps % p.row_warps, 0);
          EXPECT_GE(int64_t{p.steps} * 4, p.grids.chunks);
          EXPECT_GE(p.splits, 1);
          EXPECT_TRUE(p.splits == 1 || p.splits * p.split_floats * 4 <= int64_t{32} << 20);
          EXPECT_LE(planned->shared_bytes, any_block_shared_bytes);
        }
}

}  // namespace
}  // namespace vox::cuda::conv::patches
