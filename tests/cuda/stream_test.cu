#include <thread>

#include "tests/cuda/support.cuh"

// See Note [CUDA streams] in core/cuda.h.

namespace vox::testing {
namespace {

using cuda::current_stream;
using cuda::memory_stats;
using cuda::Stream;
using cuda::StreamGuard;

constexpr int64_t n = 1 << 16;

class CudaStream : public CudaTest {};

TEST_F(CudaStream, IsNeverALegacyStream) {
  for (const Stream& stream : {current_stream(), Stream()}) {
    EXPECT_NE(native(stream), nullptr);
    EXPECT_NE(native(stream), cudaStreamLegacy);
    EXPECT_NE(native(stream), cudaStreamPerThread);
    unsigned flags = 0;
    ASSERT_CUDA(cudaStreamGetFlags(native(stream), &flags));
    EXPECT_EQ(flags, static_cast<unsigned>(cudaStreamNonBlocking));
    EXPECT_EQ(stream.device(), Device::cuda(0));
  }
}

TEST_F(CudaStream, GuardsNestAndBelongToTheirThread) {
  const Stream shared = current_stream(), a, b;
  EXPECT_FALSE(a == b);
  {
    const StreamGuard outer(a);
    EXPECT_TRUE(current_stream() == a);
    {
      const StreamGuard inner(b);
      EXPECT_TRUE(current_stream() == b);
    }
    EXPECT_TRUE(current_stream() == a);
    bool other_thread_sees_shared = false;
    std::thread([&] { other_thread_sees_shared = current_stream() == shared; }).join();
    EXPECT_TRUE(other_thread_sees_shared);
  }
  EXPECT_TRUE(current_stream() == shared);
}

TEST_F(CudaStream, ProducerAndConsumerInASideStreamAreOrdered) {
  const Stream side;
  const StreamGuard guard(side);
  const Block x = floats(n), y = floats(n);
  fill(native_current(), x, 1);
  delay(native_current());
  fill(native_current(), x, 7);
  copy_block(y, x);
  expect_all(y, 7);
}

TEST_F(CudaStream, BorrowedStreamRunsTheWorkAndStaysItsOwners) {
  cudaStream_t owner = nullptr;
  ASSERT_CUDA(cudaStreamCreateWithFlags(&owner, cudaStreamNonBlocking));
  for (cudaStream_t stream : {owner, cudaStream_t{nullptr}}) {  // null: the legacy stream
    const Block y = floats(n);  // used in the stream, so it goes before its owner's stream
    fill(native_current(), y, 1);
    current_stream().synchronize();
    delay(stream);
    fill(stream, y, 7);
    {
      const StreamGuard guard(Stream::borrow(stream, Device::cuda()));
      EXPECT_EQ(native_current(), stream);
      const Block x = floats(n);
      copy_block(x, y);
      expect_all(x, 7);
    }
    EXPECT_CUDA(cudaStreamSynchronize(stream));
  }
  EXPECT_CUDA(cudaStreamDestroy(owner));
  EXPECT_THROW(Stream::borrow(nullptr, Device::cpu()), DeviceError);
}

TEST_F(CudaStream, IsTakenOverWhenItsLastHandleIsGone) {
  std::optional<Stream> first;
  first.emplace();
  Stream copy = *first;
  void* const queue = copy.native_handle();
  first.reset();
  EXPECT_NE(Stream().native_handle(), queue);
  const Block x = floats(n), y = floats(n);
  {
    const StreamGuard guard(copy);
    copy_block(x, y);  // a block that the stream uses does not keep it
  }
  copy = Stream();
  const Stream next;
  EXPECT_EQ(next.native_handle(), queue);
}

TEST_F(CudaStream, WaitOrdersTwoStreams) {
  const Stream a, b;
  const Block x = floats(n), y = floats(n);
  fill(native_current(), x, 1);
  fill(native_current(), y, 1);
  current_stream().synchronize();
  delay(native(a));
  fill(native(a), x, 7);
  b.wait(a);
  affine(native(b), y, x, 1, 0);
  b.synchronize();
  expect_all(y, 7);
}

TEST_F(CudaStream, SynchronizeReturnsWhenTheWorkIsDone) {
  const Stream side;
  delay(native(side));
  EXPECT_EQ(cudaStreamQuery(native(side)), cudaErrorNotReady);
  side.synchronize();
  EXPECT_EQ(cudaStreamQuery(native(side)), cudaSuccess);
  delay(native(side));
  cuda::synchronize();
  EXPECT_EQ(cudaStreamQuery(native(side)), cudaSuccess);
  (void)cudaGetLastError();  // clears NotReady, which the next test must not see
}

TEST_F(CudaStream, MayBeDroppedBeforeItsWorkIsDone) {
  Block x;
  {
    const Stream side;
    const StreamGuard guard(side);
    x = floats(n);
    delay(native_current());
    fill(native_current(), x, 3);
  }
  cuda::synchronize();
  expect_all(x, 3);
}

TEST_F(CudaStream, AnotherThanTheCurrentDeviceWorks) {
  if (cuda::device_count() < 2) GTEST_SKIP() << "one CUDA device";
  const Stream side(Device::cuda(1));
  const StreamGuard guard(side);
  EXPECT_TRUE(current_stream(Device::cuda(1)) == side);
  EXPECT_FALSE(current_stream(Device::cuda(0)) == side);
  const Block here = floats(n, 0), there = floats(n, 1), back = floats(n, 0);
  delay(native_current(0));
  fill(native_current(0), here, 5);
  copy_block(there, here);
  fill(native_current(0), here, 6);  // must not overtake the copy
  copy_block(back, there);
  expect_all(there, 5);
  expect_all(back, 5);
  int device = -1;
  ASSERT_CUDA(cudaGetDevice(&device));
  EXPECT_EQ(device, 0);
}

TEST_F(CudaStream, RefusesDevicesThatAreNotThere) {
  EXPECT_REFUSED(DeviceError, Stream(Device::cpu()), "got cpu");
  for (const int index : {-1, cuda::device_count()}) {
    EXPECT_REFUSED(DeviceError, Stream(Device::cuda(index)), "cuda:" + std::to_string(index));
    EXPECT_ERRORS(DeviceError, current_stream(Device::cuda(index)), cuda::synchronize(Device::cuda(index)),
                  floats(n, index));
  }
}

TEST(CudaDriver, WithoutAGpuTheErrorSaysWhy) {
  if (cuda::is_available()) GTEST_SKIP() << "there is a CUDA device";
  EXPECT_EQ(cuda::device_count(), 0);
  EXPECT_REFUSED(DeviceError, floats(n), "no usable CUDA device");
}

// See Note [Freeing CUDA memory] in cuda/runtime/memory.cpp.

constexpr int64_t mib = int64_t{1} << 20;

class CudaMemory : public CudaTest {};

TEST_F(CudaMemory, StatsCountWhatTensorsHold) {
  cuda::reset_peak_memory_stats();
  const int64_t before = memory_stats().in_use;
  EXPECT_EQ(memory_stats().peak_in_use, before);
  Block a = floats(1000);
  Block b = floats(500);
  EXPECT_EQ(memory_stats().in_use, before + 6000);
  EXPECT_GE(memory_stats().reserved, 6000);
  b.reset();
  EXPECT_EQ(memory_stats().in_use, before + 4000);
  EXPECT_EQ(memory_stats().peak_in_use, before + 6000);
  a.reset();
  EXPECT_EQ(memory_stats().in_use, before);
  cuda::reset_peak_memory_stats();
  EXPECT_EQ(memory_stats().peak_in_use, before);
}

TEST_F(CudaMemory, FreedMemoryIsReusedAndGivenBackOnRequest) {
  cuda::empty_cache();
  const int64_t empty = memory_stats().reserved;
  floats(64 * mib);
  cuda::synchronize();  // with CUDA's default threshold, this would give the memory back
  const int64_t cached = memory_stats().reserved;
  EXPECT_GE(cached, 256 * mib);
  EXPECT_GT(cached, empty);
  for (int i = 0; i < 10; ++i) floats(64 * mib);
  EXPECT_EQ(memory_stats().reserved, cached);
  cuda::empty_cache();
  EXPECT_LE(memory_stats().reserved, empty);
}

TEST_F(CudaMemory, IsNotReusedBeforeOtherStreamsAreDone) {
  cuda::empty_cache();
  const int64_t large = 16 * mib;  // so large that the pool will hand out the same block
  const Stream side;
  Block x = floats(large);
  const Block y = floats(large);
  fill(native_current(), x, 3);
  side.wait(current_stream());
  {
    const StreamGuard guard(side);
    delay(native_current());
    copy_block(y, x);
  }
  const void* const address = x->data();
  x.reset();
  const Block again = floats(large);
  fill(native_current(), again, 9);
  side.synchronize();
  expect_all(y, 3);
  if (again->data() != address) GTEST_SKIP() << "the pool chose another block: nothing was tested";
}

TEST_F(CudaMemory, MayBeDroppedAnywhere) {
  const int64_t before = memory_stats().in_use;
  std::vector<std::thread> threads;
  std::vector<int> wrong(4, -1);
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([t, &wrong] {
      const StreamGuard guard{Stream()};
      std::vector<Block> kept;
      wrong[static_cast<size_t>(t)] = 0;
      for (int i = 0; i < 200; ++i) {
        const auto value = static_cast<float>(t * 1000 + i);
        const Block x = floats(n);
        kept.push_back(floats(n));
        fill(native_current(), x, value);
        affine(native_current(), kept.back(), x, 1, 1);
        if (kept.size() == 8) {
          wrong[static_cast<size_t>(t)] += read(kept.back())[n - 1] != value + 1;
          std::thread([dropped = std::move(kept)]() mutable { dropped.clear(); }).join();
          kept.clear();
        }
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(wrong, std::vector<int>(4, 0));
  EXPECT_EQ(memory_stats().in_use, before);
}

TEST_F(CudaMemory, HostMemoryMayBeReusedWhenACopyReturns) {
  float* pinned = nullptr;
  ASSERT_CUDA(cudaMallocHost(&pinned, n * sizeof(float)));
  std::vector<float> pageable(n, 4);
  for (float* host : {pinned, pageable.data()}) {
    std::fill_n(host, n, 4.0f);
    const Block x = floats(n);
    delay(native_current());
    cuda::copy(x->data(), 0, host, 0, x->bytes(), cuda::CopyKind::host_to_device);
    std::fill_n(host, n, 8.0f);
    expect_all(x, 4);
    delay(native_current());
    fill(native_current(), x, 5);
    cuda::copy(host, 0, x->data(), 0, x->bytes(), cuda::CopyKind::device_to_host);
    EXPECT_EQ(host[0], 5);
    EXPECT_EQ(host[n - 1], 5);
  }
  EXPECT_CUDA(cudaFreeHost(pinned));
}

TEST_F(CudaMemory, WhatCannotBeHadIsAnErrorThatSaysHowMuchThereIs) {
  for (const char* part : {"1152921504606846976 bytes", "are free"})
    EXPECT_REFUSED(OutOfMemoryError, floats(int64_t{1} << 58), part);

  const int64_t before = memory_stats().in_use;
  size_t free = 0, total = 0;
  ASSERT_CUDA(cudaMemGetInfo(&free, &total));
  const auto most = static_cast<int64_t>(free / 4) / 10 * 6;  // floats: 60 % of what is free
  {
    const Block first = floats(most);
    EXPECT_THROW(floats(most), OutOfMemoryError);
    EXPECT_EQ(cudaGetLastError(), cudaSuccess);
    EXPECT_EQ(memory_stats().in_use, before + most * 4);
    const Block small = floats(n);  // allocation still works
    fill(native_current(), small, 2);
    expect_all(small, 2);
  }
  EXPECT_EQ(memory_stats().in_use, before);
  // 60 % are cached now; 80 % are available once the cache has been emptied.
  EXPECT_NO_THROW(floats(most / 6 * 8));
  cuda::empty_cache();
}

TEST_F(CudaMemory, ZeroBytesAreLegal) {
  const Block none = floats(0);
  EXPECT_EQ(none->data(), nullptr);
  EXPECT_TRUE(read(none).empty());
}

// Destroyed after main, when CUDA may be gone. The exit status of this program is what is tested.
Block outlives_everything;
thread_local Block outlives_the_thread;

TEST_F(CudaMemory, OfStaticLifetimeDoesNotCrashAtExit) {
  outlives_everything = floats(n);
  outlives_the_thread = floats(n);
  std::thread([] { outlives_the_thread = floats(n); }).join();
}

TEST(SanitizeCudaRuntime, AllocateLaunchCopyFree) {
  SKIP_WITHOUT_CUDA();
  const Stream side;
  Block x = floats(100);
  const Block y = floats(100);
  fill(native_current(), x, 3);
  side.wait(current_stream());
  {
    const StreamGuard guard(side);
    copy_block(y, x);
  }
  x.reset();
  const Block again = floats(100);
  fill(native_current(), again, 9);
  side.synchronize();
  expect_all(y, 3);
  expect_all(again, 9);
}

}  // namespace
}  // namespace vox::testing
