// The kernels of the conv3d family on a GPU, one by one, on the seven problems at full batch or on the layers
// of networks, without bias. For each problem, pass and kernel it prints the median of 10 times on the
// device, with the L2 cache flushed before each run, and useful TFLOP/s.
//
//   bench_conv3d_kernels [highest|high|medium|bf16|f16] [layers] [kernel...]
//
// The first argument is a precision of f32 (default: high) or a 16-bit dtype. Without names, all kernels that
// take the problem run. With `layers` the layers of networks below are timed. A * marks the kernel that the
// table chooses.

#include <cstdio>
#include <string>
#include <string_view>
#include <vector>

#include "on_gpu.h"

namespace {

using vox::cuda::Conv3dPass;

/// A layer of bench/networks: `cells` of its input along each axis.
struct Layer {
  bool transposed;
  int64_t in, out, cells, kernel = 3, stride = 1, padding = 1, batch = 2;
};
constexpr Layer layers[]{
    {false, 1, 32, 128},
    {false, 32, 32, 128},
    {false, 64, 32, 128},
    {false, 32, 64, 64},
    {false, 64, 64, 64},
    {false, 128, 64, 64},
    {false, 64, 128, 32},
    {false, 128, 128, 32},
    {false, 256, 128, 32},
    {false, 128, 256, 16},
    {false, 256, 256, 16},
    {false, 64, 64, 32},
    {false, 320, 320, 8},
    {false, 640, 320, 8},
    {false, 32, 2, 128, 1, 1, 0},
    {false, 32, 64, 128, 3, 2},
    {false, 64, 128, 64, 3, 2},
    {false, 256, 320, 16, 3, 2},
    {true, 64, 32, 64, 2, 2, 0},
    {true, 128, 64, 32, 2, 2, 0},
    {true, 256, 128, 16, 2, 2, 0},
    {true, 256, 128, 4, 4, 2, 1, 16},
    {true, 64, 32, 16, 4, 2, 1, 16},
};

vox::Conv3dGeometry geometry_of(const Layer& l) {
  const vox::Shape input{l.batch, l.in, l.cells, l.cells, l.cells};
  if (l.transposed)
    return vox::detail::conv_transpose3d_geometry("bench", input, {l.in, l.out, l.kernel, l.kernel, l.kernel},
                                                  {.stride = l.stride, .padding = l.padding});
  return vox::detail::conv3d_geometry("bench", input, {l.out, l.in, l.kernel, l.kernel, l.kernel},
                                      {.stride = l.stride, .padding = l.padding});
}

std::string name_of(const Problem& p) { return std::to_string(p.number); }
std::string name_of(const Layer& l) {
  const auto text = [](int64_t n) { return std::to_string(n); };
  return text(l.in) + " -> " + text(l.out) + " @ " + text(l.cells) + ", kernel " + text(l.kernel) +
         (l.stride > 1 ? (l.transposed ? ", up " : ", down ") + text(l.stride) : "");
}

void measure(EventClock& clock, const std::string& name, const vox::Conv3dGeometry& g, Conv3dPass pass,
             const Arithmetic& in, std::string_view kernel) {
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
  std::printf("%s  %-18s  %c %-18s  %9.3f ms  %7.1f TFLOP/s\n", name.c_str(), names[static_cast<int>(pass)],
              chosen ? '*' : ' ', std::string(kernel).c_str(), ms, operations / ms * 1e-9);
  std::fflush(stdout);
}

void measure_all(const auto& problems_or_layers, const Arithmetic& in,
                 const std::vector<std::string_view>& kernels) {
  EventClock clock;
  for (const auto& p : problems_or_layers)
    for (const Conv3dPass pass : kernel_passes)
      for (const std::string_view kernel : kernels)
        measure(clock, name_of(p), geometry_of(p), pass, in, kernel);
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
  const bool of_networks = !kernels.empty() && kernels[0] == "layers";
  if (of_networks) kernels.erase(kernels.begin());
  if (kernels.empty()) kernels = vox::cuda::conv3d_kernel_names();
  if (of_networks)
    measure_all(layers, *in, kernels);
  else
    measure_all(problems, *in, kernels);
}
