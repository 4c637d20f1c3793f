// Ops inside a captured graph (Note [CUDA graphs] in core/cuda.h): no op waits, allocates outside the graph
// or copies from the host, and 100 launches give the same bits as 100 eager runs, forward and backward.
#include <voxgrad/voxgrad.h>

#include <cmath>
#include <thread>

#include "tests/cuda/graph.cuh"
#include "tests/support/values.h"

namespace vox::testing {
namespace {

constexpr TensorOptions on_gpu{f32, Device::cuda()};

class CudaGraphOps : public GraphTest {};

/// Replays y = op(x) and its gradients of x and of the parameters, each time with another x.
void expect_replays(const std::function<Tensor(const Tensor&)>& op,
                    const std::vector<Tensor>& parameters = {}) {
  Tensor x = normal({2, 3, 4, 6, 8}, on_gpu).set_requires_grad();
  const Tensor step = normal(x.shape(), on_gpu, 2), g = normal(op(x).shape(), on_gpu, 3);
  std::vector<Tensor> inputs = parameters;
  inputs.push_back(x);
  const auto run = [&] {
    const Tensor y = op(x);
    std::vector<Tensor> all = vox::grad({y}, inputs, {.grad_outputs = {g}});
    all.push_back(y.detach());
    return all;
  };
  std::vector<Tensor> results = run();
  for (Tensor& result : results) result = empty_like(result);
  cuda::synchronize();
  const Graph graph([&] {
    const std::vector<Tensor> now = run();
    for (size_t k = 0; k < now.size(); ++k) results[k].copy_(now[k]);
  });
  for (int i = 0; i < 100; ++i) {
    x.detach().add_(step, 0.125);
    for (Tensor& result : results) result.fill_(-1);
    graph.launch();
    const std::vector<Tensor> eager = run();
    for (size_t k = 0; k < eager.size(); ++k) ASSERT_TRUE(same_bits(results[k], eager[k])) << i << ", " << k;
  }
}

TEST_F(CudaGraphOps, ForwardAndBackwardReplay) {
  const Tensor w = normal({3, 2, 4, 4, 4}, on_gpu, 4).set_requires_grad(),
               b = normal({2}, on_gpu, 5).set_requires_grad();
  const Tensor indices = from_vector<int64_t>({2, 0, 2, 3}, {4}, Device::cuda());
  expect_replays(
      [&](const Tensor& x) { return relu(conv_transpose3d(x, w, b, {.stride = 2, .padding = 1})) * 0.5 + 1; },
      {w, b});
  expect_replays([](const Tensor& x) {
    return interpolate(x, {.scale_factor = {{2, 1.5, 0.5}}, .mode = InterpolateOptions::Mode::trilinear});
  });
  expect_replays(
      [](const Tensor& x) { return max_pool3d(x, {.kernel_size = 3, .stride = 2, .padding = 1}); });
  expect_replays(
      [](const Tensor& x) { return avg_pool3d(x, {.kernel_size = 3, .stride = 2, .padding = 1}); });
  expect_replays([&](const Tensor& x) { return index_select(x, 2, indices); });
}

// The rule of index_select: outside a capture a bad index throws; inside, where nothing can wait for the
// indices, it reads as NaN and takes no gradient.
TEST_F(CudaGraphOps, IndicesOutsideTheTensor) {
  Tensor x = from_vector<float>({1, 2, 3}, {3}, Device::cuda()).set_requires_grad();
  const Tensor indices = from_vector<int64_t>({1, 3, -1, int64_t{1} << 62, 1}, {5}, Device::cuda());
  EXPECT_THROW(index_select(x, 0, indices), ShapeError);

  const Tensor g = ones({5}, on_gpu);
  Tensor y = zeros({5}, on_gpu), gx = zeros({3}, on_gpu);
  cuda::synchronize();
  const Graph graph([&] {
    const Tensor out = index_select(x, 0, indices);
    gx.copy_(vox::grad({out}, {x}, {.grad_outputs = {g}})[0]);
    y.copy_(out.detach());
  });
  for (int i = 0; i < 100; ++i) graph.launch();
  const std::vector<float> v = y.to_vector<float>();
  EXPECT_EQ(v[0], 2);
  EXPECT_EQ(v[4], 2);
  for (size_t k : {1, 2, 3}) EXPECT_TRUE(std::isnan(v[k])) << k;
  EXPECT_EQ(gx.to_vector<float>(), (std::vector<float>{0, 2, 0}));
}

// In CUDA's strictest capture mode many calls of other threads are refused, but our ops need none of them.
TEST_F(CudaGraphOps, OtherThreadsConvolveDuringACapture) {
  const PrecisionGuard precision(Float32Precision::high);
  const Tensor wide = normal({1, 16, 4, 5, 6}, on_gpu), weight = normal({16, 16, 3, 3, 3}, on_gpu, 2),
               x = normal({1000}, on_gpu, 3);
  const auto expected = conv_transpose3d(wide, weight).to_vector<float>();
  relu(x);  // loads the kernel
  cuda::synchronize();
  std::vector<float> got;
  Tensor result = empty(x.shape(), on_gpu);
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
