// A sweep over neighbouring geometries of the conv3d family on a GPU: is there a cliff? Lines of geometries
// that differ in one parameter; for each the three passes, with the kernel that the table chooses, in f32.
//
//   bench_conv3d_sweep [precision...] > sweep.json     of highest, high, medium (default: high)
//   python3 bench/conv3d_sweep.py sweep.json --svg docs/conv3d_sweep.svg
//
// The second command finds the jumps and draws the picture. A time is the median of 5 runs (one, where a run
// takes more than 20 ms), by events, the L2 cache flushed before each.

#include <cuda_runtime.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <string>
#include <vector>

#include <voxgrad/cuda/conv3d/select.h>
#include <voxgrad/ops/conv3d_kernels.h>
#include <voxgrad/voxgrad.h>
#include "bench/conv3d_sweep/lines.h"

namespace {

using sweep::Line;
using sweep::Point;
using vox::Tensor;
using vox::cuda::Conv3dPass;

/// What is timed: bytes that no cache holds, and the host well ahead of the device.
class Clock {
 public:
  Clock() : flush_(vox::empty({int64_t{1} << 26}, {.device = vox::Device::cuda()})) {
    cudaEventCreate(&begin_), cudaEventCreate(&end_);
  }
  ~Clock() { cudaEventDestroy(begin_), cudaEventDestroy(end_); }

  template <class Run>
  double median_ms(Run run) {
    const double first = once(run);
    if (first > 20) return first;
    std::array<double, 5> times;
    for (double& time : times) time = once(run);
    std::ranges::sort(times);
    return times[2];
  }

 private:
  template <class Run>
  double once(Run run) {
    const auto stream = static_cast<cudaStream_t>(vox::cuda::current_stream().native_handle());
    flush_.zero_();
    cudaEventRecord(begin_, stream);
    run();
    cudaEventRecord(end_, stream);
    cudaEventSynchronize(end_);
    float ms = 0;
    cudaEventElapsedTime(&ms, begin_, end_);
    return ms;
  }

  Tensor flush_;
  cudaEvent_t begin_ = nullptr, end_ = nullptr;
};

/// Two for every coarse cell and tap that meet a fine cell, and every pair of channels.
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

void measure(Clock& clock, const Line& l, size_t i, vox::Float32Precision precision, bool first) {
  const Point& p = l.points[i];
  const auto [d, h, w] = p.input;
  const vox::Shape input{p.batch, p.c_in, d, h, w};
  const vox::Shape weight_shape{p.c_in, p.c_out / p.options.groups, p.kernel.d, p.kernel.h, p.kernel.w};
  const auto g = vox::detail::conv_transpose3d_geometry("bench_conv3d_sweep", input, weight_shape, p.options);
  const vox::TensorOptions options{.device = vox::Device::cuda()};
  Tensor big = vox::randn(g.big_shape(), options), small = vox::randn(g.small_shape(), options);
  Tensor weight = vox::randn(g.weight_shape(), options), no_bias;
  for (const Conv3dPass pass : {Conv3dPass::conv_transpose3d, Conv3dPass::conv3d, Conv3dPass::weight_grad}) {
    const double ms = clock.median_ms([&] {
      if (pass == Conv3dPass::conv3d)
        vox::cuda::conv3d(big, weight, {}, small, g, precision);
      else if (pass == Conv3dPass::conv_transpose3d)
        vox::cuda::conv_transpose3d(small, weight, {}, big, g, precision);
      else
        vox::cuda::conv3d_weight_grad(big, small, weight, no_bias, vox::Grid::big, g, precision);
    });
    const std::string kernel(vox::cuda::chosen_conv3d_kernel({pass, g, vox::f32, precision}));
    std::printf(
        "%s\n  {\"line\": \"%s\", \"point\": \"%s\", \"pass\": \"%s\", \"precision\": \"%s\", \"kernel\": "
        "\"%s\", "
        "\"ms\": %.6g, \"operations\": %.9g, \"bytes\": %.9g, \"shape\": \"%s\"}",
        first && pass == Conv3dPass::conv_transpose3d ? "" : ",", l.name.c_str(), l.labels[i].c_str(),
        pass_names[static_cast<int>(pass)], precision_names[static_cast<int>(precision)], kernel.c_str(), ms,
        operations(g), 4.0 * static_cast<double>(big.numel() + small.numel() + weight.numel()),
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
  Clock clock;
  // Part of the floor: what a call of one kernel takes that has nothing to do.
  const auto stream = static_cast<cudaStream_t>(vox::cuda::current_stream().native_handle());
  const double launch_ms = clock.median_ms([&] { empty_kernel<<<1, 32, 0, stream>>>(); });
  std::printf("{\"device\": \"%s\", \"geometries\": %zu, \"launch_ms\": %.6g, \"rows\": [", properties.name,
              count, launch_ms);
  bool first = true;
  for (const vox::Float32Precision precision : precisions)
    for (const Line& l : lines)
      for (size_t i = 0; i < l.points.size(); ++i, first = false) measure(clock, l, i, precision, first);
  std::printf("\n]}\n");
}
