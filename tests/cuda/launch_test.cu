#include <algorithm>

#include <voxgrad/core/tensor.h>
#include <voxgrad/cuda/runtime/launch.h>

#include <voxgrad/cuda/for_each_index.cuh>

#include "tests/cuda/support.cuh"

namespace vox::testing {
namespace {

using cuda::for_each_index;
using cuda::grid_for;
using cuda::Launch;
using cuda::Workspace;

struct AddOne {
  uint8_t* data;
  __device__ void operator()(int64_t i) const { data[i] = static_cast<uint8_t>(data[i] + 1); }
};
__global__ void nothing_kernel() {}
/// Writes to the last of its dynamic shared memory.
template <int number>
__global__ void last_byte_kernel(uint8_t* to, int bytes) {
  extern __shared__ uint8_t memory[];
  memory[bytes - 1] = number;
  *to = memory[bytes - 1];
}

Tensor bytes(int64_t n) { return empty({n}, {.dtype = u8, .device = Device::cuda()}); }
std::vector<uint8_t> host(const Tensor& t) {
  std::vector<uint8_t> values(static_cast<size_t>(t.numel()));
  cuda::copy(values.data(), 0, t.impl()->data(), 0, t.numel(), cuda::CopyKind::device_to_host);
  return values;
}

TEST(GridFor, NeverGivesZeroBlocksNorMoreThanItsBound) {
  EXPECT_EQ(grid_for(0, 256), 1u);
  EXPECT_EQ(grid_for(1, 256), 1u);
  EXPECT_EQ(grid_for(256, 256), 1u);
  EXPECT_EQ(grid_for(257, 256), 2u);
  EXPECT_EQ(grid_for(int64_t{1} << 28, 256), 1u << 20);
  EXPECT_EQ(grid_for(INT64_MAX, 256), 1u << 20);
}

class CudaLaunch : public CudaTest {};

TEST_F(CudaLaunch, ForEachIndexVisitsEveryIndexOnce) {
  for (const int64_t n : {int64_t{0}, int64_t{1}, int64_t{255}, int64_t{257}, (int64_t{1} << 28) + 300}) {
    const Tensor t = bytes(n);
    const Launch launch("test", t);
    if (n) launch.check(cudaMemsetAsync(t.impl()->data(), 6, static_cast<size_t>(n), launch.stream()));
    for_each_index(launch, n, AddOne{detail::mutable_ptr<uint8_t>(t)});
    const std::vector<uint8_t> values = host(t);
    EXPECT_EQ(std::count(values.begin(), values.end(), 7), n);
  }
}

TEST_F(CudaLaunch, ARefusedLaunchIsAnErrorOfTheOpThatMadeIt) {
  const Tensor t = bytes(10);
  const std::string message = message_of<CudaError>([&] {
    const Launch launch("my_op", t);
    nothing_kernel<<<1, 4096, 0, launch.stream()>>>();
    launch.check();
  });
  EXPECT_EQ(message.find("my_op: "), 0u) << message;
  EXPECT_NE(message.find("cudaErrorInvalid"), std::string::npos) << message;
  const Launch next("next_op", t);
  nothing_kernel<<<1, 1, 0, next.stream()>>>();
  EXPECT_NO_THROW(next.check());
}

TEST_F(CudaLaunch, AnErrorOfSomebodyElseIsNotBlamedOnTheOp) {
  const Tensor t = bytes(10);
  EXPECT_NE(cudaSetDevice(9999), cudaSuccess);
  const Launch launch("my_op", t);
  nothing_kernel<<<1, 1, 0, launch.stream()>>>();
  EXPECT_NO_THROW(launch.check());
}

TEST(CudaLaunchRefusal, TensorsOnOtherDevices) {
  const Tensor on_host = empty({3});
  for (const char* part : {"my_op", "cpu"}) EXPECT_REFUSED(DeviceError, Launch("my_op", on_host), part);
  SKIP_WITHOUT_CUDA();
  const Tensor on_gpu = bytes(3);
  for (const char* part : {"cuda:0", "cpu"})
    EXPECT_REFUSED(DeviceError, Launch("my_op", on_gpu, {&on_gpu, &on_host}), part);
  const Tensor none;
  EXPECT_NO_THROW(Launch("my_op", on_gpu, {&none, nullptr}));
}

TEST_F(CudaLaunch, NotesThatItsTensorsAreInUse) {
  cuda::empty_cache();
  const int64_t n = int64_t{1} << 26;  // so large that the pool will hand out the same block
  const cuda::Stream side;
  Tensor x = bytes(n);
  const Tensor y = bytes(n);
  {
    const Launch launch("set", x);
    launch.check(cudaMemsetAsync(x.impl()->data(), 3, static_cast<size_t>(n), launch.stream()));
  }
  side.wait(cuda::current_stream());
  {
    const cuda::StreamGuard guard(side);
    const Launch launch("copy", y, {&x});
    EXPECT_EQ(launch.stream(), native(side));
    delay(launch.stream());
    launch.check(cudaMemcpyAsync(y.impl()->data(), x.impl()->data(), static_cast<size_t>(n),
                                 cudaMemcpyDeviceToDevice, launch.stream()));
  }
  const void* const address = x.impl()->data();
  x = Tensor();
  const Tensor again = bytes(n);
  const Launch launch("set", again);
  launch.check(cudaMemsetAsync(again.impl()->data(), 9, static_cast<size_t>(n), launch.stream()));
  side.synchronize();
  const std::vector<uint8_t> values = host(y);
  EXPECT_EQ(std::count(values.begin(), values.end(), 3), n);
  if (again.impl()->data() != address) GTEST_SKIP() << "the pool chose another block: nothing was tested";
}

TEST_F(CudaLaunch, GivesKernelsTheSharedMemoryTheyAskFor) {
  const Tensor t = bytes(1);
  const Launch launch("test", t);
  const auto run = [&](int size) {
    last_byte_kernel<5>
        <<<1, 1, static_cast<size_t>(size), launch.stream()>>>(detail::mutable_ptr<uint8_t>(t), size);
  };
  constexpr int default_limit = 48 << 10;
  run(default_limit + 16);
  EXPECT_THROW(launch.check(), CudaError) << "this test needs a limit that must be raised";
  for (const int size : {60 << 10, 50 << 10, 90 << 10}) {  // less than before is no request
    launch.allow_shared_memory<last_byte_kernel<5>>(size);
    run(size);
    EXPECT_NO_THROW(launch.check()) << size;
  }
  run(70 << 10);
  EXPECT_NO_THROW(launch.check());
  EXPECT_EQ(host(t)[0], 5);
  EXPECT_THROW(launch.allow_shared_memory<last_byte_kernel<6>>(1 << 30), CudaError);
  EXPECT_THROW(launch.allow_shared_memory<last_byte_kernel<6>>(1 << 30), CudaError)
      << "a refusal was forgotten";
  EXPECT_EQ(cudaGetLastError(), cudaSuccess);
}

TEST_F(CudaLaunch, WorkspaceIsMemoryOfTheLaunchAlone) {
  const Tensor t = bytes(1000);
  const auto before = cuda::memory_stats();
  cuda::reset_peak_memory_stats();
  {
    const Launch launch("test", t);
    const Workspace none(launch, 0), a(launch, 1000), b(launch, 3000);
    EXPECT_EQ(none.as<uint8_t>(), nullptr);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(b.as<uint8_t>()) % 256, 0u);
    EXPECT_EQ(cuda::memory_stats().in_use, before.in_use + 4000);
    launch.check(cudaMemsetAsync(a.as<uint8_t>(), 1, 1000, launch.stream()));
    launch.check(cudaMemsetAsync(b.as<uint8_t>(), 2, 3000, launch.stream()));
    launch.check(
        cudaMemcpyAsync(t.impl()->data(), a.as<uint8_t>(), 1000, cudaMemcpyDeviceToDevice, launch.stream()));
  }
  EXPECT_EQ(cuda::memory_stats().in_use, before.in_use);
  EXPECT_EQ(cuda::memory_stats().peak_in_use, before.in_use + 4000);
  const std::vector<uint8_t> values = host(t);
  EXPECT_EQ(std::count(values.begin(), values.end(), 1), 1000);
}

TEST_F(CudaLaunch, AWorkspaceThatCannotBeHadIsAnErrorOfTheOp) {
  const Tensor t = bytes(1);
  const int64_t before = cuda::memory_stats().in_use;
  const std::string message = message_of<OutOfMemoryError>([&] {
    const Launch launch("my_op", t);
    const Workspace impossible(launch, int64_t{1} << 58);
  });
  EXPECT_EQ(message.find("my_op: "), 0u) << message;
  EXPECT_EQ(cuda::memory_stats().in_use, before);
}

TEST_F(CudaLaunch, MakesTheDeviceOfItsOutputCurrent) {
  if (cuda::device_count() < 2) GTEST_SKIP() << "one CUDA device";
  const Tensor t = empty({10}, {.dtype = u8, .device = Device::cuda(1)});
  int device = -1;
  {
    const Launch launch("test", t);
    ASSERT_CUDA(cudaGetDevice(&device));
    EXPECT_EQ(device, 1);
    nothing_kernel<<<1, 1, 0, launch.stream()>>>();
    EXPECT_NO_THROW(launch.check());
  }
  ASSERT_CUDA(cudaGetDevice(&device));
  EXPECT_EQ(device, 0);
}

}  // namespace
}  // namespace vox::testing
