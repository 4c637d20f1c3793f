#pragma once

#include <cuda_runtime.h>

#include <algorithm>
#include <string_view>
#include <vector>

#include <voxgrad/cuda/conv3d/select.h>
#include <voxgrad/ops/kernels.h>
#include "problems.h"

// Kernels of the conv3d family on a GPU: operands, calls, and a clock.

/// Times work in the current stream by events, in milliseconds. The L2 cache is flushed before each run.
class EventClock {
 public:
  EventClock() : flush_(vox::empty({int64_t{1} << 26}, {.device = vox::Device::cuda()})) {
    cudaEventCreate(&begin_), cudaEventCreate(&end_);
  }
  ~EventClock() { cudaEventDestroy(begin_), cudaEventDestroy(end_); }
  EventClock(const EventClock&) = delete;
  EventClock& operator=(const EventClock&) = delete;

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

  template <class Run>
  double median(int count, Run run) {
    std::vector<double> times;
    for (int i = 0; i < count; ++i) times.push_back(once(run));
    std::ranges::sort(times);
    const size_t half = times.size() / 2;
    return count % 2 ? times[half] : (times[half - 1] + times[half]) / 2;
  }

 private:
  vox::Tensor flush_;
  cudaEvent_t begin_ = nullptr, end_ = nullptr;
};

/// The storage dtype of numbers, and the precision of arithmetic.
struct Arithmetic {
  std::string_view name;
  vox::DType dtype;
  vox::Float32Precision precision;
};

constexpr Arithmetic arithmetics[] = {{"high", vox::f32, vox::Float32Precision::high},
                                      {"highest", vox::f32, vox::Float32Precision::highest},
                                      {"medium", vox::f32, vox::Float32Precision::medium},
                                      {"bf16", vox::bf16, vox::Float32Precision::highest},
                                      {"f16", vox::f16, vox::Float32Precision::highest}};

/// The geometry of a Problem, or of a point of the sweep.
inline vox::Conv3dGeometry geometry_of(const auto& p) {
  return vox::detail::conv_transpose3d_geometry("bench_conv3d", input_shape(p), weight_shape(p), p.options);
}

/// The three passes of a transposed convolution, without bias, on random operands.
struct KernelCalls {
  vox::Conv3dGeometry geometry;
  vox::Float32Precision precision;
  vox::Tensor big, small, weight, no_bias;

  KernelCalls(const vox::Conv3dGeometry& g, const Arithmetic& in) : geometry(g), precision(in.precision) {
    const auto normal = [&](const vox::Shape& shape) {
      return vox::randn(shape, {.device = vox::Device::cuda()}).to(in.dtype);
    };
    big = normal(geometry.big_shape());
    small = normal(geometry.small_shape());
    weight = normal(geometry.weight_shape());
  }

  void run(vox::cuda::Conv3dPass pass) {
    if (pass == vox::cuda::Conv3dPass::conv3d)
      vox::cuda::conv3d(big, weight, {}, small, geometry, precision);
    else if (pass == vox::cuda::Conv3dPass::conv_transpose3d)
      vox::cuda::conv_transpose3d(small, weight, {}, big, geometry, precision);
    else
      vox::cuda::conv3d_weight_grad(big, small, weight, no_bias, vox::Grid::big, geometry, precision);
  }
};

constexpr vox::cuda::Conv3dPass kernel_passes[]{vox::cuda::Conv3dPass::conv_transpose3d,
                                                vox::cuda::Conv3dPass::conv3d,
                                                vox::cuda::Conv3dPass::weight_grad};
