#include <voxgrad/ops/cpu/simd/reduce.h>
#include <voxgrad/ops/cpu/simd/vec.h>

namespace vox::cpu::simd::VOXGRAD_ISA {
namespace {

// Each combines numbers and vectors alike. Where both are equal the first stays.
struct Sum {
  static constexpr double init = 0;
  template <class V>
  [[gnu::always_inline]] static inline V of(V a, V b) {
    return a + b;
  }
};
struct Max {
  static constexpr double init = -__builtin_huge_val();
  template <class V>
  [[gnu::always_inline]] static inline V of(V a, V b) {
    return (b > a) | (b != b) ? b : a;
  }
};
struct Min {
  static constexpr double init = __builtin_huge_val();
  template <class V>
  [[gnu::always_inline]] static inline V of(V a, V b) {
    return (b < a) | (b != b) ? b : a;
  }
};

template <class T, class Op>
T block(const T* x, int64_t n) {
  constexpr int count = 16, vectors = count / lanes<T>;
  T lane[count];
  for (int j = 0; j < count; ++j) lane[j] = static_cast<T>(Op::init);
  Vec<T> sum[vectors];
  for (int v = 0; v < vectors; ++v) sum[v] = load(lane + v * lanes<T>);
  int64_t i = 0;
  for (; i + count <= n; i += count) {
    for (int v = 0; v < vectors; ++v) sum[v] = Op::of(sum[v], load(x + i + v * lanes<T>));
  }
  for (int v = 0; v < vectors; ++v) store(lane + v * lanes<T>, sum[v]);
  for (int64_t j = 0; i + j < n; ++j) lane[j] = Op::of(lane[j], x[i + j]);
  const int64_t used = n < count ? n : count;
  for (int64_t half = count / 2; half > 0; half /= 2) {
    for (int64_t j = 0; j < half && j + half < used; ++j) lane[j] = Op::of(lane[j], lane[j + half]);
  }
  return lane[0];
}

template <class T, class Op>
void combine(T* into, const T* x, int64_t n) {
  int64_t i = 0;
  for (; i + lanes<T> <= n; i += lanes<T>) store(into + i, Op::of(load(into + i), load(x + i)));
  for (; i < n; ++i) into[i] = Op::of(into[i], x[i]);
}

template <class T, class Op>
constexpr ReduceOf<T> loops{block<T, Op>, combine<T, Op>};

template <class T>
constexpr ReductionsOf<T> table{loops<T, Sum>, loops<T, Max>, loops<T, Min>};

}  // namespace

const ReduceKernels reduce_kernels{table<float>, table<double>};

}  // namespace vox::cpu::simd::VOXGRAD_ISA
