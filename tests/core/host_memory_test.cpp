#include <malloc.h>

#include <voxgrad/core/host_memory.h>

#include "tests/support/test.h"

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

TEST(HostMemoryTest, ASmallRequestLeavesALargeBlockAlone) {
  if (!keeps_blocks) GTEST_SKIP() << "AddressSanitizer watches freed memory";
  void* large = allocate_host(40 * mib);
  deallocate_host(large, 40 * mib);
  void* small = allocate_host(20 * mib);
  EXPECT_NE(small, large);
  deallocate_host(small, 20 * mib);
}

TEST(HostMemoryDeathTest, GivesBackAllWhereWhatItTakesIsNotEnough) {
  if (!can_limit_memory) GTEST_SKIP() << "sanitizers need address space";
  const auto run = [] {
    mallopt(M_MMAP_THRESHOLD, 1 << 16);  // so that what is freed goes to the system at once
    std::vector<void*> blocks;
    for (int i = 0; i < 80; ++i) blocks.push_back(allocate_host(mib));
    for (void* block : blocks) deallocate_host(block, mib);
    limit_memory(0);
    // The 64 MiB that are freed first do not hold a block of 64 MiB at the alignment of huge pages.
    std::exit(allocate_host(64 * mib) ? 0 : 1);
  };
  EXPECT_EXIT(run(), ::testing::ExitedWithCode(0), "");
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
