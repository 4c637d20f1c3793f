// The kernels of the conv3d family on a GPU, one by one: the seven problems of KernelBench level 1 that are
// 3-D transposed convolutions, at full batch, without bias. Per problem, pass and kernel: the median over 10
// runs of the device's own time, the L2 cache flushed before each, and useful TFLOP/s.
//
//   bench_conv3d_kernels [highest|high|medium|bf16|f16] [kernel...]
//
// f32 at a precision (`high` if none is given), or tensors of 16 bits; all kernels that take the problem, or
// those named. A * marks the one that is chosen.

#include <cuda_runtime.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <string_view>
#include <vector>

#include <voxgrad/cuda/conv3d/select.h>
#include <voxgrad/ops/conv3d_kernels.h>
#include <voxgrad/voxgrad.h>

namespace {

using vox::Tensor;
using vox::cuda::Conv3dPass;

struct Problem {
  int number;
  vox::Shape input, weight;
  vox::ConvTranspose3dOptions options = {};
};

const Problem problems[] = {
    {58, {16, 32, 16, 32, 64}, {32, 16, 3, 5, 7}},
    {61, {8, 48, 64, 64, 64}, {48, 48, 3, 3, 3}},
    {68, {16, 32, 64, 64, 64}, {32, 64, 3, 5, 5}},
    {70, {8, 48, 96, 96, 96}, {48, 24, 3, 3, 3}},
    {72,
     {8, 32, 12, 24, 48},
     {32, 8, 3, 5, 7},
     {.stride = 2, .padding = {1, 2, 3}, .output_padding = 1, .groups = 4}},
    {73, {4, 32, 32, 64, 128}, {32, 32, 3, 3, 3}, {.stride = 2, .padding = 1}},
    {77, {16, 32, 16, 32, 32}, {32, 64, 3, 3, 3}, {.stride = 2, .padding = 1, .dilation = 2}},
};

/// Median milliseconds of run(), by events around it.
template <class Run>
double milliseconds(Run run) {
  const vox::cuda::Stream current = vox::cuda::current_stream();
  const auto stream = static_cast<cudaStream_t>(current.native_handle());
  Tensor flush = vox::empty({int64_t{1} << 26}, {.device = vox::Device::cuda()});
  cudaEvent_t begin, end;
  cudaEventCreate(&begin), cudaEventCreate(&end);
  std::array<float, 10> times;
  for (int i = -2; i < static_cast<int>(times.size()); ++i) {
    flush.zero_();
    cudaEventRecord(begin, stream);
    run();
    cudaEventRecord(end, stream);
    cudaEventSynchronize(end);
    if (i >= 0) cudaEventElapsedTime(&times[static_cast<size_t>(i)], begin, end);
  }
  cudaEventDestroy(begin), cudaEventDestroy(end);
  std::ranges::sort(times);
  return (times[4] + times[5]) / 2;
}

/// What numbers are stored as, and computed in.
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

void measure(const Problem& p, Conv3dPass pass, const Arithmetic& in, std::string_view kernel) {
  const auto g = vox::detail::conv_transpose3d_geometry("bench_conv3d_kernels", p.input, p.weight, p.options);
  const vox::cuda::Conv3dProblem problem{pass, g, in.dtype, in.precision};
  if (!vox::cuda::conv3d_kernel_takes(kernel, problem)) return;
  const bool chosen = vox::cuda::chosen_conv3d_kernel(problem) == kernel;
  const vox::TensorOptions options{.device = vox::Device::cuda()};
  const auto normal = [&](const vox::Shape& shape) { return vox::randn(shape, options).to(in.dtype); };
  Tensor big = normal(g.big_shape()), small = normal(g.small_shape()), weight = normal(g.weight_shape()),
         no_bias;
  const vox::cuda::ForceConv3dKernel only(kernel);
  const double ms = milliseconds([&] {
    if (pass == Conv3dPass::conv3d)
      vox::cuda::conv3d(big, weight, {}, small, g, problem.precision);
    else if (pass == Conv3dPass::conv_transpose3d)
      vox::cuda::conv_transpose3d(small, weight, {}, big, g, problem.precision);
    else
      vox::cuda::conv3d_weight_grad(big, small, weight, no_bias, vox::Grid::big, g, problem.precision);
  });
  const double operations = 2.0 * static_cast<double>(small.numel() * g.big_per_group() * g.taps());
  constexpr const char* names[]{"conv3d", "conv_transpose3d", "conv3d_weight_grad"};
  std::printf("%d  %-18s  %c %-18s  %9.3f ms  %7.1f TFLOP/s\n", p.number, names[static_cast<int>(pass)],
              chosen ? '*' : ' ', std::string(kernel).c_str(), ms, operations / ms * 1e-9);
  std::fflush(stdout);
}

}  // namespace

int main(int argc, char** argv) {
  if (!vox::cuda::is_available()) {
    std::puts("no GPU here");
    return 0;
  }
  std::vector<std::string_view> kernels(argv + 1, argv + argc);
  const Arithmetic* in = arithmetics;
  if (!kernels.empty()) {
    const auto* named = std::ranges::find(arithmetics, kernels[0], &Arithmetic::name);
    if (named != std::end(arithmetics)) in = named, kernels.erase(kernels.begin());
  }
  if (kernels.empty()) kernels = vox::cuda::conv3d_kernel_names();
  for (const Problem& p : problems)
    for (const Conv3dPass pass : {Conv3dPass::conv_transpose3d, Conv3dPass::conv3d, Conv3dPass::weight_grad})
      for (const std::string_view kernel : kernels) measure(p, pass, *in, kernel);
}
