#include <voxgrad/cuda/runtime/error.h>

#include "tests/support/test.h"

// Nothing here needs a GPU or a driver.

namespace vox::cuda {
namespace {

std::string version(int number) {
  return std::to_string(number / 1000) + "." + std::to_string(number % 1000 / 10);
}

TEST(DriverError, SaysWhatThereIsAndWhatIsNeeded) {
  const std::string built = "voxgrad was built with CUDA " + version(CUDART_VERSION);
  EXPECT_EQ(describe_driver(12040, 13000), "the NVIDIA driver of this machine is for CUDA 12.4; " + built +
                                               " and needs a driver for CUDA 13.0 or newer");
  EXPECT_EQ(describe_driver(0, 12080),
            "no NVIDIA driver was found; " + built + " and needs a driver for CUDA 12.8 or newer");
}

TEST(DriverError, DescriptionsOfErrorsSayWhatToDo) {
  const auto contains = [](cudaError_t code, const std::string& text) {
    return describe(code).find(text) != std::string::npos;
  };
  EXPECT_TRUE(contains(cudaErrorInsufficientDriver, "cudaErrorInsufficientDriver ("));
  EXPECT_TRUE(contains(cudaErrorInsufficientDriver,
                       "needs a driver for CUDA " + version(CUDART_VERSION / 1000 * 1000) + " or newer"));
  EXPECT_TRUE(contains(cudaErrorUnsupportedPtxVersion,
                       "needs a driver for CUDA " + version(CUDART_VERSION) + " or newer"));
  EXPECT_TRUE(contains(cudaErrorNoKernelImageForDevice, "CMAKE_CUDA_ARCHITECTURES"));
  for (const int sticky : {214, 220, 226, 700, 702, 710, 714, 715, 716, 717, 718, 719, 721, 810, 911})
    EXPECT_TRUE(contains(static_cast<cudaError_t>(sticky), "can no longer use the GPU and must end"))
        << sticky;
  EXPECT_EQ(describe(cudaErrorInvalidValue), "cudaErrorInvalidValue (invalid argument)");
}

}  // namespace
}  // namespace vox::cuda
