// See Note [CUDA streams] in core/cuda.h.
#include <thread>

#include "tests/cuda/support.cuh"

namespace vox::testing {
namespace {

using cuda::current_stream;
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
    EXPECT_THROW(current_stream(Device::cuda(index)), DeviceError);
    EXPECT_THROW(cuda::synchronize(Device::cuda(index)), DeviceError);
    EXPECT_THROW(floats(n, index), DeviceError);
  }
}

TEST(CudaDriver, WithoutAGpuTheErrorSaysWhy) {
  if (cuda::is_available()) GTEST_SKIP() << "there is a CUDA device";
  EXPECT_EQ(cuda::device_count(), 0);
  EXPECT_REFUSED(DeviceError, floats(n), "no usable CUDA device");
}

}  // namespace
}  // namespace vox::testing
