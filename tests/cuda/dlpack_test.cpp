#include <voxgrad/core/dlpack_abi.h>
#include <voxgrad/voxgrad.h>

#include "tests/support/devices.h"

#include <cuda_runtime_api.h>

// Memory that another library uses in a stream of its own. Its work is a chain of copies, of which voxgrad
// sees nothing.

namespace vox {
namespace {

constexpr int64_t n = int64_t{1} << 26;

class DlpackCuda : public testing::CudaTest {};

void copy_often(void* to, const void* from, const cuda::Stream& stream) {
  for (int i = 0; i < 50; ++i) {
    const auto handle = static_cast<cudaStream_t>(stream.native_handle());
    ASSERT_EQ(cudaMemcpyAsync(to, from, n * sizeof(float), cudaMemcpyDeviceToDevice, handle), cudaSuccess);
  }
}

TEST_F(DlpackCuda, LentMemoryIsReusedAfterTheBorrowersWork) {
  const cuda::Stream borrower;
  const Tensor copied = zeros({n}, {.device = Device::cuda()});
  Tensor t = ones({n}, {.device = Device::cuda()});
  cuda::Stream(borrower).wait(cuda::current_stream());
  {
    const cuda::StreamGuard guard(borrower);
    DLManagedTensor* managed = to_dlpack(t);
    copy_often(copied.impl()->data(), managed->dl_tensor.data, borrower);
    managed->deleter(managed);
  }
  t = {};
  const Tensor other = full({n}, 5, {.device = Device::cuda()});  // takes the same memory once it is free
  borrower.synchronize();
  EXPECT_EQ(copied.min().item(), 1);
  EXPECT_EQ(copied.max().item(), 1);
}

TEST_F(DlpackCuda, BorrowedMemoryIsGivenBackAfterVoxgradsWork) {
  void* memory = nullptr;
  ASSERT_EQ(cudaMalloc(&memory, n * sizeof(float)), cudaSuccess);
  int64_t shape = n;
  bool idle = false;
  DLManagedTensor managed{{memory, {kDLCUDA, 0}, 1, {kDLFloat, 32, 1}, &shape, nullptr, 0}, &idle, nullptr};
  managed.deleter = [](DLManagedTensor* self) {
    const auto stream = static_cast<cudaStream_t>(cuda::current_stream().native_handle());
    *static_cast<bool*>(self->manager_ctx) = cudaStreamQuery(stream) == cudaSuccess;
  };
  Tensor t = from_dlpack(&managed);
  Tensor copied = empty_like(t);
  for (int i = 0; i < 50; ++i) copied.copy_(t);
  t = {};
  EXPECT_TRUE(idle);
  EXPECT_EQ(cudaFree(memory), cudaSuccess);
}

}  // namespace
}  // namespace vox
