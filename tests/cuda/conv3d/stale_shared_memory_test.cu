#include <voxgrad/cuda/conv3d/select.h>
#include <voxgrad/cuda/runtime/launch.h>
#include <voxgrad/voxgrad.h>

#include "tests/cuda/support.cuh"

// A block starts with arbitrary contents of shared memory, which must not affect its results. Kernels that
// read a little behind their data multiply that by zero, and zero times NaN is NaN.

namespace vox::testing {
namespace {

__global__ void fill_shared_memory(uint32_t word, int words) {
  extern __shared__ uint32_t memory[];
  volatile uint32_t* const all = memory;
  for (int i = threadIdx.x; i < words; i += blockDim.x) all[i] = word;
}

/// Fills the device's shared memory with `word`.
void leave_in_shared_memory(uint32_t word, const Tensor& on) {
  const cuda::Launch launch("test", on);
  int bytes = 0, multiprocessors = 0;
  launch.check(cudaDeviceGetAttribute(&bytes, cudaDevAttrMaxSharedMemoryPerBlockOptin, 0));
  launch.check(cudaDeviceGetAttribute(&multiprocessors, cudaDevAttrMultiProcessorCount, 0));
  launch.allow_shared_memory<fill_shared_memory>(bytes);
  fill_shared_memory<<<static_cast<unsigned>(8 * multiprocessors), 256, static_cast<size_t>(bytes),
                       launch.stream()>>>(word, bytes / 4);
  launch.check();
}

TEST(StaleSharedMemoryCuda, NoKernelsResultsDependOnIt) {
  SKIP_WITHOUT_CUDA();
  struct Case {
    Shape input, weight;
    ConvTranspose3dOptions options;
  };
  const Case cases[]{
      {{1, 32, 9, 16, 64}, {32, 32, 3, 3, 3}, {.stride = 2, .padding = 1}},  // rows that end with tiles
      {{4, 32, 5, 14, 128}, {32, 32, 3, 3, 3}, {.stride = 2, .padding = 1}},
      {{4, 64, 5, 14, 128}, {64, 24, 3, 3, 3}, {.stride = 2, .padding = 1}},
      {{1, 32, 3, 16, 64}, {32, 32, 2, 2, 5}, {.stride = 2, .padding = {0, 0, 3}}},
      {{1, 24, 5, 11, 37}, {24, 40, 3, 3, 3}, {.stride = 2, .padding = 1, .output_padding = 1}},
      {{1, 24, 5, 11, 37}, {24, 40, 3, 3, 3}, {.padding = 1}},
  };
  int runs = 0;
  for (const DType dtype : {f32, bf16})
    for (const auto precision : {Float32Precision::highest, Float32Precision::high, Float32Precision::medium})
      for (const Case& c : cases) {
        const TensorOptions options{.dtype = dtype, .device = Device::cuda()};
        const Tensor x = randn(c.input, options), w = randn(c.weight, options);
        const PrecisionGuard guard(precision);
        const Tensor gy = randn(conv_transpose3d(x, w, {}, c.options).shape(), options);
        for (const std::string_view name : cuda::conv3d_kernel_names()) {
          const auto g = detail::conv_transpose3d_geometry("test", c.input, c.weight, c.options);
          const auto same = [&](Conv3dPass pass, auto f) {
            if (!cuda::conv3d_kernel_supports(name, {pass, g, dtype, precision})) return;
            const ForceConv3dKernel forced(name, {pass});
            ++runs;
            leave_in_shared_memory(0, x);
            const Tensor first = f();
            leave_in_shared_memory(~0u, x);  // NaN in every format
            const Tensor differs = ne(f(), first).to(f32).max();
            EXPECT_EQ(differs.item<float>(), 0) << name << ' ' << c.input << ' ' << c.weight << ' ' << dtype;
          };
          same(Conv3dPass::conv_transpose3d, [&] { return conv_transpose3d(x, w, {}, c.options); });
          same(Conv3dPass::conv3d,
               [&] { return conv3d(gy, w, {}, {.stride = c.options.stride, .padding = c.options.padding}); });
        }
      }
  EXPECT_GT(runs, 100);
}

}  // namespace
}  // namespace vox::testing
