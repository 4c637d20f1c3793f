#include <gtest/gtest.h>

#include <voxgrad/cuda/conv3d/weight_grad/plan.h>

// Plans are made on the CPU, so they can be tested without a GPU.

namespace vox::cuda::conv::weight_grad {
namespace {

void expect_sound(const Plan& p) {
  EXPECT_GT(p.shared_bytes, 0);
  EXPECT_LE(p.shared_bytes, 227 * 1024 - 512);
  for (const int64_t entry : {int64_t{p.channel_pitch}, int64_t{p.slot_words}, int64_t{p.plane_words},
                              int64_t{p.big_entries}, int64_t{p.small_entries}, p.slices, p.steps, p.slabs})
    EXPECT_GT(entry, 0);
  int64_t words = int64_t{p.axis[0].extent} * p.slot_words + int64_t{2} * p.parts * p.tile_words();
  words += 2 * (int64_t{p.big_entries} + p.small_entries) + int64_t{2} * p.products * 8;
  EXPECT_EQ(p.shared_bytes, 4 * words);
}

// The extent of a window grows with the distance of the taps, and its size with the square of it.
TEST(Conv3dWeightGradPlan, TapsFarApartHaveASoundPlanOrNone) {
  int plans = 0;
  for (int64_t dilation = 1; dilation <= 60'000; dilation += dilation < 64 ? 1 : dilation / 16) {
    for (const Triple& apart : {Triple(1, dilation, dilation), Triple(dilation, 1, 1), Triple(dilation)}) {
      const auto g = detail::conv3d_geometry("test", {2, 16, 16, 16, 16}, {16, 16, 3, 3, 3},
                                             {.padding = apart, .dilation = apart});
      for (const bool split : {false, true}) {
        SCOPED_TRACE(::testing::Message() << "dilation " << apart << ", split " << split);
        const auto p = make_plan(g, split);
        if (!p) continue;
        ++plans;
        expect_sound(*p);
      }
    }
  }
  EXPECT_GT(plans, 10);
  for (const int64_t far : {20'000, 23'170, 32'768, 46'341, 60'000}) {
    const auto g = detail::conv3d_geometry("test", {2, 16, 1, 16, 16}, {16, 16, 1, 3, 3},
                                           {.padding = Triple(0, far, far), .dilation = Triple(1, far, far)});
    for (const bool split : {false, true}) EXPECT_FALSE(make_plan(g, split).has_value()) << far;
  }
}

}  // namespace
}  // namespace vox::cuda::conv::weight_grad
