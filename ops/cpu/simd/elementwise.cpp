// The loops of elementwise kernels over ops/elementwise_formulas.h.
//
// Note [Same bits everywhere]
//
// An element's result must depend on its operands only. It must not matter whether the compiler computes it
// in a vector, in the remainder of a loop, or through a buffer. IEEE operations give the same bits in vectors
// and alone. So three rules suffice: every function is straight-line code; it calls no library, whose vector
// and scalar versions differ; and the compiler may not fuse a * b + c on its own. For the last rule this file
// is built with -ffp-contract=off, and says fma() where it wants one.

#include <voxgrad/ops/cpu/simd/elementwise.h>
#include <voxgrad/ops/cpu/simd/math.h>
#include <voxgrad/ops/cpu/simd/stream.h>

#include <type_traits>
#include <utility>  // integer_sequence, a type without code

namespace vox::cpu::simd::VOXGRAD_ISA {
namespace {

template <class T>
inline constexpr bool is_real = std::is_floating_point_v<T>;

// ---- Loops -----------------------------------------------------------------------------------------------

template <class T, class F>
[[gnu::always_inline]] inline void unary_run(const T* x, T* y, int64_t n, bool stream, F f) {
  write_run(y, n, stream, [=](int64_t first, T* to, int64_t count) {
#pragma GCC ivdep
    for (int64_t i = 0; i < count; ++i) to[i] = f(x[first + i]);
  });
}

/// An operand as a function of i: x[i], or one element for all i.
template <class T>
[[gnu::always_inline]] inline auto dense(const T* x) {
  return [x](int64_t i) __attribute__((always_inline)) { return x[i]; };
}
template <class T>
[[gnu::always_inline]] inline auto repeated(const T* x) {
  return [element = *x](int64_t) __attribute__((always_inline)) { return element; };
}

/// y[i] = f(a[i * a_step], b[i * b_step]). The caller never sets `stream` if Y is smaller than T.
template <class T, class Y, class F>
[[gnu::always_inline]] inline void binary_run(const T* a, int64_t a_step, const T* b, int64_t b_step, Y* y,
                                              int64_t n, bool stream, F f) {
  const auto run = [=](auto left, auto right) __attribute__((always_inline)) {
    write_run(y, n, stream, [=](int64_t first, Y* to, int64_t count) {
#pragma GCC ivdep
      for (int64_t i = 0; i < count; ++i) to[i] = f(left(first + i), right(first + i));
    });
  };
  if (a_step == 0 && b_step == 0)
    run(repeated(a), repeated(b));
  else if (a_step == 0)
    run(repeated(a), dense(b));
  else if (b_step == 0)
    run(dense(a), repeated(b));
  else
    run(dense(a), dense(b));
}

// ---- The arithmetic of ops/elementwise_formulas.h
// ------------------------------------------------------------

namespace here = simd::VOXGRAD_ISA;  // math.h

template <class T>
struct Math : detail::Numbers<T> {
  static T magnitude(T x) {
    if constexpr (is_real<T>)
      return absolute(x);
    else
      return x < T(0) ? Math::negative(x) : x;
  }
  static T floor(T x) { return T(__builtin_floor(x)); }
  static T ceil(T x) { return T(__builtin_ceil(x)); }
  static T round(T x) { return T(__builtin_rint(x)); }
  static T sqrt(T x) { return sizeof(T) == 4 ? T(__builtin_sqrtf(float(x))) : T(__builtin_sqrt(x)); }
  static T exp(T x) { return here::exp(x); }
  static T log(T x) { return here::log(x); }
  static T erf(T x) { return here::erf(x); }
  static T tanh(T x) { return here::tanh(x); }
  static T sigmoid(T x) { return here::sigmoid(x); }
  static T expm1_of_negative(T x) { return here::expm1_of_negative(x); }
  static T log_of_1_plus_exp(T x) { return here::log_of_1_plus_exp(x); }
  static T gelu(T x) { return here::gelu(x); }
  static T gelu_slope(T x) { return here::gelu_slope(x); }
  static T silu(T x) { return here::silu(x); }
  static T mish(T x) { return here::mish(x); }
  static T mish_slope(T x) { return here::mish_slope(x); }
  static T power(T a, T b) { return __builtin_pow(a, b); }

  // Functions that no 3-D network spends its time in: one call of the C library for each element.
  static float sin(float x) { return __builtin_sinf(x); }
  static double sin(double x) { return __builtin_sin(x); }
  static float cos(float x) { return __builtin_cosf(x); }
  static double cos(double x) { return __builtin_cos(x); }
  static float log1p(float x) { return __builtin_log1pf(x); }
  static double log1p(double x) { return __builtin_log1p(x); }
  static float expm1(float x) { return __builtin_expm1f(x); }
  static double expm1(double x) { return __builtin_expm1(x); }
};

// ---- Kernels ---------------------------------------------------------------------------------------------

// A loop over a formula becomes vector code only if the formula is inlined. The compiler has a limit of size
// for that, which the longest formulas exceed, so the lambdas say it.

template <class T, Unary op>
void unary(const T* x, T* y, int64_t n, T p, T q, bool stream) {
  unary_run(
      x, y, n, stream, [=](T v) __attribute__((always_inline)) {
        return detail::unary_formula<op, Math<T>>(v, p, q);
      });
}

template <class T, Unary op>
void gradient(const T* g, int64_t g_step, const T* kept, int64_t kept_step, T* grad_x, int64_t n, T p, T q,
              bool stream) {
  binary_run(
      g, g_step, kept, kept_step, grad_x, n, stream, [=](T l, T r) __attribute__((always_inline)) {
        return detail::gradient_formula<op, Math<T>>(l, r, p, q);
      });
}

/// Recomputes powers of zeros, negative numbers, infinities and NaN with libm, which has IEEE's rules.
void pow_f32(const float* a, int64_t a_step, const float* b, int64_t b_step, float* y, int64_t n, float,
             float, bool) {
  constexpr int64_t block = 512;
  float result[block];
  for (int64_t begin = 0; begin < n; begin += block) {
    const int64_t count = n - begin < block ? n - begin : block;
    const float *left = a + begin * a_step, *right = b + begin * b_step;
    binary_run(left, a_step, right, b_step, result, count, false,
               [](float l, float r) { return pow_of_positive(l, r); });
    const auto is_special = [=](int64_t i) {
      const float l = left[i * a_step], r = right[i * b_step];
      return !(l > 0) | !(l < __builtin_inff()) | !(absolute(r) < __builtin_inff());
    };
    int specials = 0;
    for (int64_t i = 0; i < count; ++i) specials += is_special(i);
    for (int64_t i = 0; specials > 0 && i < count; ++i) {
      if (is_special(i)) result[i] = __builtin_powf(left[i * a_step], right[i * b_step]);
    }
    __builtin_memcpy(y + begin, result, static_cast<size_t>(count) * sizeof(float));
  }
}

template <class T, Binary op>
void binary(const T* a, int64_t a_step, const T* b, int64_t b_step, T* y, int64_t n, T p, T, bool stream) {
  binary_run(a, a_step, b, b_step, y, n, stream,
             [=](T l, T r) { return detail::binary_formula<op, Math<T>>(l, r, p); });
}

template <class T, Comparison op>
void compare(const T* a, int64_t a_step, const T* b, int64_t b_step, uint8_t* y, int64_t n) {
  binary_run(a, a_step, b, b_step, y, n, false,
             [](T l, T r) -> uint8_t { return detail::comparison_formula(op, l, r); });
}

template <class T>
void where(const uint8_t* condition, int64_t c_step, const T* a, int64_t a_step, const T* b, int64_t b_step,
           T* y, int64_t n, bool stream) {
  const auto run = [=](auto other) __attribute__((always_inline)) {
    write_run(y, n, stream, [=](int64_t first, T* to, int64_t count) {
#pragma GCC ivdep
      for (int64_t i = 0; i < count; ++i) to[i] = condition[first + i] ? a[first + i] : other(first + i);
    });
  };
  if (c_step == 1 && a_step == 1 && b_step == 0)
    return run(repeated(b));  // in the gradients of relu and clamp
  if (c_step == 1 && a_step == 1 && b_step == 1) return run(dense(b));
  for (int64_t i = 0; i < n; ++i) y[i] = condition[i * c_step] ? a[i * a_step] : b[i * b_step];
}

// ---- Tables, made from the enums --------------------------------------------------------------------------

template <class T, Unary op>
constexpr UnaryRun<T> unary_entry() {
  if constexpr (is_real<T> || takes_integers(op))
    return unary<T, op>;
  else
    return nullptr;
}

template <class T, Unary op>
constexpr BinaryRun<T> gradient_entry() {
  if constexpr (is_real<T> && has_gradient(op))
    return gradient<T, op>;
  else
    return nullptr;
}

template <class T, Binary op>
constexpr BinaryRun<T> binary_entry() {
  if constexpr (op == Binary::pow && std::is_same_v<T, float>)
    return pow_f32;
  else if constexpr (is_real<T> || takes_integers(op))
    return binary<T, op>;
  else
    return nullptr;
}

template <class T, int... u, int... b, int... c>
constexpr ElementwiseOf<T> table_of(std::integer_sequence<int, u...>, std::integer_sequence<int, b...>,
                                    std::integer_sequence<int, c...>) {
  return {{unary_entry<T, Unary(u)>()...},
          {gradient_entry<T, Unary(u)>()...},
          {binary_entry<T, Binary(b)>()...},
          {compare<T, Comparison(c)>...},
          where<T>};
}

template <class T>
constexpr ElementwiseOf<T> table = table_of<T>(std::make_integer_sequence<int, unary_count>(),
                                               std::make_integer_sequence<int, binary_count>(),
                                               std::make_integer_sequence<int, comparison_count>());

}  // namespace

const ElementwiseKernels elementwise_kernels{table<float>, table<double>, table<int64_t>, table<uint8_t>};

}  // namespace vox::cpu::simd::VOXGRAD_ISA
