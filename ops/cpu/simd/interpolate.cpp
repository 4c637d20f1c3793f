// Built like elementwise.cpp, see Note [Same bits everywhere] there.

#include <voxgrad/ops/cpu/simd/interpolate.h>
#include <voxgrad/ops/cpu/simd/pick.h>
#include <voxgrad/ops/cpu/simd/stream.h>
#include <voxgrad/ops/cpu/simd/vec.h>

namespace vox::cpu::simd::VOXGRAD_ISA {
namespace {

template <class T>
void blend_rows(const T* x, const int64_t* index, const int64_t* next, const T* weights,
                const T* next_weights, T* y, int64_t rows, int64_t n, bool stream) {
  for (int64_t r = 0; r < rows; ++r, y += n) {
    const T *a = x + index[r] * n, *b = x + next[r] * n;
    const T weight = weights[r], next_weight = next_weights[r];
    if (next_weight == 0) {  // avoids 0 * inf, and there may be no next row
      copy_run(reinterpret_cast<const char*>(a), reinterpret_cast<char*>(y),
               n * static_cast<int64_t>(sizeof(T)), stream);
    } else {
      write_run(y, n, stream, [=](int64_t first, T* to, int64_t count) {
#pragma GCC ivdep
        for (int64_t i = 0; i < count; ++i) to[i] = weight * a[first + i] + next_weight * b[first + i];
      });
    }
  }
}

/// For so few rows that they stay in the first-level cache while their parts are computed one by one.
template <class T>
void blend_along_few(const T* x, int64_t rows, int64_t in, const int32_t* index, const int32_t* next,
                     const T* weight, const T* next_weight, T* y, int64_t n) {
  int64_t o = 0;
  if constexpr (picks_lanes) {
    for (; in >= lanes<T> && o + lanes<T> <= n; o += lanes<T>) {
      // The first cell of the vector that holds all cells of these outputs.
      const int64_t begin = index[o] < in - lanes<T> ? index[o] : in - lanes<T>;
      if (next[o + lanes<T> - 1] - begin >= lanes<T>) break;
      const LaneNumbers<T> at = load_numbers<T>(index + o) - numbers<T>(begin),
                           next_at = load_numbers<T>(next + o) - numbers<T>(begin);
      const Vec<T> w = load(weight + o), w_next = load(next_weight + o);
      for (int64_t r = 0; r < rows; ++r) {
        const Vec<T> cells = load(x + r * in + begin), a = pick(cells, at), b = pick(cells, next_at),
                     both = w * a + w_next * b;
        store(y + r * n + o, w_next == 0 ? a : both);
      }
    }
  }
  for (int64_t r = 0; o < n && r < rows; ++r) {
    const T* const from = x + r * in;
    T* const to = y + r * n;
#pragma GCC ivdep
    for (int64_t i = o; i < n; ++i) {
      const T a = from[index[i]], both = weight[i] * a + next_weight[i] * from[next[i]];
      to[i] = next_weight[i] == 0 ? a : both;
    }
  }
}

template <class T>
void blend_along(const T* x, int64_t rows, int64_t in, const int32_t* index, const int32_t* next,
                 const T* weight, const T* next_weight, T* y, int64_t n) {
  const int64_t few = 1 + 4096 / (in + n);
  for (int64_t r = 0; r < rows; r += few)
    blend_along_few(x + r * in, rows - r < few ? rows - r : few, in, index, next, weight, next_weight,
                    y + r * n, n);
}

/// Adds weights[0] * row 0 + ... to y, or to 0 if `begins`; meanwhile prefetches what the next rows read.
template <class T, int count>
[[gnu::always_inline]] inline void add_rows(const T* x, const int64_t* outputs, const T* weights, T* y,
                                            int64_t n, bool begins, const T* ahead, const T* ahead_too) {
  const T* row[count];
  Vec<T> weight[count];
  for (int k = 0; k < count; ++k) row[k] = x + outputs[k] * n, weight[k] = Vec<T>{} + weights[k];
  int64_t i = 0;
  for (; i + lanes<T> <= n; i += lanes<T>) {
    __builtin_prefetch(ahead + i);
    __builtin_prefetch(ahead_too + i);
    Vec<T> sum = begins ? Vec<T>{} : load(y + i);
    for (int k = 0; k < count; ++k) sum += weight[k] * load(row[k] + i);
    store(y + i, sum);
  }
  for (; i < n; ++i) {
    T sum = begins ? T(0) : y[i];
    for (int k = 0; k < count; ++k) sum += weights[k] * row[k][i];
    y[i] = sum;
  }
}

template <class T>
void sum_rows(const T* x, const int64_t* begins, const int64_t* outputs, const T* weights, T* y, int64_t rows,
              int64_t n) {
  // Distance of the prefetches: two rows, but at least a page.
  const int64_t page = 4096 / sizeof(T), far = 2 * n > page ? 2 * n : page;
  for (int64_t r = 0; r < rows; ++r, y += n) {
    int64_t k = begins[r];
    const int64_t end = begins[r + 1];
    if (k == end) {
      for (int64_t i = 0; i < n; ++i) y[i] = 0;
      continue;
    }
    // Only the last two rows are new; earlier sums have read the others.
    const int64_t last = outputs[end - 1], other = outputs[end - (end - k > 1 ? 2 : 1)];
    const T *const ahead = x + last * n + far, *const ahead_too = x + other * n + far;
    bool is_first = true;
    while (k < end) {
      const auto add = [&]<int count>() __attribute__((always_inline)) {
        add_rows<T, count>(x, outputs + k, weights + k, y, n, is_first, ahead, ahead_too);
        k += count;
      };
      if (end - k >= 4)
        add.template operator()<4>();
      else if (end - k >= 2)
        add.template operator()<2>();
      else
        add.template operator()<1>();
      is_first = false;
    }
  }
}

template <class T>
void sum_along_few(const T* x, int64_t rows, int64_t out, const int32_t* first, const int32_t* count,
                   int64_t taps, const T* weights, T* y, int64_t n) {
  int64_t i = 0;
  if constexpr (picks_lanes) {
    constexpr int64_t window = 2 * lanes<T>;  // what two vectors hold
    for (; out >= window && i + lanes<T> <= n; i += lanes<T>) {
      if (first[i + lanes<T> - 1] - first[i] >= window) break;
      const LaneNumbers<T> firsts = load_numbers<T>(first + i), counts = load_numbers<T>(count + i);
      for (int64_t r = 0; r < rows; ++r) {
        Vec<T> sum = {};
        for (int64_t k = 0; k < taps; ++k) {
          const int64_t begin = first[i] + k < out - window ? first[i] + k : out - window;
          const T* const from = x + r * out + begin;
          const Vec<T> g = pick(load(from), load(from + lanes<T>), firsts + numbers<T>(k - begin));
          const Vec<T> added = sum + load(weights + k * n + i) * g;
          sum = counts > numbers<T>(k) ? added : sum;
        }
        store(y + r * n + i, sum);
      }
    }
  }
  for (int64_t r = 0; r < rows; ++r) {
    for (int64_t j = i; j < n; ++j) {
      T sum = 0;
      for (int64_t k = 0; k < count[j]; ++k) sum += weights[k * n + j] * x[r * out + first[j] + k];
      y[r * n + j] = sum;
    }
  }
}

template <class T>
void sum_along(const T* x, int64_t rows, int64_t out, const int32_t* first, const int32_t* count,
               int64_t taps, const T* weights, T* y, int64_t n) {
  const int64_t few = 1 + 4096 / (out + n);
  for (int64_t r = 0; r < rows; r += few)
    sum_along_few(x + r * out, rows - r < few ? rows - r : few, out, first, count, taps, weights, y + r * n,
                  n);
}

template <class T>
constexpr InterpolateOf<T> table{blend_rows<T>, blend_along<T>, sum_rows<T>, sum_along<T>};

}  // namespace

const OfReals<InterpolateOf> interpolate_kernels{table<float>, table<double>};

}  // namespace vox::cpu::simd::VOXGRAD_ISA
