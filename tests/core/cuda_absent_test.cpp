#include <voxgrad/config.h>

#include "tests/support/test.h"

namespace vox {
namespace {

TEST(WithoutTheToolkit, EveryCallSaysWhatIsMissingAndHowToGetIt) {
  if (VOXGRAD_HAS_CUDA) GTEST_SKIP() << "this build has CUDA";
  EXPECT_FALSE(cuda::is_available());
  EXPECT_EQ(cuda::device_count(), 0);
  const std::pair<const char*, std::function<void()>> calls[] = {
      {"Stream", [] { cuda::Stream(); }},
      {"Stream::borrow", [] { (void)cuda::Stream::borrow(nullptr, Device::cuda()); }},
      {"current_stream", [] { (void)cuda::current_stream(); }},
      {"synchronize", [] { cuda::synchronize(); }},
      {"memory_stats", [] { (void)cuda::memory_stats(); }},
      {"reset_peak_memory_stats", [] { cuda::reset_peak_memory_stats(); }},
      {"empty_cache", [] { cuda::empty_cache(); }},
      {"Event", [] { cuda::Event(); }},
      {"Graph", [] { cuda::Graph([] {}); }},
      {"device_name", [] { (void)cuda::device_name(); }},
      {"device_memory", [] { (void)cuda::device_memory(); }},
      {"memory_stats", [] { (void)memory_stats(Device::cuda()); }},
      {"ones", [] { (void)ones({2}, Device::cuda()); }},
      {"to", [] { (void)ones({2}).to(Device::cuda()); }},
      {"from_vector", [] { (void)from_vector<float>({1}, {1}, Device::cuda()); }},
      {"arange", [] { (void)arange(3, Device::cuda()); }},
      {"linspace", [] { (void)linspace(0, 1, 3, Device::cuda()); }},
      {"eye", [] { (void)eye(3, Device::cuda()); }},
      {"rand", [] { (void)rand({3}, Device::cuda()); }},
      {"randperm", [] { (void)randperm(3, Device::cuda()); }},
      {"allocate", [] { (void)Storage::allocate(4, Device::cuda()); }},
  };
  for (const auto& [name, call] : calls) {
    const std::string message = message_of<DeviceError>(call);
    EXPECT_EQ(message.find(std::string(name) + ": "), 0u) << message;
    EXPECT_TRUE(has_parts(message, {"VOXGRAD_CUDA=ON"}));
  }
}

}  // namespace
}  // namespace vox
