// Built like elementwise.cpp, see Note [Same bits everywhere] there.

#include <voxgrad/ops/cpu/simd/interpolate.h>
#include <voxgrad/ops/cpu/simd/stream.h>
#include <voxgrad/ops/cpu/simd/vec.h>

namespace vox::cpu::simd::VOXGRAD_ISA {
namespace {

template <class T>
void blend(const T* a, const T* b, T weight, T weight_next, T* y, int64_t n, bool stream) {
  write_run(y, n, stream, [=](int64_t first, T* to, int64_t count) {
#pragma GCC ivdep
    for (int64_t i = 0; i < count; ++i) to[i] = weight * a[first + i] + weight_next * b[first + i];
  });
}

template <class T>
void blend_along(const T* x, const int32_t* index, const int32_t* next, const T* weight, const T* next_weight,
                 T* y, int64_t n) {
#pragma GCC ivdep
  for (int64_t o = 0; o < n; ++o) {
    const T a = x[index[o]], both = weight[o] * a + next_weight[o] * x[next[o]];
    y[o] = next_weight[o] == 0 ? a : both;
  }
}

template <class T>
void weighted_sum(const T* const* rows, const T* weights, int64_t count, T* y, int64_t n) {
  int64_t i = 0;
  for (; i + lanes<T> <= n; i += lanes<T>) {
    Vec<T> sum = {};
    for (int64_t r = 0; r < count; ++r) sum += weights[r] * load(rows[r] + i);
    store(y + i, sum);
  }
  for (; i < n; ++i) {
    T sum = 0;
    for (int64_t r = 0; r < count; ++r) sum += weights[r] * rows[r][i];
    y[i] = sum;
  }
}

template <class T>
constexpr InterpolateOf<T> table{blend<T>, blend_along<T>, weighted_sum<T>};

}  // namespace

const InterpolateKernels interpolate_kernels{table<float>, table<double>};

}  // namespace vox::cpu::simd::VOXGRAD_ISA
