#include <voxgrad/ops/cpu/simd/reduce.h>
#include <voxgrad/ops/cpu/simd/vec.h>

#include <utility>  // index_sequence, a type without code

namespace vox::cpu::simd::VOXGRAD_ISA {
namespace {

// Each combines numbers, or vectors. If both are equal it returns the first. A lane without elements holds
// `init`, which changes no other lane: sums that begin with +0 are never -0.
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
    const V of_numbers = b > a ? b : a;  // one instruction; returns a if a is NaN
    return b != b ? b : of_numbers;
  }
};
struct Min {
  static constexpr double init = __builtin_huge_val();
  template <class V>
  [[gnu::always_inline]] static inline V of(V a, V b) {
    const V of_numbers = b < a ? b : a;
    return b != b ? b : of_numbers;
  }
};

constexpr int count = 16;  // lanes of a block

/// Combines the halves of v[0], v[1], ..., seen as one row of 2 * half numbers, until `width` are left.
template <class T, class Op, int half, int width, size_t... l>
[[gnu::always_inline]] inline void tree(Vec<T>* v, std::index_sequence<l...> all) {
  if constexpr (half >= width) {
    if constexpr (half >= lanes<T>) {
      for (int i = 0; i < half / lanes<T>; ++i) v[i] = Op::of(v[i], v[i + half / lanes<T>]);
    } else {
      v[0] = Op::of(v[0], __builtin_shufflevector(v[0], v[0], (static_cast<int>(l + half) % lanes<T>)...));
    }
    tree<T, Op, half / 2, width>(v, all);
  }
}

/// Reduces a block of `width` rows that lie side by side.
template <class T, class Op, int width>
[[gnu::always_inline]] inline void block_of(const T* x, int64_t n, T* to) {
  constexpr int group = count * width, vectors = group / lanes<T>;
  Vec<T> v[vectors];
  for (int k = 0; k < vectors; ++k) v[k] = Vec<T>{} + static_cast<T>(Op::init);
  const int64_t numbers = n * width;
  int64_t i = 0;
  for (; i + group <= numbers; i += group) {
    for (int k = 0; k < vectors; ++k) v[k] = Op::of(v[k], load(x + i + k * lanes<T>));
  }
  if (i < numbers) {
    T lane[group];
    for (int k = 0; k < vectors; ++k) store(lane + k * lanes<T>, v[k]);
    for (int64_t j = 0; i + j < numbers; ++j) lane[j] = Op::of(lane[j], x[i + j]);
    for (int k = 0; k < vectors; ++k) v[k] = load(lane + k * lanes<T>);
  }
  tree<T, Op, group / 2, width>(v, std::make_index_sequence<lanes<T>>());
  for (int c = 0; c < width; ++c) to[c] = v[c / lanes<T>][c % lanes<T>];
}

template <class T, class Op>
T block(const T* x, int64_t n) {
  T result;
  block_of<T, Op, 1>(x, n, &result);
  return result;
}

template <class T, class Op>
void blocks(const T* x, int64_t stride, int64_t count, int64_t n, int64_t width, T* to) {
  const auto all = [=]<int known>() {
    for (int64_t r = 0; r < count; ++r) block_of<T, Op, known>(x + r * stride, n, to + r * known);
  };
  if (width == 1)
    all.template operator()<1>();
  else if (width == 2)
    all.template operator()<2>();
  else if (width == 4)
    all.template operator()<4>();
  else
    all.template operator()<8>();
}

template <class T, class Op, int count>
[[gnu::always_inline]] inline void combine_rows(T* to, const T* const* rows, int64_t width, bool begins,
                                                const T* const* ahead) {
  const T *row[count], *next[count];
  for (int r = 0; r < count; ++r) row[r] = rows[r], next[r] = ahead[r];
  int64_t c = 0;
  for (; c + lanes<T> <= width; c += lanes<T>) {
    Vec<T> v = begins ? Vec<T>{} + static_cast<T>(Op::init) : load(to + c);
    for (int r = 0; r < count; ++r) {
      __builtin_prefetch(next[r] + c);
      v = Op::of(v, load(row[r] + c));
    }
    store(to + c, v);
  }
  for (; c < width; ++c) {
    T v = begins ? static_cast<T>(Op::init) : to[c];
    for (int r = 0; r < count; ++r) v = Op::of(v, row[r][c]);
    to[c] = v;
  }
}

template <class T, class Op>
void combine(T* to, const T* const* rows, int64_t count, int64_t width, bool begins, const T* const* ahead) {
  int64_t r = 0;
  for (; r + 4 <= count; r += 4) combine_rows<T, Op, 4>(to, rows + r, width, begins && r == 0, ahead + r);
  for (; r + 2 <= count; r += 2) combine_rows<T, Op, 2>(to, rows + r, width, begins && r == 0, ahead + r);
  for (; r < count; ++r) combine_rows<T, Op, 1>(to, rows + r, width, begins && r == 0, ahead + r);
}

template <class T, class Op>
constexpr ReduceOf<T> loops{block<T, Op>, blocks<T, Op>, combine<T, Op>};

template <class T>
constexpr ReductionsOf<T> table{loops<T, Sum>, loops<T, Max>, loops<T, Min>};

// ---- Rows of any length ----------------------------------------------------------------------------------

/// 32 sums in double, element i in sum i % 32; then the sums are added pairwise.
template <class T>
double sum(const T* x, int64_t n) {
  constexpr int sums = 32;
  double partial[sums] = {};
  int64_t i = 0;
  for (; i + sums <= n; i += sums)
    for (int k = 0; k < sums; ++k) partial[k] += static_cast<double>(x[i + k]);
  for (int k = 0; i < n; ++i, ++k) partial[k] += static_cast<double>(x[i]);
  for (int half = sums / 2; half > 0; half /= 2)
    for (int k = 0; k < half; ++k) partial[k] += partial[k + half];
  return partial[0];
}

/// x * 0 is 0 for finite x and NaN otherwise. So the sum of such products is 0 if all x are finite, else NaN.
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

const OfReals<ReductionsOf> reduce_kernels{table<float>, table<double>};
const OfReals<SumOf> sum_kernels{sum<float>, sum<double>};
const OfReals<FiniteOf> finite_kernels{all_finite<float>, all_finite<double>};

}  // namespace vox::cpu::simd::VOXGRAD_ISA
