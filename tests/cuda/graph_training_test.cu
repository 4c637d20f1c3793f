// A training step inside a captured graph (Note [CUDA graphs] in core/cuda.h): 100 launches leave the same
// bits in the network as 100 eager steps, at every precision. Every conv3d kernel of the table is captured as
// well.
#include <voxgrad/cuda/conv3d/select.h>
#include <voxgrad/ops/kernels.h>
#include <voxgrad/voxgrad.h>

#include "tests/cuda/graph.cuh"
#include "tests/support/values.h"

namespace vox::testing {
namespace {

constexpr TensorOptions on_gpu{f32, Device::cuda()};
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

// ---- Optimisers -------------------------------------------------------------------------------------------

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

// ---- Kernel by kernel -------------------------------------------------------------------------------------

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

/// Replays `run`, which reads `inputs` and writes `outputs`, on changing inputs, and compares with eager
/// runs.
void expect_replays(const std::vector<Tensor>& inputs, const std::vector<Tensor>& outputs,
                    const std::function<void()>& run) {
  run();
  cuda::synchronize();
  const Graph graph(run);
  for (uint64_t i = 0; i < 10; ++i) {
    for (size_t k = 0; k < inputs.size(); ++k) {
      Tensor input = inputs[k];
      input.copy_(normal(input.shape(), on_gpu, 10 * i + k));
    }
    run();
    std::vector<Tensor> expected;
    for (const Tensor& output : outputs) expected.push_back(output.clone());
    for (Tensor output : outputs) output.fill_(-1);
    graph.launch();
    for (size_t k = 0; k < outputs.size(); ++k) ASSERT_TRUE(same_bits(outputs[k], expected[k])) << k;
  }
}

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
          expect_replays({small, weight, big_bias}, {big},
                         [&] { cuda::conv_transpose3d(small, weight, big_bias, big, g, precision); });
        if (takes(Conv3dPass::conv3d))
          expect_replays({big, weight}, {small}, [&] { cuda::conv3d(big, weight, {}, small, g, precision); });
        if (takes(Conv3dPass::weight_grad))
          expect_replays({big, small}, {weight, big_bias}, [&] {
            cuda::conv3d_weight_grad(big, small, weight, big_bias, Grid::big, g, precision);
          });
      }
    }
  }
}

}  // namespace
}  // namespace vox::testing
