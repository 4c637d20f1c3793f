// A typical first program of a user: one transposed convolution, its gradients, and the values of the golden
// case G5/B1 (input (1,2), weight (10,20,30), stride 2, padding 1 along w).
#include <voxgrad/config.h>
#include <voxgrad/voxgrad.h>

#include <cstdint>
#include <cstdio>
#include <vector>

// The library's own compile options must not reach its users.
#ifdef NDEBUG
#error "NDEBUG leaked: this project sets no build type"
#endif
#ifdef Eigen
#error "voxgrad's private name for Eigen leaked"
#endif
#ifdef __FAST_MATH__
#error "-ffast-math leaked"
#endif
#if __has_include(<voxgrad/cuda/runtime/error.h>) || __has_include(<core/tensor.h>) || __has_include(<tensor.h>)
#error "a private include folder leaked"
#endif
#ifdef CUDART_VERSION
#error "a public header includes CUDA's"
#endif
#ifdef EIGEN_WORLD_VERSION
#error "a public header includes Eigen's"
#endif

static bool expect(const char* name, const std::vector<float>& got, const std::vector<float>& want) {
  std::printf("%-12s", name);
  for (float value : got) std::printf(" %g", value);
  std::printf(got == want ? "\n" : "   WRONG\n");
  return got == want;
}

static bool golden_case(vox::Device device) {
  vox::Tensor x = vox::from_vector<float>({1, 2}, {1, 1, 1, 1, 2}, device);
  vox::Tensor w = vox::from_vector<float>({10, 20, 30}, {1, 1, 1, 1, 3}, device);
  vox::Tensor b = vox::from_vector<float>({0}, {1}, device);
  x.set_requires_grad(true);
  w.set_requires_grad(true);
  b.set_requires_grad(true);

  const std::int64_t stride = 2;  // the braces take variables as well
  vox::Tensor y = vox::conv_transpose3d(x, w, b, {.stride = {1, 1, stride}, .padding = {0, 0, 1}});
  y.backward(vox::from_vector<float>({1, 2, 3}, {1, 1, 1, 1, 3}, device));

  vox::Tensor on_cpu = y.to(vox::Device::cpu());
  bool right = expect("y", on_cpu.to_vector<float>(), {20, 50, 40});
  right &= expect("x.grad", x.grad().to(vox::Device::cpu()).to_vector<float>(), {80, 80});
  right &= expect("weight.grad", w.grad().to(vox::Device::cpu()).to_vector<float>(), {4, 7, 2});
  right &= expect("bias.grad", b.grad().to(vox::Device::cpu()).to_vector<float>(), {6});
  return right;
}

int main() {
  int unused_on_purpose = 0;  // see CMakeLists.txt: an error if the library's warnings leak

  std::printf("voxgrad %s, %s\n", vox::version(), VOXGRAD_HAS_CUDA ? "with CUDA" : "for the CPU alone");
  bool right = golden_case(vox::Device::cpu());
  if (vox::cuda::is_available()) {
    std::printf("on the GPU:\n");
    right &= golden_case(vox::Device::cuda());
  }
  return right ? 0 : 1;
}
