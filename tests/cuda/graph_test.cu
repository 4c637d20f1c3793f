#include <chrono>
#include <cmath>
#include <functional>
#include <thread>

#include <voxgrad/cuda/conv3d/select.h>
#include <voxgrad/ops/kernels.h>
#include <voxgrad/voxgrad.h>

#include "tests/cuda/support.cuh"
#include "tests/support/values.h"

// See Note [CUDA graphs] in core/cuda.h.

namespace vox::testing {
namespace {

using cuda::memory_stats;
using cuda::Stream;
using cuda::StreamGuard;

constexpr int64_t n = 1 << 16;
constexpr TensorOptions on_gpu{f32, Device::cuda()};

/// A graph captured from `ops`, run in the stream that was current then.
class Graph {
 public:
  /// Global is the strictest mode: during the capture CUDA refuses unsafe calls of all threads.
  explicit Graph(const std::function<void()>& ops, unsigned flags = 0) : stream_(cuda::current_stream()) {
    EXPECT_CUDA(cudaStreamBeginCapture(native(stream_), cudaStreamCaptureModeGlobal));
    try {
      ops();
    } catch (...) {
      (void)cudaStreamEndCapture(native(stream_),
                                 &graph_);  // or every test after this one would fail as well
      (void)cudaGetLastError();
      throw;
    }
    EXPECT_CUDA(cudaStreamEndCapture(native(stream_), &graph_));
    EXPECT_CUDA(cudaGraphInstantiate(&executable_, graph_, flags));
  }
  ~Graph() {
    EXPECT_CUDA(cudaGraphExecDestroy(executable_));
    EXPECT_CUDA(cudaGraphDestroy(graph_));
  }
  void launch() const { EXPECT_CUDA(cudaGraphLaunch(executable_, native(stream_))); }

 private:
  cuda::Stream stream_;
  cudaGraph_t graph_ = nullptr;
  cudaGraphExec_t executable_ = nullptr;
};

/// Every test captures in a stream of its own, with nothing pending.
class GraphTest : public ::testing::Test {
 protected:
  void SetUp() override {
    SKIP_WITHOUT_CUDA();
    stream_ = std::make_unique<cuda::Stream>();
    guard_ = std::make_unique<cuda::StreamGuard>(*stream_);
    fill(native_current(), floats(1), 0);  // loads the kernels, which must not happen in a capture
    cuda::synchronize();
  }
  std::unique_ptr<cuda::Stream> stream_;
  std::unique_ptr<cuda::StreamGuard> guard_;
};

class CudaGraph : public GraphTest {};

TEST_F(CudaGraph, KeepsMemoryThatItsCaptureDropped) {
  const int64_t before = memory_stats().in_use;
  const Block y = floats(n);
  Block x = floats(n);
  fill(native_current(), x, 5);
  cuda::synchronize();
  {
    const Graph graph([&] {
      copy_block(y, x);
      x.reset();
    });
    std::vector<Block> others;
    for (int i = 0; i < 16; ++i) {
      others.push_back(floats(n));
      fill(native_current(), others.back(), -1);  // would overwrite x if it had been freed
    }
    for (int i = 0; i < 3; ++i) {
      fill(native_current(), y, 0);
      graph.launch();
      expect_all(y, 5);
    }
    others.clear();
    EXPECT_EQ(memory_stats().in_use, before + 2 * n * 4);
  }
  // CUDA reports from its own thread that the graph is gone.
  for (int i = 0; i < 500 && memory_stats().in_use != before + n * 4; ++i)
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  EXPECT_EQ(memory_stats().in_use, before + n * 4);
}

TEST_F(CudaGraph, NothingIsFreedDuringACapture) {
  const int64_t before = memory_stats().in_use;
  const Block y = floats(n);
  Block unused;
  {
    const StreamGuard other{Stream()};
    unused = floats(n);
  }
  const Graph graph([&] {
    unused.reset();
    fill(native_current(), y, 2);
    EXPECT_EQ(memory_stats().in_use, before + 2 * n * 4);
  });
  EXPECT_EQ(memory_stats().in_use, before + n * 4);
  graph.launch();
  expect_all(y, 2);
}

TEST_F(CudaGraph, AResultThatOutlivesTheCaptureIsWrittenByEveryLaunch) {
  const int64_t before = memory_stats().in_use;
  {
    const Block x = floats(n);
    fill(native_current(), x, 0);
    cuda::synchronize();
    Block y;
    const Graph graph(
        [&] {
          const Block next = floats(n);
          affine(native_current(), next, x, 1, 1);
          copy_block(x, next);
          y = floats(n);
          affine(native_current(), y, x, 3, 0);
        },
        cudaGraphInstantiateFlagAutoFreeOnLaunch);
    EXPECT_EQ(memory_stats().in_use, before + 2 * n * 4) << "x and y, and no temporary of the capture";
    for (int i = 0; i < 100; ++i) graph.launch();
    expect_all(y, 300);
  }
  EXPECT_EQ(memory_stats().in_use, before);
  cuda::synchronize();
}

TEST_F(CudaGraph, MayBeDroppedUnlaunched) {
  const int64_t before = memory_stats().in_use;
  {
    Block y;
    const Graph graph([&] {
      y = floats(n);
      fill(native_current(), y, 1);
    });
    y.reset();
  }
  EXPECT_EQ(memory_stats().in_use, before);
  EXPECT_EQ(cudaGetLastError(), cudaSuccess);
}

TEST_F(CudaGraph, StreamsMayForkAndJoinInside) {
  const Stream side;
  const Block y = floats(n);
  const Graph graph([&] {
    Block a = floats(n);
    fill(native_current(), a, 3);
    Block b;
    side.wait(*stream_);
    {
      const StreamGuard guard(side);
      b = floats(n);
      copy_block(b, a);
    }
    stream_->wait(side);
    a.reset();                             // used in both streams
    affine(native_current(), y, b, 2, 0);  // b was allocated in the side stream, which is joined already
    b.reset();
  });
  for (int i = 0; i < 3; ++i) {
    fill(native_current(), y, 0);
    graph.launch();
    expect_all(y, 6);
  }
}

TEST_F(CudaGraph, WhatCannotBeCapturedIsRefusedAndSpoilsNothing) {
  const Block y = floats(n);
  std::vector<float> host(n);
  const Graph graph([&] {
    const auto to_host = [&] { read(y); };
    EXPECT_NE(message_of<CudaError>(to_host).find("captured"), std::string::npos);
    EXPECT_ERRORS(CudaError,
                  cuda::copy(y->data(), 0, host.data(), 0, y->bytes(), cuda::CopyKind::host_to_device),
                  cuda::synchronize(), stream_->synchronize());
    EXPECT_NO_THROW(cuda::empty_cache());
    fill(native_current(), y, 4);
  });
  graph.launch();
  expect_all(y, 4);
}

// Ops inside a captured graph (Note [CUDA graphs] in core/cuda.h): no op waits, allocates outside the graph
// or copies from the host, and 100 launches give the same bits as 100 eager runs, forward and backward.

class CudaGraphOps : public GraphTest {};

/// Replays `run`, which reads `inputs` and writes `outputs`, on changing inputs, and compares with eager
/// runs.
void expect_replays(const std::vector<Tensor>& inputs, const std::vector<Tensor>& outputs, uint64_t times,
                    const std::function<void()>& run) {
  run();
  cuda::synchronize();
  const Graph graph(run);
  for (uint64_t i = 0; i < times; ++i) {
    for (size_t k = 0; k < inputs.size(); ++k) {
      Tensor input = inputs[k];
      input.copy_(normal(input.shape(), on_gpu, 10 * i + k));
    }
    run();
    std::vector<Tensor> expected;
    for (const Tensor& output : outputs) expected.push_back(output.clone());
    for (Tensor output : outputs) output.fill_(-1);
    graph.launch();
    for (size_t k = 0; k < outputs.size(); ++k)
      ASSERT_TRUE(same_bits(outputs[k], expected[k])) << i << ", " << k;
  }
}

/// The same for y = op(x) and its gradients of x and of the parameters.
void expect_replays(const std::function<Tensor(const Tensor&)>& op,
                    const std::vector<Tensor>& parameters = {}) {
  const Tensor x = normal({2, 3, 4, 6, 8}, on_gpu).set_requires_grad();
  const Tensor g = normal(op(x).shape(), on_gpu, 3);
  std::vector<Tensor> inputs = parameters, results;
  inputs.push_back(x);
  const auto run = [&] {
    const Tensor y = op(x);
    std::vector<Tensor> all = vox::grad({y}, inputs, {.grad_outputs = {g}});
    all.push_back(y.detach());
    return all;
  };
  for (const Tensor& result : run()) results.push_back(empty_like(result));
  expect_replays({x.detach()}, results, 100, [&] {
    const std::vector<Tensor> now = run();
    for (size_t k = 0; k < now.size(); ++k) results[k].copy_(now[k]);
  });
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

// A training step inside a captured graph (Note [CUDA graphs] in core/cuda.h): 100 launches leave the same
// bits in the network as 100 eager steps, at every precision. Every conv3d kernel of the table is captured as
// well.

constexpr Float32Precision precisions[]{Float32Precision::highest, Float32Precision::high,
                                        Float32Precision::medium};

/// A small network with one layer of each kind that the table of kernels distinguishes, and its optimiser.
struct Trainee {
  nn::Sequential net{
      nn::Conv3d({.in_channels = 4, .out_channels = 32, .kernel_size = 3, .padding = 1}),
      nn::ReLU(),
      nn::ConvTranspose3d({.in_channels = 32, .out_channels = 32, .kernel_size = 3, .padding = 1}),
      nn::ReLU(),
      nn::ConvTranspose3d(
          {.in_channels = 32, .out_channels = 16, .kernel_size = 4, .stride = 2, .padding = 1, .groups = 2}),
      nn::ReLU(),
      nn::Conv3d({.in_channels = 16,
                  .out_channels = 24,
                  .kernel_size = {1, 3, 5},
                  .stride = 2,
                  .padding = {0, 1, 2}}),
      nn::ConvTranspose3d({.in_channels = 24, .out_channels = 8, .kernel_size = 2, .stride = 2}),
      nn::Conv3d({.in_channels = 8, .out_channels = 3, .kernel_size = 1})};
  std::unique_ptr<optim::SGD> optimizer;
  Tensor x = empty({2, 4, 6, 8, 10}, on_gpu), target = empty({2, 3, 12, 16, 20}, on_gpu);
  Tensor loss = empty({}, on_gpu);  // of the last step

  Trainee() {
    net.to(Device::cuda());
    optimizer =
        std::make_unique<optim::SGD>(net.parameters(), optim::SGD::Options{.lr = 1e-2, .momentum = 0.9});
  }

  /// Fresh data, outside the graph.
  void next_batch(uint64_t number) {
    x.copy_(normal(x.shape(), on_gpu, number));
    target.copy_(normal(target.shape(), on_gpu, number + 1000));
  }

  void step() {
    Tensor l = mse_loss(net(x), target);
    l.backward();
    optimizer->step();
    optimizer->zero_grad();
    const auto guard = no_grad();
    loss.copy_(l);
  }
};

class CudaGraphTraining : public GraphTest, public ::testing::WithParamInterface<Float32Precision> {};

TEST_P(CudaGraphTraining, HundredReplaysAreAHundredSteps) {
  const PrecisionGuard precision(GetParam());
  manual_seed(7);
  Trainee eager, captured;
  captured.net.load_state_dict(eager.net.state_dict());
  // Lazy set-up (kernels, the optimiser's buffers) cannot be captured: both take one step before.
  for (Trainee* t : {&eager, &captured}) {
    t->next_batch(0);
    t->step();
  }
  cuda::synchronize();
  const Graph graph([&] { captured.step(); });
  for (uint64_t i = 1; i <= 100; ++i) {
    eager.next_batch(i);
    eager.step();
    captured.next_batch(i);
    captured.loss.fill_(-1);
    graph.launch();
    ASSERT_TRUE(same_bits(captured.loss, eager.loss)) << "step " << i;
  }
  const auto expected = eager.net.named_parameters(), got = captured.net.named_parameters();
  for (size_t i = 0; i < expected.size(); ++i)
    EXPECT_TRUE(same_bits(got[i].second, expected[i].second)) << expected[i].first;
  EXPECT_GT(eager.loss.item(), 0);  // also false for NaN
}

INSTANTIATE_TEST_SUITE_P(Precisions, CudaGraphTraining, ::testing::ValuesIn(precisions));

class CudaGraphOptimizers : public GraphTest {};

/// `step` in a graph counts its updates on the device: its launches are further steps, and a checkpoint made
/// after them continues.
TEST_F(CudaGraphOptimizers, AReplayedStepCountsOn) {
  const auto make = [] { return normal({1000}, on_gpu).set_requires_grad(); };
  Tensor eager = make(), captured = make(), g = empty({1000}, on_gpu);
  optim::AdamW a({eager}, {.lr = 0.1}), b({captured}, {.lr = 0.1});
  eager.set_grad(g), captured.set_grad(g);
  const auto next = [&](uint64_t number) { g.copy_(normal(g.shape(), on_gpu, number)); };
  next(0);
  a.step(), b.step();
  cuda::synchronize();
  const Graph graph([&] { b.step(); });  // captured, not run
  for (uint64_t i = 1; i <= 20; ++i) {
    next(i);
    a.step();
    graph.launch();
    ASSERT_TRUE(same_bits(captured.detach(), eager.detach())) << "step " << i;
  }
  const auto state = b.state_dict();
  EXPECT_EQ(state.at("updates").to_vector<int64_t>(), std::vector<int64_t>{21});
  EXPECT_EQ(state.at("step").item<int64_t>(), 21);
  optim::AdamW resumed({captured}, {.lr = 0.1});
  resumed.load_state_dict(state);
  next(21);
  a.step(), resumed.step();
  EXPECT_TRUE(same_bits(captured.detach(), eager.detach()));
}

struct Case {
  Shape input, weight;
  ConvTranspose3dOptions options;
};
const Case cases[]{
    {{2, 32, 4, 6, 10}, {32, 16, 3, 3, 3}, {}},
    {{2, 16, 4, 6, 10}, {16, 24, 3, 4, 5}, {.stride = 2, .padding = 1}},
    {{2, 32, 4, 6, 10}, {32, 8, 3, 3, 3}, {.stride = 2, .padding = 1, .groups = 4, .dilation = 2}},
    {{2, 16, 4, 6, 10}, {16, 16, 1, 1, 1}, {}},
    {{1, 3, 4, 6, 10}, {3, 5, 2, 2, 2}, {.stride = 2}},
};

class CudaGraphConv3d : public GraphTest {};

TEST_F(CudaGraphConv3d, EveryKernelOfTheTableReplays) {
  for (const std::string_view name : cuda::conv3d_kernel_names()) {
    for (const Float32Precision precision : precisions) {
      for (const Case& c : cases) {
        SCOPED_TRACE(str(name, ", precision ", static_cast<int>(precision), ", input ", c.input, ", weight ",
                         c.weight, ", stride ", c.options.stride));
        const auto g = detail::conv_transpose3d_geometry("test", c.input, c.weight, c.options);
        Tensor big = normal(g.big_shape(), on_gpu), small = normal(g.small_shape(), on_gpu, 1);
        Tensor weight = normal(g.weight_shape(), on_gpu, 2);
        Tensor big_bias = normal({g.big_channels}, on_gpu, 3);
        const auto takes = [&](Conv3dPass pass) {
          return cuda::conv3d_kernel_supports(name, {pass, g, f32, precision});
        };
        const ForceConv3dKernel only(name);
        if (takes(Conv3dPass::conv_transpose3d))
          expect_replays({small, weight, big_bias}, {big}, 10,
                         [&] { cuda::conv_transpose3d(small, weight, big_bias, big, g, precision); });
        if (takes(Conv3dPass::conv3d))
          expect_replays({big, weight}, {small}, 10,
                         [&] { cuda::conv3d(big, weight, {}, small, g, precision); });
        if (takes(Conv3dPass::weight_grad))
          expect_replays({big, small}, {weight, big_bias}, 10, [&] {
            cuda::conv3d_weight_grad(big, small, weight, big_bias, Grid::big, g, precision);
          });
      }
    }
  }
}

}  // namespace
}  // namespace vox::testing
