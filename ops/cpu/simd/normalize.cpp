// Built like elementwise.cpp, see Note [Same bits everywhere] there.

#include <voxgrad/ops/cpu/simd/normalize.h>
#include <voxgrad/ops/cpu/simd/stream.h>
#include <voxgrad/ops/cpu/simd/vec.h>

namespace vox::cpu::simd::VOXGRAD_ISA {
namespace {

constexpr int lane_count = 16;

/// lane[j] += f of elements j, j + 16, ...; then the tree over the lanes. f(i) takes element i, vector_f(i)
/// the vector that begins there.
template <class T, class VectorF, class F>
[[gnu::always_inline]] inline T sum_of(int64_t n, VectorF vector_f, F f) {
  constexpr int vectors = lane_count / lanes<T>;
  Vec<T> sum[vectors] = {};
  int64_t i = 0;
  for (; i + lane_count <= n; i += lane_count) {
    for (int v = 0; v < vectors; ++v) sum[v] += vector_f(i + v * lanes<T>);
  }
  T lane[lane_count];
  for (int v = 0; v < vectors; ++v) store(lane + v * lanes<T>, sum[v]);
  for (int64_t j = 0; i + j < n; ++j) lane[j] += f(i + j);
  for (int half = lane_count / 2; half > 0; half /= 2) {
    for (int j = 0; j < half; ++j) lane[j] += lane[j + half];
  }
  return lane[0];
}

template <class T>
T squares(const T* x, T mean, int64_t n) {
  return sum_of<T>(
      n,
      [=](int64_t i) {
        const Vec<T> d = load(x + i) - mean;
        return d * d;
      },
      [=](int64_t i) { return (x[i] - mean) * (x[i] - mean); });
}

template <class T>
void gradient_sums(const T* g, const T* x, T mean, int64_t n, T* sum, T* product) {
  *sum = sum_of<T>(
      n, [=](int64_t i) { return load(g + i); }, [=](int64_t i) { return g[i]; });
  *product = sum_of<T>(
      n, [=](int64_t i) { return load(g + i) * (load(x + i) - mean); },
      [=](int64_t i) { return g[i] * (x[i] - mean); });
}

template <class T>
void apply(const T* x, T mean, T scale, T shift, T* y, int64_t n, bool stream) {
  write_run(y, n, stream, [=](int64_t first, T* to, int64_t count) {
#pragma GCC ivdep
    for (int64_t i = 0; i < count; ++i) to[i] = (x[first + i] - mean) * scale + shift;
  });
}

template <class T>
void gradient(const T* g, const T* x, T mean, T scale, T g_mean, T slope, T* grad_x, int64_t n, bool stream) {
  write_run(grad_x, n, stream, [=](int64_t first, T* to, int64_t count) {
#pragma GCC ivdep
    for (int64_t i = 0; i < count; ++i)
      to[i] = scale * ((g[first + i] - g_mean) - (x[first + i] - mean) * slope);
  });
}

/// to[v] = the sum of f(r, v) over r < count: row r goes to partial sum r % 4; these are added in pairs.
template <int vectors, class V, class F>
[[gnu::always_inline]] inline void sum_rows(int64_t count, V* to, F f) {
  V sum[4][vectors] = {};
  int64_t r = 0;
  for (; r + 4 <= count; r += 4) {
    for (int i = 0; i < 4; ++i) {
      for (int v = 0; v < vectors; ++v) sum[i][v] += f(r + i, v);
    }
  }
  for (int i = 0; r < count; ++r, ++i) {
    for (int v = 0; v < vectors; ++v) sum[i][v] += f(r, v);
  }
  for (int v = 0; v < vectors; ++v) to[v] = (sum[0][v] + sum[1][v]) + (sum[2][v] + sum[3][v]);
}

/// statistics_of_rows() for `vectors` vectors, or numbers, of each row.
template <int vectors, class V, class T, class Load, class Store>
[[gnu::always_inline]] inline void statistics(const T* x, int64_t stride, int64_t count, T* sum, T* rest,
                                              T* squares, Load load_from, Store store_to) {
  constexpr int64_t n = sizeof(V) / sizeof(T);
  V total[vectors], mean[vectors], both[2 * vectors];
  sum_rows<vectors>(count, total, [=](int64_t r, int v) {
    __builtin_prefetch(x + (r + count) * stride + v * n, 0, 2);
    return load_from(x + r * stride + v * n);
  });
  for (int v = 0; v < vectors; ++v) mean[v] = total[v] / static_cast<T>(count);
  sum_rows<2 * vectors>(count, both, [=](int64_t r, int v) {
    const V d = load_from(x + r * stride + v % vectors * n) - mean[v % vectors];
    return v < vectors ? d : d * d;
  });
  for (int v = 0; v < vectors; ++v) {
    store_to(sum + v * n, total[v]);
    store_to(rest + v * n, both[v]);
    store_to(squares + v * n, both[vectors + v]);
  }
}

template <class T>
void statistics_of_rows(const T* x, int64_t stride, int64_t count, int64_t width, T* sum, T* rest,
                        T* squares) {
  const auto of_vectors = [=]<int vectors>(int64_t c) {
    statistics<vectors, Vec<T>>(
        x + c, stride, count, sum + c, rest + c, squares + c, [](const T* from) { return load(from); },
        [](T* to, Vec<T> v) { store(to, v); });
  };
  constexpr int pair = 2;  // vectors, so that two neighbouring cache lines are read together
  int64_t c = 0;
  for (; c + pair * lanes<T> <= width; c += pair * lanes<T>) of_vectors.template operator()<pair>(c);
  for (; c + lanes<T> <= width; c += lanes<T>) of_vectors.template operator()<1>(c);
  for (; c < width; ++c)
    statistics<1, T>(
        x + c, stride, count, sum + c, rest + c, squares + c, [](const T* from) { return *from; },
        [](T* to, T v) { *to = v; });
}

template <class T>
constexpr NormalizeOf<T> table{squares<T>, gradient_sums<T>, apply<T>, gradient<T>, statistics_of_rows<T>};

}  // namespace

const NormalizeKernels normalize_kernels{table<float>, table<double>};

}  // namespace vox::cpu::simd::VOXGRAD_ISA
