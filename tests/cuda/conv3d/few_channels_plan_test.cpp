#include <gtest/gtest.h>

#include <voxgrad/cuda/conv3d/few_channels_plan.h>

namespace vox::cuda {
namespace {

Conv3dGeometry geometry(const Shape& input, const Shape& weight, const ConvTranspose3dOptions& options) {
  return detail::conv_transpose3d_geometry("test", input, weight, options);
}

void expect_covered(const FewAxis& a) {
  EXPECT_GE(a.tile * a.tiles, a.cells);
  EXPECT_LT(a.tile * (a.tiles - 1), a.cells);
  // The window holds what the last cell of a tile reads in any phase.
  for (int phase = 0; phase < a.phases; ++phase)
    EXPECT_GE(a.window, (a.tile - 1) * a.in_step + a.base[phase] + (a.taps - 1) * a.tap_step + 1);
}

TEST(FewChannelsPlan, CoversTheCellsWithinSharedMemory) {
  int plans = 0;
  for (const int64_t channels : {1, 3, 8, 40})
    for (const int64_t out : {1, 3, 8, 17})
      for (const Triple& kernel : {Triple(1), Triple(2), Triple(3), Triple(5), Triple(7), Triple(1, 3, 7)})
        for (const Triple& stride : {Triple(1), Triple(2), Triple(1, 3, 2)})
          for (const int64_t dilation : {1, 2}) {
            const Conv3dGeometry g =
                geometry({2, 2 * channels, 9, 24, 70}, {2 * channels, out, kernel.d, kernel.h, kernel.w},
                         {.stride = stride, .groups = 2, .dilation = dilation});
            for (const bool transposed : {false, true}) {
              const auto p = few_channels_plan(g, transposed);
              if (!p) continue;
              ++plans;
              for (const FewAxis& axis : {p->d, p->h, p->w}) expect_covered(axis);
              EXPECT_GE(p->outs * p->out_blocks, p->out_per_group);
              EXPECT_EQ(p->h.tile % p->run, 0);
              EXPECT_EQ(p->window.pitch % 2, 1);
              EXPECT_LE(p->shared_bytes, 96 * 1024);
              EXPECT_EQ(p->shared_bytes,
                        4 * (p->weight_words + p->total_words + p->channels * p->window.channel()));
            }
            const auto p = few_weight_grad_plan(g);
            if (!p) continue;
            ++plans;
            for (const FewAxis& axis : {p->d, p->h, p->w}) expect_covered(axis);
            EXPECT_GE(p->rows_of_thread * p->row_blocks * p->row_jobs, p->rows);
            EXPECT_LE(p->threads, few_threads);
            EXPECT_LE(p->shared_bytes, 96 * 1024);
            EXPECT_LE(4 * p->slabs * g.small_channels * g.big_per_group() * g.taps(), 32 << 20);
          }
  EXPECT_GT(plans, 1500);
}

TEST(FewChannelsPlan, IsNotForManyPhasesOrHugeSteps) {
  EXPECT_FALSE(few_channels_plan(geometry({1, 1, 3, 3, 3}, {1, 1, 3, 3, 3}, {.stride = 9}), true));
  EXPECT_TRUE(few_channels_plan(geometry({1, 1, 3, 3, 3}, {1, 1, 3, 3, 3}, {.stride = 8}), true));
  EXPECT_FALSE(few_channels_plan(geometry({1, 1, 2, 2, 2}, {1, 1, 33, 1, 1}, {}), false));
  EXPECT_FALSE(
      few_channels_plan(geometry({1, 1, 2, 2, 2}, {1, 1, 2, 2, 2}, {.dilation = {1 << 20, 1, 1}}), true));
  EXPECT_FALSE(
      few_weight_grad_plan(geometry({1, 1, 2, 2, 2}, {1, 1, 2, 2, 2}, {.dilation = {1 << 20, 1, 1}})));
}

// Taps may miss every output: a sum over nothing is still computed, and the bias written.
TEST(FewChannelsPlan, AnAxisWhoseTapsAllMissHasOneOfWeightZero) {
  const auto p = few_channels_plan(
      geometry({1, 1, 1, 1, 1}, {1, 1, 1, 1, 2}, {.stride = 3, .padding = {0, 0, 1}, .dilation = {1, 1, 2}}),
      true);
  ASSERT_TRUE(p);
  for (int slot = 0; slot < p->w.slots(); ++slot) EXPECT_LE(p->w.tap[slot], 1);
  EXPECT_GE(p->w.taps, 1);
}

}  // namespace
}  // namespace vox::cuda
