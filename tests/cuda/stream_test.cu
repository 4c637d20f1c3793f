// See Note [CUDA streams] in core/cuda.h.
#include <thread>

#include "tests/cuda/support.cuh"

namespace vox::testing {
namespace {

using cuda::current_stream;
using cuda::Stream;
using cuda::StreamGuard;

constexpr int64_t n = 1 << 16;

TEST(CudaStream, IsNeverALegacyStream) {
  SKIP_WITHOUT_CUDA();
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

TEST(CudaStream, GuardsNestAndBelongToTheirThread) {
  SKIP_WITHOUT_CUDA();
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

TEST(CudaStream, ProducerAndConsumerInASideStreamAreOrdered) {
  SKIP_WITHOUT_CUDA();
  const Stream side;
  const StreamGuard guard(side);
  const Block x = floats(n), y = floats(n);
  fill(native_current(), x, 1);
  delay(native_current());
  fill(native_current(), x, 7);
  copy_block(y, x);
  expect_all(y, 7);
}

TEST(CudaStream, BorrowedStreamRunsTheWorkAndStaysItsOwners) {
  SKIP_WITHOUT_CUDA();
  cudaStream_t owner = nullptr;
  ASSERT_CUDA(cudaStreamCreateWithFlags(&owner, cudaStreamNonBlocking));
  const Block y = floats(n);
  for (cudaStream_t stream : {owner, cudaStream_t{nullptr}}) {  // null: the legacy stream
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

TEST(CudaStream, WaitOrdersTwoStreams) {
  SKIP_WITHOUT_CUDA();
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

TEST(CudaStream, SynchronizeReturnsWhenTheWorkIsDone) {
  SKIP_WITHOUT_CUDA();
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

TEST(CudaStream, MayBeDroppedBeforeItsWorkIsDone) {
  SKIP_WITHOUT_CUDA();
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

TEST(CudaStream, AnotherThanTheCurrentDeviceWorks) {
  SKIP_WITHOUT_CUDA();
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

TEST(CudaStream, RefusesDevicesThatAreNotThere) {
  SKIP_WITHOUT_CUDA();
  EXPECT_NE(message_of<DeviceError>([] { Stream(Device::cpu()); }).find("got cpu"), std::string::npos);
  for (const int index : {-1, cuda::device_count()}) {
    const std::string message = message_of<DeviceError>([&] { (void)Stream(Device::cuda(index)); });
    EXPECT_NE(message.find("cuda:" + std::to_string(index)), std::string::npos) << message;
    EXPECT_THROW(current_stream(Device::cuda(index)), DeviceError);
    EXPECT_THROW(cuda::synchronize(Device::cuda(index)), DeviceError);
    EXPECT_THROW(floats(n, index), DeviceError);
  }
}

TEST(CudaDriver, WithoutAGpuTheErrorSaysWhy) {
  if (cuda::is_available()) GTEST_SKIP() << "there is a CUDA device";
  EXPECT_EQ(cuda::device_count(), 0);
  const std::string message = message_of<DeviceError>([] { floats(n); });
  EXPECT_NE(message.find("no usable CUDA device"), std::string::npos) << message;
}

}  // namespace
}  // namespace vox::testing
