// 32 sums in double, element i to sum i mod 32; then these.

#include <voxgrad/ops/cpu/simd/sum.h>
#include <voxgrad/ops/cpu/simd/vec.h>

namespace vox::cpu::simd::VOXGRAD_ISA {
namespace {

constexpr int sums = 32;

template <class T>
double sum(const T* x, int64_t n) {
  double partial[sums] = {};
  int64_t i = 0;
  for (; i + sums <= n; i += sums)
    for (int k = 0; k < sums; ++k) partial[k] += static_cast<double>(x[i + k]);
  for (int k = 0; i < n; ++i, ++k) partial[k] += static_cast<double>(x[i]);
  for (int half = sums / 2; half > 0; half /= 2)
    for (int k = 0; k < half; ++k) partial[k] += partial[k + half];
  return partial[0];
}

}  // namespace

const SumKernels sum_kernels{sum<float>, sum<double>};

}  // namespace vox::cpu::simd::VOXGRAD_ISA
