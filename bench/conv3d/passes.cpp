#include <benchmark/benchmark.h>

#include "problems.h"

// Transposed convolutions on the CPU: time and useful operations per second of the seven problems at batch 1:
// forward, backward (all gradients), and each gradient alone.

namespace {

void conv_transpose3d(benchmark::State& state, const Problem& p, const Pass& pass) {
  const Convolution convolution(one_of(p), pass);
  convolution.run();
  for (auto _ : state) benchmark::DoNotOptimize(convolution.run());
  state.counters["FLOP/s"] =
      benchmark::Counter(convolution.operations(), benchmark::Counter::kIsIterationInvariantRate);
}

}  // namespace

int main(int argc, char** argv) {
  for (const Problem& p : problems) {
    for (const Pass& pass : passes) {
      const std::string name = vox::str("conv_transpose3d/", p.number, "/", pass.name, "/cpu");
      benchmark::RegisterBenchmark(name.c_str(),
                                   [&](benchmark::State& state) { conv_transpose3d(state, p, pass); })
          ->Unit(benchmark::kMillisecond)
          ->UseRealTime();
    }
  }
  benchmark::Initialize(&argc, argv);
  benchmark::RunSpecifiedBenchmarks();
}
