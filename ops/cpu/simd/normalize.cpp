// Built like elementwise.cpp, see Note [Same bits everywhere] there.

#include <voxgrad/ops/cpu/simd/lane_sums.h>
#include <voxgrad/ops/cpu/simd/normalize.h>
#include <voxgrad/ops/cpu/simd/stream.h>
#include <voxgrad/ops/cpu/simd/vec.h>

namespace vox::cpu::simd::VOXGRAD_ISA {
namespace {

// Every formula takes numbers, V = T, or vectors of them, V = Vec<T>.

template <class V, class T>
[[gnu::always_inline]] inline V read(const T* from) {
  if constexpr (sizeof(V) == sizeof(T))
    return *from;
  else
    return load(from);
}

enum class Act { none, relu, leaky_relu };

template <class T, Act act, bool per_element>
struct Formula {
  T mean, rstd, negative_slope, scale, shift;
  const T *weights, *biases;

  explicit Formula(const NormStretch<T>& s)
      : mean(s.mean),
        rstd(s.rstd),
        negative_slope(s.negative_slope),
        scale(*s.weight * s.rstd),
        shift(*s.bias),
        weights(s.weight),
        biases(s.bias) {}

  template <class V>
  [[gnu::always_inline]] inline V z(V x, int64_t i) const {
    if constexpr (per_element)
      return (x - mean) * (read<V>(weights + i) * rstd) + read<V>(biases + i);
    else
      return (x - mean) * scale + shift;
  }
  template <class V>
  [[gnu::always_inline]] inline V y(V x, int64_t i) const {
    const V value = z(x, i), zero{};
    if constexpr (act == Act::none) return value;
    if constexpr (act == Act::relu) return value < zero ? zero : value;
    return value < zero ? negative_slope * value : value;
  }
  template <class V>
  [[gnu::always_inline]] inline V h(V g, V x, int64_t i) const {
    if constexpr (act == Act::none) return g;
    const V value = z(x, i), zero{};
    if constexpr (act == Act::relu) return value <= zero ? zero : g;
    return value > zero ? g : negative_slope * g;
  }
};

/// Calls f(Formula(s)) with the formula's type.
template <class T, class F>
[[gnu::always_inline]] inline void with_formula(const NormStretch<T>& s, F f) {
  const auto with = [&]<bool per_element>() __attribute__((always_inline)) {
    if (s.negative_slope == T(1))
      f(Formula<T, Act::none, per_element>(s));
    else if (s.negative_slope == T(0))
      f(Formula<T, Act::relu, per_element>(s));
    else
      f(Formula<T, Act::leaky_relu, per_element>(s));
  };
  if (s.per_element)
    with.template operator()<true>();
  else
    with.template operator()<false>();
}

/// to[k] = the sum over i < n of terms[k], which f(i, terms) computes for the element, or the vector, that
/// begins at i.
template <class T, int sums, class F>
[[gnu::always_inline]] inline void sum_of(int64_t n, F f, T* to) {
  constexpr int lane_count = 32, vectors = lane_count / lanes<T>;
  Vec<T> sum[sums][vectors] = {};
  int64_t i = 0;
  for (; i + lane_count <= n; i += lane_count) {
    for (int v = 0; v < vectors; ++v) {
      Vec<T> terms[sums];
      f(i + v * lanes<T>, terms);
      for (int k = 0; k < sums; ++k) sum[k][v] += terms[k];
    }
  }
  if (i < n) {
    T lane[sums][lane_count];
    for (int k = 0; k < sums; ++k) {
      for (int v = 0; v < vectors; ++v) store(lane[k] + v * lanes<T>, sum[k][v]);
    }
    for (int j = 0; i < n; ++i, ++j) {
      T terms[sums];
      f(i, terms);
      for (int k = 0; k < sums; ++k) lane[k][j] += terms[k];
    }
    for (int k = 0; k < sums; ++k) {
      for (int v = 0; v < vectors; ++v) sum[k][v] = load(lane[k] + v * lanes<T>);
    }
  }
  for (int k = 0; k < sums; ++k) {
    for (int half = vectors / 2; half > 0; half /= 2) {
      for (int v = 0; v < half; ++v) sum[k][v] += sum[k][v + half];
    }
    sums_of_lanes<T, 1>(sum[k], to + k);
  }
}

template <class T>
void moments(const T* x, int64_t n, T* centre, T* rest, T* squares) {
  T total, both[2];
  sum_of<T, 1>(
      n, [=]<class V>(int64_t i, V* term) { *term = read<V>(x + i); }, &total);
  const T c = total / static_cast<T>(n);
  sum_of<T, 2>(
      n,
      [=]<class V>(int64_t i, V* terms) {
        terms[0] = read<V>(x + i) - c;
        terms[1] = terms[0] * terms[0];
      },
      both);
  *centre = c;
  *rest = both[0];
  *squares = both[1];
}

template <class T>
void apply(const T* x, const NormStretch<T>& s, T* y, int64_t n, bool stream) {
  with_formula(s, [=](auto formula) {
    write_run(y, n, stream, [=](int64_t first, T* to, int64_t count) {
#pragma GCC ivdep
      for (int64_t i = 0; i < count; ++i) to[i] = formula.y(x[first + i], first + i);
    });
  });
}

template <class T>
void gradient_sums(const T* g, const T* x, const NormStretch<T>& s, int64_t n, T* sum, T* product) {
  with_formula(s, [=]<Act act, bool per_element>(const Formula<T, act, per_element>& formula) {
    T both[2];
    sum_of<T, 2>(
        n,
        [=]<class V>(int64_t i, V* terms) {
          const V at = read<V>(x + i);
          V h = formula.h(read<V>(g + i), at, i);
          if constexpr (per_element) h *= read<V>(formula.weights + i);
          terms[0] = h;
          terms[1] = h * (at - formula.mean);
        },
        both);
    *sum = both[0];
    *product = both[1];
  });
}

template <class T>
void column_sums(const T* g, const T* x, const NormStretch<T>& s, int64_t n, T* of_weight, T* of_bias) {
  with_formula(s, [=](auto formula) {
#pragma GCC ivdep
    for (int64_t i = 0; i < n; ++i) {
      const T h = formula.h(g[i], x[i], i);
      of_weight[i] += h * ((x[i] - formula.mean) * formula.rstd);
      of_bias[i] += h;
    }
  });
}

template <class T>
void gradient(const T* g, const T* x, const NormStretch<T>& s, bool of_x, T offset, T slope, T* grad_x,
              int64_t n, bool stream) {
  with_formula(s, [=]<Act act, bool per_element>(const Formula<T, act, per_element>& formula) {
    const T one_weight = *formula.weights;
    const auto scaled = [=](int64_t i) __attribute__((always_inline)) {
      const T h = formula.h(g[i], x[i], i);
      return h * (per_element ? formula.weights[i] : one_weight);
    };
    write_run(grad_x, n, stream, [=](int64_t first, T* to, int64_t count) {
      if (!of_x) {
#pragma GCC ivdep
        for (int64_t i = 0; i < count; ++i) to[i] = formula.rstd * scaled(first + i);
        return;
      }
#pragma GCC ivdep
      for (int64_t i = 0; i < count; ++i) {
        const T d = x[first + i] - formula.mean;
        to[i] = formula.rstd * ((scaled(first + i) - offset) - d * slope);
      }
    });
  });
}

template <class T>
constexpr NormalizeOf<T> table{moments<T>, apply<T>, gradient_sums<T>, column_sums<T>, gradient<T>};

}  // namespace

const OfReals<NormalizeOf> normalize_kernels{table<float>, table<double>};

}  // namespace vox::cpu::simd::VOXGRAD_ISA
