// interpolate, pooling and index_select inside a CUDA graph: no op waits, allocates outside the graph or
// copies from the host. See Note [CUDA graphs] in core/cuda.h.
#include <cmath>
#include <functional>

#include <voxgrad/autograd/engine.h>
#include <voxgrad/autograd/grad_mode.h>
#include <voxgrad/core/factories.h>
#include <voxgrad/ops/interpolate.h>
#include <voxgrad/ops/pool3d.h>
#include <voxgrad/ops/shaping.h>
#include "tests/cuda/support.cuh"
#include "tests/support/values.h"

namespace vox::testing {
namespace {

constexpr TensorOptions on_gpu{f32, Device::cuda()};

class CudaVolumeGraph : public ::testing::Test {
 protected:
  void SetUp() override {
    SKIP_WITHOUT_CUDA();
    stream_ = std::make_unique<cuda::Stream>();
    guard_ = std::make_unique<cuda::StreamGuard>(*stream_);
    cuda::synchronize();
  }
  /// Captures `ops` and launches the graph 100 times.
  void replay(const std::function<void()>& ops) {
    cudaGraph_t graph = nullptr;
    cudaGraphExec_t executable = nullptr;
    cuda::synchronize();
    ASSERT_CUDA(cudaStreamBeginCapture(native(*stream_), cudaStreamCaptureModeGlobal));
    EXPECT_NO_THROW(ops());
    ASSERT_CUDA(cudaStreamEndCapture(native(*stream_), &graph));
    ASSERT_CUDA(cudaGraphInstantiate(&executable, graph, 0));
    for (int i = 0; i < 100; ++i) EXPECT_CUDA(cudaGraphLaunch(executable, native(*stream_)));
    cuda::synchronize();
    EXPECT_CUDA(cudaGraphExecDestroy(executable));
    EXPECT_CUDA(cudaGraphDestroy(graph));
  }
  std::unique_ptr<cuda::Stream> stream_;
  std::unique_ptr<cuda::StreamGuard> guard_;
};

TEST_F(CudaVolumeGraph, ForwardAndBackwardReplay) {
  using Op = std::function<Tensor(const Tensor&)>;
  const Tensor indices = from_vector<int64_t>({2, 0, 2, 3}, {4}, Device::cuda());
  const Op ops[] = {
      [](const Tensor& x) {
        return interpolate(x, {.scale_factor = {{2, 1.5, 0.5}}, .mode = InterpolateOptions::Mode::trilinear});
      },
      [](const Tensor& x) { return max_pool3d(x, {.kernel_size = 3, .stride = 2, .padding = 1}); },
      [](const Tensor& x) { return avg_pool3d(x, {.kernel_size = 3, .stride = 2, .padding = 1}); },
      [&](const Tensor& x) { return index_select(x, 2, indices); },
  };
  for (size_t i = 0; i < std::size(ops); ++i) {
    Tensor x = normal({2, 3, 4, 6, 8}, on_gpu).set_requires_grad();
    const Tensor y = ops[i](x);
    const Tensor g = normal(y.shape(), on_gpu, 2);
    const Tensor gx = vox::grad({y}, {x}, {.grad_outputs = {g}})[0];

    Tensor replayed_y = zeros(y.shape(), on_gpu), replayed_gx = zeros(gx.shape(), on_gpu);
    replay([&] {
      const Tensor out = ops[i](x);
      const Tensor grad_x = vox::grad({out}, {x}, {.grad_outputs = {g}})[0];
      const auto guard = no_grad();
      replayed_y.copy_(out);
      replayed_gx.copy_(grad_x);
    });
    EXPECT_TRUE(same_bits(replayed_y, y)) << i;
    EXPECT_TRUE(same_bits(replayed_gx, gx)) << i;
  }
}

// The rule of index_select: outside a capture a bad index throws; inside, where nothing can wait for the
// indices, it reads as NaN and takes no gradient.
TEST_F(CudaVolumeGraph, IndicesOutsideTheTensor) {
  Tensor x = from_vector<float>({1, 2, 3}, {3}, Device::cuda()).set_requires_grad();
  const Tensor indices = from_vector<int64_t>({1, 3, -1, int64_t{1} << 62, 1}, {5}, Device::cuda());
  EXPECT_THROW(index_select(x, 0, indices), ShapeError);

  const Tensor g = ones({5}, on_gpu);
  Tensor y = zeros({5}, on_gpu), gx = zeros({3}, on_gpu);
  replay([&] {
    const Tensor out = index_select(x, 0, indices);
    const Tensor grad_x = vox::grad({out}, {x}, {.grad_outputs = {g}})[0];
    const auto guard = no_grad();
    y.copy_(out);
    gx.copy_(grad_x);
  });
  const std::vector<float> v = y.to_vector<float>();
  EXPECT_EQ(v[0], 2);
  EXPECT_EQ(v[4], 2);
  for (size_t k : {1, 2, 3}) EXPECT_TRUE(std::isnan(v[k])) << k;
  EXPECT_EQ(gx.to_vector<float>(), (std::vector<float>{0, 2, 0}));
}

}  // namespace
}  // namespace vox::testing
