// The host's time for a small convolution, for which the GPU takes almost no time.
//
//   bench_conv3d_host
//
// First come the first calls of a process, each by wall clock until the GPU is done: the context, then each
// kernel's first call (CUDA loads kernels lazily). Then come medians, in microseconds, of calls that only
// submit work: the ops, and their parts.

#include <cuda_runtime.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <vector>

#include <voxgrad/core/cuda_memory.h>
#include <voxgrad/cuda/conv3d/select.h>
#include <voxgrad/cuda/runtime/device.h>
#include <voxgrad/cuda/runtime/launch.h>
#include <voxgrad/ops/conv3d_recorded.h>
#include <voxgrad/ops/kernels.h>
#include <voxgrad/voxgrad.h>

namespace {

using vox::Tensor;
using Clock = std::chrono::steady_clock;

double microseconds(Clock::duration d) { return std::chrono::duration<double, std::micro>(d).count(); }

/// Prints the wall-clock time of f() and of the work that it submitted.
template <class F>
void once(const char* name, F f) {
  const auto begin = Clock::now();
  f();
  cudaDeviceSynchronize();
  std::printf("  %-58s %9.2f ms\n", name, microseconds(Clock::now() - begin) / 1000);
}

/// Median time of f() on the host. Waits for the GPU every few calls: a full queue would stop the host.
template <class F>
double host_time(F f) {
  constexpr int batches = 60, calls = 10;
  std::vector<double> times;
  for (int i = -5; i < batches; ++i) {
    for (int j = 0; j < calls; ++j) {
      const auto begin = Clock::now();
      f();
      const auto end = Clock::now();
      if (i >= 0) times.push_back(microseconds(end - begin));
    }
    cudaDeviceSynchronize();
  }
  std::ranges::nth_element(times, times.begin() + static_cast<int64_t>(times.size() / 2));
  return times[times.size() / 2];
}

template <class F>
void print(const char* name, F f) {
  std::printf("  %-58s %9.2f us\n", name, host_time(f));
  std::fflush(stdout);
}

__global__ void empty_kernel() {}

/// A layer of a small network.
struct Layer {
  vox::TensorOptions options{.device = vox::Device::cuda()};
  Tensor x = vox::randn({1, 16, 6, 6, 6}, options), weight = vox::randn({16, 16, 3, 3, 3}, options);
  Tensor bias = vox::randn({16}, options), no_bias;
  vox::ConvTranspose3dOptions conv{.stride = 2, .padding = 1};
  vox::Conv3dGeometry geometry = make_geometry();
  Tensor y = vox::randn(geometry.big_shape(), options);

  vox::Conv3dGeometry make_geometry() const {
    return vox::detail::conv_transpose3d_geometry("bench_conv3d_host", x.shape(), weight.shape(), conv);
  }
};

void first_calls() {
  std::puts("First calls, until the GPU is done");
  once("context (cudaFree(0))", [] { cudaFree(nullptr); });
  once("a kernel of this program", [] { empty_kernel<<<1, 32>>>(); });
  once("voxgrad's state of the device", [] { vox::empty({1}, {.device = vox::Device::cuda()}); });
  Tensor host = vox::zeros({16, 16, 3, 3, 3});
  Tensor weight, x, bias;
  once("copies of operands to the GPU", [&] {
    weight = host.to(vox::Device::cuda());
    x = vox::zeros({1, 16, 6, 6, 6}).to(vox::Device::cuda());
    bias = vox::zeros({16}).to(vox::Device::cuda());
  });
  constexpr const char* names[]{"highest", "high", "medium"};
  for (const auto precision :
       {vox::Float32Precision::high, vox::Float32Precision::highest, vox::Float32Precision::medium}) {
    const vox::PrecisionGuard guard(precision);
    const auto name = [&](const char* what) {
      return vox::str(what, ", ", names[static_cast<int>(precision)]);
    };
    Tensor w = weight.detach().set_requires_grad(), xg = x.detach().set_requires_grad();
    Tensor b = bias.detach().set_requires_grad(), y;
    for (const char* number : {"first", "second"}) {
      once(name(vox::str(number, " conv_transpose3d").c_str()).c_str(),
           [&] { y = vox::conv_transpose3d(xg, w, b, {.stride = 2, .padding = 1}); });
      once(name(vox::str(number, " backward of it").c_str()).c_str(), [&] {
        vox::grad({y}, {xg, w, b}, {.grad_outputs = {y.detach()}});
      });
    }
  }
}

void cuda_alone() {
  std::puts("CUDA alone");
  const vox::cuda::Stream current = vox::cuda::current_stream();
  const auto stream = static_cast<cudaStream_t>(current.native_handle());
  const cudaMemPool_t pool = vox::cuda::device_state("bench", 0).pool;
  print("launch of an empty kernel", [&] { empty_kernel<<<1, 32, 0, stream>>>(); });
  print("cudaMallocFromPoolAsync and cudaFreeAsync", [&] {
    void* data = nullptr;
    cudaMallocFromPoolAsync(&data, 4096, pool, stream);
    cudaFreeAsync(data, stream);
  });
  print("cudaFuncSetAttribute",
        [&] { cudaFuncSetAttribute(empty_kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, 40000); });
  print("cudaGetDevice", [&] {
    int device = 0;
    cudaGetDevice(&device);
  });
  print("cudaGetLastError", [&] { (void)cudaGetLastError(); });
  print("cudaThreadExchangeStreamCaptureMode, there and back",
        [&] { const vox::cuda::OutsideCapture outside; });
  print("cudaStreamGetCaptureInfo", [&] { (void)vox::cuda::capture_of(vox::cuda::current("bench", 0)); });
}

void parts(Layer& l) {
  std::puts("Parts of a call");
  print("geometry", [&] { (void)l.make_geometry(); });
  print("empty(), made and dropped", [&] { (void)vox::empty({4096}, l.options); });
  print("memory alone, taken and given back",
        [&] { vox::cuda::deallocate(vox::cuda::allocate(16384, 0), 0); });
  print("Workspace, taken and given back (with its Launch guard)", [&] {
    const vox::cuda::Launch launch("bench", l.y);
    const vox::cuda::Workspace workspace(launch, 16384);
  });
  print("Launch guard of three tensors", [&] {
    const vox::cuda::Launch launch("bench", l.y, {&l.x, &l.weight, &l.bias});
  });
}

void ops(Layer& l, vox::Float32Precision precision, const char* name) {
  using vox::Conv3dPass;
  const vox::PrecisionGuard guard(precision);
  std::printf("Ops at %s\n", name);
  const auto kernel = [&](const char* what, Conv3dPass pass) {
    return vox::str(what, " (", vox::cuda::chosen_conv3d_kernel({pass, l.geometry, vox::f32, precision}),
                    ")");
  };
  print(kernel("kernel entry conv_transpose3d", Conv3dPass::conv_transpose3d).c_str(),
        [&] { vox::cuda::conv_transpose3d(l.x, l.weight, l.bias, l.y, l.geometry, precision); });
  print(kernel("kernel entry conv3d", Conv3dPass::conv3d).c_str(),
        [&] { vox::cuda::conv3d(l.y, l.weight, {}, l.x, l.geometry, precision); });
  print(kernel("kernel entry weight_grad", Conv3dPass::weight_grad).c_str(), [&] {
    vox::cuda::conv3d_weight_grad(l.y, l.x, l.weight, l.no_bias, vox::Grid::big, l.geometry, precision);
  });
  print("kernel entry weight_grad with bias", [&] {
    vox::cuda::conv3d_weight_grad(l.y, l.x, l.weight, l.bias, vox::Grid::big, l.geometry, precision);
  });
  print("vox::conv_transpose3d, nothing recorded",
        [&] { (void)vox::conv_transpose3d(l.x, l.weight, l.bias, l.conv); });
  print("vox::conv3d, nothing recorded",
        [&] { (void)vox::conv3d(l.y, l.weight, {}, {.stride = 2, .padding = 1}); });
  Tensor x = l.x.detach().set_requires_grad(), weight = l.weight.detach().set_requires_grad(),
         bias = l.bias.detach().set_requires_grad();
  print("vox::conv_transpose3d, recorded", [&] { (void)vox::conv_transpose3d(x, weight, bias, l.conv); });
  const Tensor y = vox::conv_transpose3d(x, weight, bias, l.conv);
  const auto grad = [&](const std::vector<Tensor>& of) {
    (void)vox::grad({y}, of, {.grad_outputs = {l.y}, .retain_graph = true});
  };
  print("vox::grad of it, input", [&] { grad({x}); });
  print("vox::grad of it, weight", [&] { grad({weight}); });
  print("vox::grad of it, weight and bias", [&] { grad({weight, bias}); });
  print("vox::grad of it, all three", [&] { grad({x, weight, bias}); });
}

}  // namespace

int main() {
  if (!vox::cuda::is_available()) {
    std::puts("no GPU here");
    return 0;
  }
  first_calls();
  Layer l;
  cudaDeviceSynchronize();
  cuda_alone();
  parts(l);
  ops(l, vox::Float32Precision::highest, "highest");
  ops(l, vox::Float32Precision::high, "high");
  ops(l, vox::Float32Precision::medium, "medium");
}
