#include <algorithm>

#include <voxgrad/core/tensor.h>
#include <voxgrad/cuda/launch.h>

#include <voxgrad/cuda/for_each_index.cuh>

#include "tests/cuda/support.cuh"

namespace vox::testing {
namespace {

using cuda::for_each_index;
using cuda::grid_for;
using cuda::Launch;

struct AddOne {
  uint8_t* data;
  __device__ void operator()(int64_t i) const { data[i] = static_cast<uint8_t>(data[i] + 1); }
};
__global__ void nothing_kernel() {}

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

TEST(CudaLaunch, ForEachIndexVisitsEveryIndexOnce) {
  SKIP_WITHOUT_CUDA();
  for (const int64_t n : {int64_t{0}, int64_t{1}, int64_t{255}, int64_t{257}, (int64_t{1} << 28) + 300}) {
    const Tensor t = bytes(n);
    const Launch launch("test", t);
    if (n) launch.check(cudaMemsetAsync(t.impl()->data(), 6, static_cast<size_t>(n), launch.stream()));
    for_each_index(launch, n, AddOne{detail::mutable_ptr<uint8_t>(t)});
    const std::vector<uint8_t> values = host(t);
    EXPECT_EQ(std::count(values.begin(), values.end(), 7), n);
  }
}

TEST(CudaLaunch, ARefusedLaunchIsAnErrorOfTheOpThatMadeIt) {
  SKIP_WITHOUT_CUDA();
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

TEST(CudaLaunch, AnErrorOfSomebodyElseIsNotBlamedOnTheOp) {
  SKIP_WITHOUT_CUDA();
  const Tensor t = bytes(10);
  EXPECT_NE(cudaSetDevice(9999), cudaSuccess);
  const Launch launch("my_op", t);
  nothing_kernel<<<1, 1, 0, launch.stream()>>>();
  EXPECT_NO_THROW(launch.check());
}

TEST(CudaLaunch, RefusesTensorsOnOtherDevices) {
  const Tensor on_host = empty({3});
  const std::string output = message_of<DeviceError>([&] { Launch("my_op", on_host); });
  EXPECT_NE(output.find("my_op"), std::string::npos) << output;
  EXPECT_NE(output.find("cpu"), std::string::npos) << output;
  SKIP_WITHOUT_CUDA();
  const Tensor on_gpu = bytes(3);
  const std::string input = message_of<DeviceError>([&] { Launch("my_op", on_gpu, {&on_gpu, &on_host}); });
  EXPECT_NE(input.find("cuda:0"), std::string::npos) << input;
  EXPECT_NE(input.find("cpu"), std::string::npos) << input;
  const Tensor none;
  EXPECT_NO_THROW(Launch("my_op", on_gpu, {&none, nullptr}));
}

TEST(CudaLaunch, NotesThatItsTensorsAreInUse) {
  SKIP_WITHOUT_CUDA();
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

TEST(CudaLaunch, MakesTheDeviceOfItsOutputCurrent) {
  SKIP_WITHOUT_CUDA();
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
