#include <voxgrad/cuda/conv3d/few_channels/plan.h>

#include "tests/cuda/conv3d/evaluate.h"

namespace vox::cuda::conv::few_channels {
namespace {

void expect_covered(const Axis& a) {
  EXPECT_GE(a.tile * a.tiles, a.cells);
  EXPECT_LT(a.tile * (a.tiles - 1), a.cells);
  // The window contains what the last cell of a tile reads, in any phase.
  for (int phase = 0; phase < a.phases; ++phase)
    EXPECT_GE(a.window, (a.tile - 1) * a.in_step + a.base[phase] + (a.taps - 1) * a.tap_step + 1);
}

TEST(Conv3dFewChannelsPlan, CoversTheCellsWithinSharedMemory) {
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
              const auto p = make_plan(g, transposed);
              if (!p) continue;
              ++plans;
              for (const Axis& axis : {p->d, p->h, p->w}) expect_covered(axis);
              EXPECT_GE(p->outs * p->out_blocks, p->out_per_group);
              EXPECT_EQ(p->h.tile % p->run, 0);
              EXPECT_EQ(p->window.pitch % 2, 1);
              EXPECT_LE(p->shared_bytes, 96 * 1024);
              EXPECT_EQ(p->shared_bytes,
                        4 * (p->weight_words + p->total_words + p->channels * p->window.channel()));
            }
            const auto p = make_weight_grad_plan(g);
            if (!p) continue;
            ++plans;
            for (const Axis& axis : {p->d, p->h, p->w}) expect_covered(axis);
            EXPECT_GE(p->rows_of_thread * p->row_blocks * p->row_jobs, p->rows);
            EXPECT_LE(p->threads, most_threads);
            EXPECT_LE(p->shared_bytes, 96 * 1024);
            EXPECT_LE(4 * p->splits * g.small_channels * g.big_per_group() * g.taps(), 32 << 20);
          }
  EXPECT_GT(plans, 1500);
}

TEST(Conv3dFewChannelsPlan, IsNotForManyPhasesOrHugeSteps) {
  EXPECT_FALSE(make_plan(geometry({1, 1, 3, 3, 3}, {1, 1, 3, 3, 3}, {.stride = 9}), true));
  EXPECT_TRUE(make_plan(geometry({1, 1, 3, 3, 3}, {1, 1, 3, 3, 3}, {.stride = 8}), true));
  EXPECT_FALSE(make_plan(geometry({1, 1, 2, 2, 2}, {1, 1, 33, 1, 1}, {}), false));
  EXPECT_FALSE(make_plan(geometry({1, 1, 2, 2, 2}, {1, 1, 2, 2, 2}, {.dilation = {1 << 20, 1, 1}}), true));
  EXPECT_FALSE(
      make_weight_grad_plan(geometry({1, 1, 2, 2, 2}, {1, 1, 2, 2, 2}, {.dilation = {1 << 20, 1, 1}})));
}

// With padding and dilation a window may be far larger than its grid. Rows outside the grid count as well in
// the kernel's 32 bits, and a channel of a window may have any number of bytes.
TEST(Conv3dFewChannelsPlan, IsNotForWindowsBeyondItsNumbers) {
  const auto conv3d = [](const Shape& big, const Shape& weight, const Conv3dOptions& options) {
    return detail::conv3d_geometry("test", big, weight, options);
  };
  const Conv3dOptions far{.padding = {0, 600, 0}, .dilation = {1, 1200, 1}};
  EXPECT_FALSE(make_plan(conv3d({1, 1, 1, 1, 3'700'000}, {1, 1, 1, 2, 1}, far), false));
  EXPECT_FALSE(make_weight_grad_plan(conv3d({1, 1, 1, 1, 3'700'000}, {1, 1, 1, 2, 1}, far)));
  EXPECT_TRUE(make_plan(conv3d({1, 1, 1, 1, 370'000}, {1, 1, 1, 2, 1}, far), false));
  EXPECT_FALSE(
      make_plan(geometry({1, 1, 1, 1, 4'400'000}, {1, 1, 1, 2, 1}, {.dilation = {1, 1000, 1}}), true));
  for (const int64_t channels : {15878, 37958, 39243, 42093})
    EXPECT_FALSE(make_plan(
        conv3d({1, channels, 1, 1, 1}, {1, channels, 2, 2, 2}, {.padding = 30000, .dilation = 60000}), false))
        << channels;
  const auto tall =
      make_weight_grad_plan(conv3d({1, 1, 8, 1, 1'004'122}, {1, 1, 3, 1, 1}, {.padding = {1, 200, 0}}));
  if (tall) {
    EXPECT_LT(int64_t{tall->d.tile} * tall->h.out_cells * tall->w.out_cells, int64_t{1} << 31);
  }
}

// No tap may reach any output. A sum over nothing is still computed, and the bias written.
TEST(Conv3dFewChannelsPlan, AnAxisWhoseTapsAllMissHasOneOfWeightZero) {
  const auto p = make_plan(
      geometry({1, 1, 1, 1, 1}, {1, 1, 1, 1, 2}, {.stride = 3, .padding = {0, 0, 1}, .dilation = {1, 1, 2}}),
      true);
  ASSERT_TRUE(p);
  for (int slot = 0; slot < p->w.slots(); ++slot) EXPECT_EQ(p->w.tap[slot], -1);
  EXPECT_EQ(p->w.taps, 1);
}

}  // namespace
}  // namespace vox::cuda::conv::few_channels
