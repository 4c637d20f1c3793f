#include <benchmark/benchmark.h>

#include <cstdio>

#include "problems.h"

// Transposed convolutions on the CPU and, if there is one, on a GPU: time and useful operations per second of
// the seven problems at batch 1: forward, backward (all gradients), and each gradient alone.

namespace {

void wait(vox::Device device) {
  if (device.is_cuda()) vox::cuda::synchronize(device);
}

void conv_transpose3d(benchmark::State& state, const Problem& p, const Pass& pass, vox::Device device) {
  const Convolution convolution(one_of(p), pass, device);
  convolution.run();
  wait(device);
  for (auto _ : state) {
    benchmark::DoNotOptimize(convolution.run());
    wait(device);
  }
  state.counters["FLOP/s"] =
      benchmark::Counter(convolution.operations(), benchmark::Counter::kIsIterationInvariantRate);
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
      for (const Pass& pass : passes) {
        const std::string name = vox::str("conv_transpose3d/", p.number, "/", pass.name, "/", device);
        benchmark::RegisterBenchmark(
            name.c_str(),
            [&p, &pass, device](benchmark::State& state) { conv_transpose3d(state, p, pass, device); })
            ->Unit(benchmark::kMillisecond)
            ->UseRealTime();
      }
    }
  }
  benchmark::Initialize(&argc, argv);
  benchmark::RunSpecifiedBenchmarks();
}
