#include <benchmark/benchmark.h>

#include <cstdio>

#include <voxgrad/voxgrad.h>

// Transposed convolutions on the CPU and, where there is one, on a GPU: the seven problems of KernelBench
// level 1 (https://github.com/ScalingIntelligence/KernelBench) that are 3-D transposed convolutions, at
// batch 1. Reports time and useful operations per second: 2 * input elements * C_out / groups * kernel
// volume, once for forward, and once each for the gradients of input and weight in backward.

namespace {

struct Problem {
  int number;
  int64_t c_in, c_out;
  vox::Triple input, kernel;
  vox::ConvTranspose3dOptions options = {};
};

const Problem problems[] = {
    {58, 32, 16, {16, 32, 64}, {3, 5, 7}},
    {61, 48, 48, {64, 64, 64}, {3, 3, 3}},
    {68, 32, 64, {64, 64, 64}, {3, 5, 5}},
    {70, 48, 24, {96, 96, 96}, {3, 3, 3}},
    {72,
     32,
     32,
     {12, 24, 48},
     {3, 5, 7},
     {.stride = 2, .padding = {1, 2, 3}, .output_padding = 1, .groups = 4}},
    {73, 32, 32, {32, 64, 128}, {3, 3, 3}, {.stride = 2, .padding = 1}},
    {77, 32, 64, {16, 32, 32}, {3, 3, 3}, {.stride = 2, .padding = 1, .dilation = 2}},
};

void wait(vox::Device device) {
  if (device.is_cuda()) vox::cuda::synchronize(device);
}

void conv_transpose3d(benchmark::State& state, const Problem& p, vox::Device device, bool backward) {
  const auto [d, h, w] = p.input;
  const auto [kd, kh, kw] = p.kernel;
  const vox::TensorOptions options{.device = device};
  vox::Tensor x = vox::randn({1, p.c_in, d, h, w}, options).set_requires_grad(backward);
  vox::Tensor weight =
      vox::randn({p.c_in, p.c_out / p.options.groups, kd, kh, kw}, options).set_requires_grad(backward);
  vox::Tensor bias = vox::randn({p.c_out}, options).set_requires_grad(backward);
  vox::Tensor y = vox::conv_transpose3d(x, weight, bias, p.options);
  const vox::Tensor gy = backward ? vox::randn(y.shape(), options) : vox::Tensor();
  wait(device);
  for (auto _ : state) {
    if (backward)
      benchmark::DoNotOptimize(
          vox::grad({y}, {x, weight, bias}, {.grad_outputs = {gy}, .retain_graph = true}));
    else
      benchmark::DoNotOptimize(vox::conv_transpose3d(x, weight, bias, p.options));
    wait(device);
  }
  const double operations =
      2.0 * static_cast<double>(x.numel() * (p.c_out / p.options.groups) * kd * kh * kw);
  state.counters["FLOP/s"] =
      benchmark::Counter((backward ? 2 : 1) * operations, benchmark::Counter::kIsIterationInvariantRate);
}

}  // namespace

int main(int argc, char** argv) {
  std::vector<vox::Device> devices{vox::Device::cpu()};
  if (vox::cuda::is_available())
    devices.push_back(vox::Device::cuda());
  else
    std::puts("no GPU here: the CPU only");
  for (const vox::Device device : devices) {
    for (const Problem& p : problems) {
      for (const bool backward : {false, true}) {
        const std::string name =
            vox::str("conv_transpose3d/", p.number, "/", backward ? "backward" : "forward", "/", device);
        benchmark::RegisterBenchmark(
            name.c_str(),
            [&p, device, backward](benchmark::State& state) { conv_transpose3d(state, p, device, backward); })
            ->Unit(benchmark::kMillisecond)
            ->UseRealTime();
      }
    }
  }
  benchmark::Initialize(&argc, argv);
  benchmark::RunSpecifiedBenchmarks();
}
