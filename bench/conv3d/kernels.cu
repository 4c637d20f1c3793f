// The kernels of the conv3d family on a GPU, one by one, on the seven problems at full batch, without bias.
// For each problem, pass and kernel it prints the median of 10 times on the device, with the L2 cache flushed
// before each run, and useful TFLOP/s.
//
//   bench_conv3d_kernels [highest|high|medium|bf16|f16] [kernel...]
//
// The first argument is a precision of f32 (default: high) or a 16-bit dtype. Without names, all kernels that
// take the problem run. A * marks the kernel that the table chooses.

#include <cstdio>
#include <string_view>

#include "on_gpu.h"

namespace {

using vox::cuda::Conv3dPass;

void measure(EventClock& clock, const Problem& p, Conv3dPass pass, const Arithmetic& in,
             std::string_view kernel) {
  const vox::Conv3dGeometry g = geometry_of(p);
  const vox::cuda::Conv3dProblem problem{pass, g, in.dtype, in.precision};
  if (!vox::cuda::conv3d_kernel_takes(kernel, problem)) return;
  const bool chosen = vox::cuda::chosen_conv3d_kernel(problem) == kernel;
  KernelCalls calls(g, in);
  const vox::cuda::ForceConv3dKernel only(kernel);
  const auto run = [&] { calls.run(pass); };
  clock.median(2, run);  // warm-up
  const double ms = clock.median(10, run);
  const double operations = 2.0 * static_cast<double>(calls.small.numel() * g.big_per_group() * g.taps());
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
  EventClock clock;
  for (const Problem& p : problems)
    for (const Conv3dPass pass : kernel_passes)
      for (const std::string_view kernel : kernels) measure(clock, p, pass, *in, kernel);
}
