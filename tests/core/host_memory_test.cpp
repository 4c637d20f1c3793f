#include <voxgrad/core/host_memory.h>

#include <gtest/gtest.h>

#include <cstdint>
#include <cstring>
#include <thread>
#include <vector>

#include <voxgrad/core/factories.h>

namespace vox {
namespace {

using detail::allocate_host;
using detail::deallocate_host;
using detail::idle_host_bytes;

constexpr int64_t mib = int64_t{1} << 20;

constexpr bool keeps_blocks = !VOX_ADDRESS_SANITIZER;

TEST(HostMemoryTest, IsAlignedAndWholeForEverySize) {
  for (int64_t bytes : {int64_t{1}, int64_t{63}, int64_t{64}, int64_t{4097}, mib - 1, mib, mib + 1,
                        2 * mib - 1, 2 * mib, 2 * mib + 1, 5 * mib + 12345}) {
    void* data = allocate_host(bytes);
    ASSERT_NE(data, nullptr);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(data) % 64, 0u) << bytes;
    std::memset(data, 7, static_cast<size_t>(bytes));
    deallocate_host(data, bytes);
  }
}

TEST(HostMemoryTest, ALargeBlockServesTheNextRequestOfAboutItsSize) {
  if (!keeps_blocks) GTEST_SKIP() << "AddressSanitizer watches freed memory";
  void* first = allocate_host(33 * mib);
  deallocate_host(first, 33 * mib);
  EXPECT_GE(idle_host_bytes(), 33 * mib);
  void* second = allocate_host(34 * mib);  // requests of 33 to 36 MiB get blocks of one size
  EXPECT_EQ(second, first);
  void* third = allocate_host(34 * mib);
  EXPECT_NE(third, second);
  deallocate_host(second, 34 * mib);
  deallocate_host(third, 34 * mib);
}

TEST(HostMemoryTest, AMissGivesBackAsMuchAsItTakes) {
  if (!keeps_blocks) GTEST_SKIP() << "AddressSanitizer watches freed memory";
  deallocate_host(allocate_host(300 * mib), 300 * mib);
  const int64_t before = idle_host_bytes();
  ASSERT_GE(before, 300 * mib);
  void* other = allocate_host(700 * mib);  // never touched, so it takes no physical memory
  EXPECT_LE(idle_host_bytes(), std::max<int64_t>(0, before - 300 * mib));
  deallocate_host(other, 700 * mib);
}

TEST(HostMemoryTest, KeepsAtMostOneGiB) {
  std::vector<void*> blocks;
  for (int i = 0; i < 12; ++i) blocks.push_back(allocate_host(200 * mib));
  for (void* block : blocks) deallocate_host(block, 200 * mib);
  EXPECT_LE(idle_host_bytes(), 1024 * mib);
  if (keeps_blocks) {
    EXPECT_GE(idle_host_bytes(), 800 * mib);
  }
}

TEST(HostMemoryTest, ManyThreadsNeverShareABlock) {
  std::vector<std::thread> threads;
  std::vector<int> mistakes(4);
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([t, &mistakes] {
      for (int i = 0; i < 50; ++i) {
        const int64_t n = (1 + i % 3) * mib / 4;
        const Tensor x = full({n}, t), y = full({n}, t);
        mistakes[static_cast<size_t>(t)] += x.data<float>() == y.data<float>();
        for (int64_t k = 0; k < n; k += 1009)
          mistakes[static_cast<size_t>(t)] += x.data<float>()[k] != static_cast<float>(t);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(mistakes, std::vector<int>(4));
}

}  // namespace
}  // namespace vox
