// A sweep over neighbouring geometries of the conv3d family on a GPU, which looks for cliffs: lines of
// geometries that differ in one parameter, and for each the three passes in f32 with the kernel that the
// table chooses. Times are by events, with the L2 cache flushed before each run.
//
//   bench_conv3d_sweep [precision...] > sweep.json     of highest, high, medium (default: high)
//   python3 bench/conv3d/sweep.py sweep.json --svg docs/conv3d_sweep.svg
//
// The second command finds the cliffs and draws the picture.

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
constexpr const char* precision_names[]{"highest", "high", "medium"};

/// The median of 5 runs; of one if it takes more than 20 ms.
template <class Run>
double milliseconds(EventClock& clock, Run run) {
  const double first = clock.once(run);
  return first > 20 ? first : clock.median(5, run);
}

void measure(EventClock& clock, const Line& l, size_t i, vox::Float32Precision precision, bool first) {
  const vox::Conv3dGeometry g = geometry_of(l.points[i]);
  KernelCalls calls(g, vox::f32, precision);
  for (const Conv3dPass pass : kernel_passes) {
    const double ms = milliseconds(clock, [&] { calls.run(pass); });
    const std::string kernel(vox::cuda::chosen_conv3d_kernel({pass, g, vox::f32, precision}));
    std::printf(
        "%s\n  {\"line\": \"%s\", \"point\": \"%s\", \"pass\": \"%s\", \"precision\": \"%s\", \"kernel\": "
        "\"%s\", "
        "\"ms\": %.6g, \"operations\": %.9g, \"bytes\": %.9g, \"shape\": \"%s\"}",
        first && pass == Conv3dPass::conv_transpose3d ? "" : ",", l.name.c_str(), l.labels[i].c_str(),
        pass_names[static_cast<int>(pass)], precision_names[static_cast<int>(precision)], kernel.c_str(), ms,
        operations(g),
        4.0 * static_cast<double>(calls.big.numel() + calls.small.numel() + calls.weight.numel()),
        vox::str(g.small_shape(), " ", g.weight_shape(), " ", g.big_shape()).c_str());
  }
  std::fflush(stdout);
}

__global__ void empty_kernel() {}

}  // namespace

int main(int argc, char** argv) {
  std::vector<vox::Float32Precision> precisions;
  for (int i = 1; i < argc; ++i) {
    const auto* found = std::ranges::find(precision_names, std::string_view(argv[i]));
    if (found == std::end(precision_names)) {
      std::fprintf(stderr, "precision: got %s, allowed are highest, high and medium\n", argv[i]);
      return 1;
    }
    precisions.push_back(static_cast<vox::Float32Precision>(found - precision_names));
  }
  if (precisions.empty()) precisions = {vox::Float32Precision::high};
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
  bool first = true;
  for (const vox::Float32Precision precision : precisions)
    for (const Line& l : lines)
      for (size_t i = 0; i < l.points.size(); ++i, first = false) measure(clock, l, i, precision, first);
  std::printf("\n]}\n");
}
