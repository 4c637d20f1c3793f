#include <gtest/gtest.h>

#include <voxgrad/cuda/conv3d/strided_plan.h>

namespace vox::cuda {
namespace {

// A plan is for a launch that CUDA accepts: a block of Hopper has 227 KiB, of which the kernel's barriers
// and its alignment take some as well. (The sweep found plans that used every byte.)
TEST(StridedPlan, LeavesSharedMemoryForTheKernelsOwn) {
  int plans = 0;
  for (const int64_t channels : {8, 17, 24, 32, 33, 48, 64, 100}) {
    for (const Triple& kernel : {Triple(2), Triple(3), Triple(4), Triple(5), Triple(7), Triple(1, 3, 7)}) {
      for (const Triple& stride : {Triple(1), Triple(2), Triple(1, 2, 2), Triple(1, 1, 2)}) {
        for (const int64_t dilation : {1, 2}) {
          const auto g = detail::conv_transpose3d_geometry(
              "test", {2, channels, 9, 16, 33}, {channels, channels, kernel.d, kernel.h, kernel.w},
              {.stride = stride, .padding = 0, .dilation = dilation});
          for (const bool transposed : {false, true}) {
            for (const int step_channels : {8, 16}) {
              const auto planned = strided_plan(g, transposed, strided_tile(g, transposed, step_channels));
              if (!planned) continue;
              ++plans;
              EXPECT_LE(planned->plan.shared_bytes, 227 * 1024 - 512)
                  << channels << " channels, kernel " << kernel << ", stride " << stride << ", dilation "
                  << dilation << ", transposed " << transposed;
            }
          }
        }
      }
    }
  }
  EXPECT_GT(plans, 500);
}

}  // namespace
}  // namespace vox::cuda
