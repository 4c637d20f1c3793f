// x * 0 is 0 for every finite x and NaN for all others, and so is the sum of such products.

#include <voxgrad/ops/cpu/simd/finite.h>
#include <voxgrad/ops/cpu/simd/vec.h>

namespace vox::cpu::simd::VOXGRAD_ISA {
namespace {

template <class T>
bool all_finite(const T* x, int64_t n) {
  constexpr int step = 4 * lanes<T>;
  Vec<T> sum[4] = {};
  int64_t i = 0;
  for (; i + step <= n; i += step)
    for (int k = 0; k < 4; ++k) sum[k] += load(x + i + k * lanes<T>) * T(0);
  T tail = 0;
  for (; i < n; ++i) tail += x[i] * T(0);
  const Vec<T> all = (sum[0] + sum[1]) + (sum[2] + sum[3]);
  for (int k = 0; k < lanes<T>; ++k) tail += all[k];
  return tail == T(0);
}

}  // namespace

const FiniteKernels finite_kernels{all_finite<float>, all_finite<double>};

}  // namespace vox::cpu::simd::VOXGRAD_ISA
