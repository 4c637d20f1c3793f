// A sweep over neighbouring geometries of the conv3d family on a GPU, to find jumps in time. A line is a list
// of geometries that differ in one parameter. Each geometry runs in the three passes with the kernel that the
// table chooses or, with --all-kernels, with every kernel that takes the problem. Times are measured by
// events, with the L2 cache flushed before each run.
//
//   bench_conv3d_sweep [--all-kernels] [arithmetic...] > sweep.json
//   python3 bench/conv3d/sweep.py sweep.json --svg docs/conv3d_sweep.svg
//   python3 bench/conv3d/sweep.py sweep.json --table
//
// `arithmetic` is high (default), highest, medium, bf16 or f16. The second command finds the jumps and draws
// the picture; the third, after --all-kernels, shows how much each kernel of the table gains.

#include <cstdio>
#include <string>

#include "on_gpu.h"
#include "sweep_lines.h"

namespace {

using sweep::Line;
using vox::cuda::Conv3dPass;

/// Useful operations: two for every pair of channels and every coarse cell and tap that meet a fine cell.
double operations(const vox::Conv3dGeometry& g) {
  double pairs = 1;
  for (int64_t axis = 0; axis < 3; ++axis) {
    int64_t meet = 0;
    for (int64_t i = 0; i < g.small[axis]; ++i)
      for (int64_t k = 0; k < g.kernel[axis]; ++k) {
        const int64_t o = i * g.stride[axis] - g.padding[axis] + k * g.dilation[axis];
        meet += o >= 0 && o < g.big[axis];
      }
    pairs *= static_cast<double>(meet);
  }
  return 2 * pairs * static_cast<double>(g.batch * g.small_channels * g.big_per_group());
}

constexpr const char* pass_names[]{"conv3d", "conv_transpose3d", "weight_grad"};

/// The median time of 5 runs, or the time of one run if it takes more than 20 ms.
template <class Run>
double milliseconds(EventClock& clock, Run run) {
  const double first = clock.once(run);
  return first > 20 ? first : clock.median(5, run);
}

/// Prints the results for one geometry, each after the contents of `separator`.
void measure(EventClock& clock, const Line& l, size_t i, const Arithmetic& in, bool all_kernels,
             const char*& separator) {
  const vox::Conv3dGeometry g = geometry_of(l.points[i]);
  KernelCalls calls(g, in);
  const double elements = static_cast<double>(calls.big.numel() + calls.small.numel() + calls.weight.numel());
  for (const Conv3dPass pass : kernel_passes) {
    const vox::cuda::Conv3dProblem problem{pass, g, in.dtype, in.precision};
    const std::string_view chosen = vox::cuda::chosen_conv3d_kernel(problem);
    for (const std::string_view kernel : vox::cuda::conv3d_kernel_names()) {
      const bool runs = kernel == chosen || (all_kernels && kernel != "direct");
      if (!runs || !vox::cuda::conv3d_kernel_takes(kernel, problem)) continue;
      const vox::cuda::ForceConv3dKernel only(kernel);
      const double ms = milliseconds(clock, [&] { calls.run(pass); });
      std::printf(
          "%s\n  {\"line\": \"%s\", \"point\": \"%s\", \"pass\": \"%s\", \"precision\": \"%s\", "
          "\"kernel\": \"%s\", \"chosen\": %s, \"ms\": %.6g, \"operations\": %.9g, \"bytes\": %.9g, "
          "\"shape\": \"%s\"}",
          separator, l.name.c_str(), l.labels[i].c_str(), pass_names[static_cast<int>(pass)],
          std::string(in.name).c_str(), std::string(kernel).c_str(), kernel == chosen ? "true" : "false", ms,
          operations(g), elements * static_cast<double>(vox::size_of(in.dtype)),
          vox::str(g.small_shape(), " ", g.weight_shape(), " ", g.big_shape()).c_str());
      separator = ",";
    }
  }
  std::fflush(stdout);
}

__global__ void empty_kernel() {}

}  // namespace

int main(int argc, char** argv) {
  std::vector<Arithmetic> chosen;
  bool all_kernels = false;
  for (int i = 1; i < argc; ++i) {
    if (std::string_view(argv[i]) == "--all-kernels") {
      all_kernels = true;
      continue;
    }
    const auto* found = std::ranges::find(arithmetics, std::string_view(argv[i]), &Arithmetic::name);
    if (found == std::end(arithmetics)) {
      std::fprintf(stderr, "arithmetic: got %s, allowed are high, highest, medium, bf16 and f16\n", argv[i]);
      return 1;
    }
    chosen.push_back(*found);
  }
  if (chosen.empty()) chosen.push_back(arithmetics[0]);
  const std::vector<Line> lines = sweep::all_lines();
  size_t count = 0;
  for (const Line& l : lines) count += l.points.size();
  if (!vox::cuda::is_available()) {
    std::fprintf(stderr, "no GPU here; the sweep has %zu geometries\n", count);
    return 0;
  }

  cudaDeviceProp properties;
  cudaGetDeviceProperties(&properties, 0);
  EventClock clock;
  // Part of the floor: the time of a kernel that does nothing.
  const auto stream = static_cast<cudaStream_t>(vox::cuda::current_stream().native_handle());
  const double launch_ms = milliseconds(clock, [&] { empty_kernel<<<1, 32, 0, stream>>>(); });
  std::printf("{\"device\": \"%s\", \"geometries\": %zu, \"launch_ms\": %.6g, \"rows\": [", properties.name,
              count, launch_ms);
  const char* separator = "";
  for (const Arithmetic& in : chosen)
    for (const Line& l : lines)
      for (size_t i = 0; i < l.points.size(); ++i) measure(clock, l, i, in, all_kernels, separator);
  std::printf("\n]}\n");
}
