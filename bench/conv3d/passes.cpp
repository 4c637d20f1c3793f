#include <benchmark/benchmark.h>
#include <voxgrad/ops/conv3d_kernel.h>

#include "problems.h"

// Transposed convolutions on the CPU: time and useful operations per second of the seven problems at batch 1
// (forward, backward with all gradients, and each gradient alone), and of the kernels side by side on a
// sweep.

namespace {

/// By one kernel; by the chosen one if it has no name.
void conv_transpose3d(benchmark::State& state, const Problem& p, const Pass& pass, const char* kernel) {
  const Convolution convolution(one_of(p), pass);
  const vox::ForceConv3dKernel only(kernel);
  try {
    convolution.run();
  } catch (const vox::ValueError&) {
    return state.SkipWithError("not supported");
  }
  for (auto _ : state) benchmark::DoNotOptimize(convolution.run());
  state.counters["FLOP/s"] =
      benchmark::Counter(convolution.operations(), benchmark::Counter::kIsIterationInvariantRate);
}

void add(const std::string& name, const Problem& p, const Pass& pass, const char* kernel) {
  benchmark::RegisterBenchmark(name.c_str(),
                               [=](benchmark::State& state) { conv_transpose3d(state, p, pass, kernel); })
      ->Unit(benchmark::kMillisecond)
      ->UseRealTime();
}

/// Channels, cells, kernels, strides and groups, one after the other.
std::vector<Problem> sweep() {
  std::vector<Problem> all;
  const auto cube = [&](int64_t in, int64_t out, int64_t cells, int64_t kernel, int64_t stride = 1,
                        int64_t groups = 1) {
    all.push_back(
        {0, 1, in, out, cells, kernel, {.stride = stride, .padding = kernel / 2, .groups = groups}});
  };
  for (const int64_t channels : {1, 4, 8, 16, 32, 64, 128}) cube(channels, channels, 12, 3);
  for (const int64_t cells : {1, 2, 4, 8, 24}) cube(64, 64, cells, 3);
  for (const int64_t kernel : {1, 2, 5}) cube(32, 32, 12, kernel);
  for (const int64_t channels : {8, 64}) cube(channels, channels, 8, 4, 2);
  cube(256, 256, 4, 1), cube(256, 256, 4, 3), cube(32, 1, 12, 3), cube(1, 32, 12, 3);
  cube(64, 64, 8, 3, 1, 8), cube(32, 32, 12, 3, 1, 32);
  return all;
}

}  // namespace

int main(int argc, char** argv) {
  for (const Problem& p : problems)
    for (const Pass& pass : passes)
      add(vox::str("conv_transpose3d/", p.number, "/", pass.name, "/cpu"), p, pass, "");
  for (const Problem& p : sweep())
    for (const Pass& pass : {passes[0], passes[2], passes[3]})
      for (const char* kernel : {"direct", "tiled", "winograd"})
        add(vox::str("sweep/", p.c_in, "-", p.c_out, "/cells", p.input.d, "/kernel", p.kernel.d, "/stride",
                     p.options.stride.d, "/groups", p.options.groups, "/", pass.name, "/", kernel),
            p, pass, kernel);
  benchmark::Initialize(&argc, argv);
  benchmark::RunSpecifiedBenchmarks();
}
