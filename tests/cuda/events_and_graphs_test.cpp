#include <cuda_runtime_api.h>

#include <voxgrad/core/dlpack_abi.h>

#include "tests/support/test.h"

// Events, captured graphs and device properties through the public interface, without a header of CUDA.

namespace vox {
namespace {

class CudaInterface : public testing::CudaTest {};

TEST_F(CudaInterface, EventsMeasureTime) {
  const Tensor x = rand({512, 512}, Device::cuda());
  matmul(x, x);
  cuda::Event begin, end;
  EXPECT_TRUE(begin.is_done()) << "never recorded";
  EXPECT_THROW(end.milliseconds_since(begin), CudaError);
  begin.record();
  Tensor y = x;
  for (int i = 0; i < 10; ++i) y = matmul(y, x);
  end.record();
  const double ms = end.milliseconds_since(begin);
  EXPECT_GT(ms, 0);
  EXPECT_LT(begin.milliseconds_since(begin), ms);
  EXPECT_TRUE(end.is_done());
  cuda::Stream side;
  const cuda::Event copy = end;
  copy.record(side);
  end.synchronize();
}

TEST_F(CudaInterface, AGraphReplaysItsOps) {
  Tensor x = ones({1000}, Device::cuda()), y;
  const auto f = [&] { y = relu(x * 2 - 5) + x; };
  f();  // set-up
  cuda::synchronize();
  const cuda::Graph graph(f);
  for (const double value : {1.0, 4.0, 10.0}) {
    x.fill_(value);
    graph.replay();
    EXPECT_EQ(y.max().item(), std::max(2 * value - 5, 0.0) + value);
    EXPECT_EQ(y.min().item(), y.max().item());
  }
}

TEST_F(CudaInterface, AGraphTrains) {
  Tensor w = full({8}, 3, Device::cuda());
  const auto step = [&] {
    Tensor leaf = w.detach().set_requires_grad();
    sum(leaf * leaf).backward();
    w.add_(leaf.grad(), -0.25);
  };
  step();
  cuda::synchronize();
  w.fill_(16);
  const cuda::Graph graph(step);
  EXPECT_EQ(w[0].item(), 16) << "capturing runs nothing";
  for (int i = 0; i < 3; ++i) graph.replay();
  EXPECT_EQ(w[7].item(), 2);
}

TEST_F(CudaInterface, AGraphPassesErrorsOn) {
  const Tensor x = ones({4}, Device::cuda());
  EXPECT_THROW(cuda::Graph([&] { (void)x.to_vector<float>(); }), CudaError);
  EXPECT_THROW(cuda::Graph([] { throw std::logic_error("mine"); }), std::logic_error);
  EXPECT_THROW(cuda::Graph({}), ValueError);
  EXPECT_THROW(cuda::Graph([] {}, Device::cpu()), DeviceError);
  EXPECT_EQ((x + 1).sum().item(), 8) << "the stream works as before";
}

TEST_F(CudaInterface, Devices) {
  EXPECT_FALSE(cuda::device_name().empty());
  const auto [free, total] = cuda::device_memory();
  EXPECT_GT(total, free);
  EXPECT_GT(free, 0);
  EXPECT_ERRORS(DeviceError, cuda::device_name(Device::cuda(cuda::device_count())),
                cuda::device_memory(Device::cpu()));
  const int64_t before = memory_stats(Device::cuda()).in_use;
  const Tensor x = zeros({1000}, Device::cuda());
  EXPECT_EQ(memory_stats(Device::cuda()).in_use, before + 4000);
}

// Memory that another library uses in a stream of its own. Its work is a chain of copies, of which voxgrad
// sees nothing.

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
