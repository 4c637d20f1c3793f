// Ops inside a captured graph (Note [CUDA graphs] in core/cuda.h): 100 launches give the same bits as 100
// eager runs, forward and backward.
#include <voxgrad/autograd/grad_mode.h>
#include <voxgrad/core/factories.h>
#include <voxgrad/ops/conv3d.h>
#include <voxgrad/ops/elementwise.h>
#include <voxgrad/ops/precision.h>

#include <thread>

#include "tests/cuda/graph.cuh"

namespace vox::testing {
namespace {

/// An upsampling layer on the GPU with small random numbers.
class CudaGraphOps : public GraphTest {
 protected:
  void SetUp() override {
    GraphTest::SetUp();
    if (!cuda::is_available()) return;
    const TensorOptions on_gpu{.dtype = f32, .device = Device::cuda()};
    manual_seed(1);
    x = randn({2, 3, 4, 5, 6}, on_gpu);
    w = randn({3, 2, 4, 4, 4}, on_gpu);
    b = randn({2}, on_gpu);
    step = randn(x.shape(), on_gpu);
  }
  Tensor forward() const { return relu(conv_transpose3d(x, w, b, {.stride = 2, .padding = 1})) * 0.5 + 1; }
  /// Changes x and runs `graph`, 100 times: each time `result` must equal what `eager()` returns.
  void expect_same(const Graph& graph, const Tensor& result, const std::function<Tensor()>& eager) {
    for (int i = 0; i < 100; ++i) {
      {
        const auto guard = no_grad();
        x.add_(step, 0.125);
        result.detach().fill_(-1);
      }
      graph.launch();
      ASSERT_EQ(result.to_vector<float>(), eager().to_vector<float>()) << "launch " << i;
    }
  }
  Tensor x, w, b, step;
};

TEST_F(CudaGraphOps, ForwardChain) {
  const auto guard = no_grad();
  Tensor result = empty_like(forward());
  cuda::synchronize();
  const Graph graph([&] { result.copy_(forward()); });
  expect_same(graph, result, [&] { return forward(); });
}

TEST_F(CudaGraphOps, ForwardAndBackward) {
  w.set_requires_grad();
  const auto gradient = [&] {
    (forward() * forward()).sum().backward();
    const Tensor g = w.grad();
    w.zero_grad();
    return g;
  };
  Tensor result = empty_like(gradient());
  cuda::synchronize();
  const Graph graph([&] {
    const Tensor g = gradient();
    const auto guard = no_grad();
    result.copy_(g);
  });
  expect_same(graph, result, gradient);
}

// In CUDA's strictest capture mode many calls of other threads are refused, but our ops need none of them.
TEST_F(CudaGraphOps, OtherThreadsConvolveDuringACapture) {
  const PrecisionGuard precision(Float32Precision::high);
  const Tensor wide = randn({1, 16, 4, 5, 6}, x.options()), weight = randn({16, 16, 3, 3, 3}, x.options());
  const auto expected = conv_transpose3d(wide, weight).to_vector<float>();
  cuda::synchronize();
  std::vector<float> got;
  Tensor result = empty(x.shape(), x.options());
  const Graph graph([&] {
    std::thread([&] {
      const PrecisionGuard same(Float32Precision::high);
      const cuda::StreamGuard guard{cuda::Stream()};
      try {
        for (int i = 0; i < 10; ++i) got = conv_transpose3d(wide, weight).to_vector<float>();
      } catch (const Error& error) {
        ADD_FAILURE() << error.what();
      }
    }).join();
    result.copy_(relu(x));
  });
  EXPECT_EQ(got, expected);
  graph.launch();
  EXPECT_EQ(result.to_vector<float>(), relu(x).to_vector<float>());
}

}  // namespace
}  // namespace vox::testing
