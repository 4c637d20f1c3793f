// Elementwise arithmetic and functions, one line each.
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

/// y[i] = f(a[i * a_step], b[i * b_step]). The caller never sets `stream` if Y is smaller than T.
template <class T, class Y, class F>
[[gnu::always_inline]] inline void binary_run(const T* a, int64_t a_step, const T* b, int64_t b_step, Y* y,
                                              int64_t n, bool stream, F f) {
  if (a_step == 0) {
    const T left = *a;
    if (b_step == 0) {
      const T right = *b;
      write_run(y, n, stream, [=](int64_t, Y* to, int64_t count) {
        for (int64_t i = 0; i < count; ++i) to[i] = f(left, right);
      });
    } else {
      write_run(y, n, stream, [=](int64_t first, Y* to, int64_t count) {
#pragma GCC ivdep
        for (int64_t i = 0; i < count; ++i) to[i] = f(left, b[first + i]);
      });
    }
  } else if (b_step == 0) {
    const T right = *b;
    write_run(y, n, stream, [=](int64_t first, Y* to, int64_t count) {
#pragma GCC ivdep
      for (int64_t i = 0; i < count; ++i) to[i] = f(a[first + i], right);
    });
  } else {
    write_run(y, n, stream, [=](int64_t first, Y* to, int64_t count) {
#pragma GCC ivdep
      for (int64_t i = 0; i < count; ++i) to[i] = f(a[first + i], b[first + i]);
    });
  }
}

// ---- Functions -------------------------------------------------------------------------------------------

/// Integers are computed as unsigned numbers, whose overflow is defined.
template <class T>
struct WrappingOf {
  using type = T;
};
template <>
struct WrappingOf<int64_t> {
  using type = uint64_t;
};
template <class T>
using Wrapping = typename WrappingOf<T>::type;

template <class T>
[[gnu::always_inline]] inline T negative(T v) {
  if constexpr (is_real<T>)
    return -v;
  else
    return static_cast<T>(Wrapping<T>(0) - static_cast<Wrapping<T>>(v));
}

template <class T>
[[gnu::always_inline]] inline T magnitude(T v) {
  if constexpr (is_real<T>)
    return absolute(v);
  else
    return v < T(0) ? negative(v) : v;
}

[[gnu::always_inline]] inline float square_root(float v) { return __builtin_sqrtf(v); }
[[gnu::always_inline]] inline double square_root(double v) { return __builtin_sqrt(v); }

/// Functions that no 3-D network spends its time in: one call of the C library for each element.
struct Library {
  static float sin(float v) { return __builtin_sinf(v); }
  static double sin(double v) { return __builtin_sin(v); }
  static float cos(float v) { return __builtin_cosf(v); }
  static double cos(double v) { return __builtin_cos(v); }
  static float log1p(float v) { return __builtin_log1pf(v); }
  static double log1p(double v) { return __builtin_log1p(v); }
  static float expm1(float v) { return __builtin_expm1f(v); }
  static double expm1(double v) { return __builtin_expm1(v); }
};

/// x, limited to [0, 6].
template <class T>
[[gnu::always_inline]] inline T up_to_6(T x) {
  return x < T(0) ? T(0) : x > T(6) ? T(6) : x;
}

template <class T, Unary op>
void unary(const T* x, T* y, int64_t n, T p, T q, bool stream) {
  unary_run(x, y, n, stream, [=]([[gnu::unused]] T v) -> T {
    if constexpr (op == Unary::neg) return negative(v);
    if constexpr (op == Unary::abs) return magnitude(v);
    if constexpr (op == Unary::sign) return v > T(0) ? T(1) : v < T(0) ? T(-1) : v;
    if constexpr (op == Unary::relu) return v < T(0) ? T(0) : v;
    if constexpr (op == Unary::clamp || op == Unary::hardtanh) return v < p ? p : v > q ? q : v;
    if constexpr (is_real<T>) {
      if constexpr (op == Unary::floor) return T(__builtin_floor(v));
      if constexpr (op == Unary::ceil) return T(__builtin_ceil(v));
      if constexpr (op == Unary::round) return T(__builtin_rint(v));
      if constexpr (op == Unary::sin) return Library::sin(v);
      if constexpr (op == Unary::cos) return Library::cos(v);
      if constexpr (op == Unary::log1p) return Library::log1p(v);
      if constexpr (op == Unary::expm1) return Library::expm1(v);
      if constexpr (op == Unary::exp) return exp(v);
      if constexpr (op == Unary::log) return log(v);
      if constexpr (op == Unary::sqrt) return square_root(v);
      if constexpr (op == Unary::rsqrt) return T(1) / square_root(v);
      if constexpr (op == Unary::erf) return erf(v);
      if constexpr (op == Unary::tanh) return tanh(v);
      if constexpr (op == Unary::sigmoid) return sigmoid(v);
      if constexpr (op == Unary::leaky_relu) return v < T(0) ? p * v : v;
      if constexpr (op == Unary::hardsigmoid) return up_to_6(v + T(3)) / T(6);
      if constexpr (op == Unary::hardswish) return v * up_to_6(v + T(3)) / T(6);
      if constexpr (op == Unary::elu) return v > T(0) ? v : p * expm1_of_negative(v);
      if constexpr (op == Unary::softplus) return v * p > q ? v : log_of_1_plus_exp(v * p) / p;
      if constexpr (op == Unary::gelu) return gelu(v);
      if constexpr (op == Unary::silu) return silu(v);
      if constexpr (op == Unary::mish) return mish(v);
    }
  });
}

/// The gradient by v for g, where v is what the op's node keeps: the input x, or the output y.
template <class T, Unary op>
void gradient(const T* g_run, int64_t g_step, const T* kept, int64_t kept_step, T* grad_x, int64_t n, T p,
              T q, bool stream) {
  const auto slope = [=](T g, T v) -> T {
    if constexpr (op == Unary::abs) return g * (v > T(0) ? T(1) : v < T(0) ? T(-1) : v);
    if constexpr (op == Unary::sqrt) return g / (T(2) * v);
    if constexpr (op == Unary::rsqrt) return g * (v * v * v * T(-0.5));
    if constexpr (op == Unary::sin) return g * Library::cos(v);
    if constexpr (op == Unary::cos) return g * -Library::sin(v);
    if constexpr (op == Unary::log1p) return g / (v + T(1));
    if constexpr (op == Unary::expm1) return g * (v + T(1));
    if constexpr (op == Unary::erf) return g * (exp(-(v * v)) * T(1.12837916709551257390));
    if constexpr (op == Unary::tanh) return g * (T(1) - v * v);
    if constexpr (op == Unary::sigmoid) return g * (v * (T(1) - v));
    if constexpr (op == Unary::relu) return v == T(0) ? T(0) : g;
    if constexpr (op == Unary::leaky_relu) return v > T(0) ? g : g * p;
    if constexpr (op == Unary::clamp) return ((v >= p) & (v <= q)) ? g : T(0);
    if constexpr (op == Unary::hardtanh) return ((v <= p) | (v >= q)) ? T(0) : g;
    if constexpr (op == Unary::hardsigmoid) return ((v > T(-3)) & (v < T(3))) ? g / T(6) : T(0);
    if constexpr (op == Unary::hardswish) return v <= T(-3) ? T(0) : v >= T(3) ? g : g * (v / T(3) + T(0.5));
    if constexpr (op == Unary::elu) return v > T(0) ? g : g * (p * exp(v));
    if constexpr (op == Unary::softplus) return v * p > q ? g : g * sigmoid(v * p);
    if constexpr (op == Unary::gelu) return g * gelu_slope(v);
    if constexpr (op == Unary::silu) {
      const T s = sigmoid(v);
      return g * (s * (T(1) + v * (T(1) - s)));
    }
    if constexpr (op == Unary::mish) return g * mish_slope(v);
  };
  binary_run(g_run, g_step, kept, kept_step, grad_x, n, stream, slope);
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
  binary_run(a, a_step, b, b_step, y, n, stream, [=]([[gnu::unused]] T l, [[gnu::unused]] T r) -> T {
    using W = Wrapping<T>;
    if constexpr (op == Binary::add) return static_cast<T>(static_cast<W>(l) + static_cast<W>(r));
    if constexpr (op == Binary::sub) return static_cast<T>(static_cast<W>(l) - static_cast<W>(r));
    if constexpr (op == Binary::mul) return static_cast<T>(static_cast<W>(l) * static_cast<W>(r));
    if constexpr (op == Binary::add_scaled)
      return static_cast<T>(static_cast<W>(l) + static_cast<W>(r) * static_cast<W>(p));
    // If l is NaN the comparison is false, which gives l; a NaN in r is tested.
    if constexpr (op == Binary::maximum) return ((l < r) | (r != r)) ? r : l;
    if constexpr (op == Binary::minimum) return ((l > r) | (r != r)) ? r : l;
    if constexpr (is_real<T>) {
      if constexpr (op == Binary::div) return l / r;
      if constexpr (op == Binary::pow) return __builtin_pow(l, r);
    }
  });
}

template <class T, Comparison op>
void compare(const T* a, int64_t a_step, const T* b, int64_t b_step, uint8_t* y, int64_t n) {
  binary_run(a, a_step, b, b_step, y, n, false, [](T l, T r) -> uint8_t {
    if constexpr (op == Comparison::eq) return l == r;
    if constexpr (op == Comparison::ne) return l != r;
    if constexpr (op == Comparison::lt) return l < r;
    if constexpr (op == Comparison::le) return l <= r;
    if constexpr (op == Comparison::gt) return l > r;
    if constexpr (op == Comparison::ge) return l >= r;
  });
}

template <class T>
void where(const uint8_t* condition, int64_t c_step, const T* a, int64_t a_step, const T* b, int64_t b_step,
           T* y, int64_t n, bool stream) {
  if (c_step == 1 && a_step == 1 && b_step == 0) {  // as in the gradients of relu and clamp
    const T other = *b;
    return write_run(y, n, stream, [=](int64_t first, T* to, int64_t count) {
#pragma GCC ivdep
      for (int64_t i = 0; i < count; ++i) to[i] = condition[first + i] ? a[first + i] : other;
    });
  }
  if (c_step == 1 && a_step == 1 && b_step == 1) {
    return write_run(y, n, stream, [=](int64_t first, T* to, int64_t count) {
#pragma GCC ivdep
      for (int64_t i = 0; i < count; ++i) to[i] = condition[first + i] ? a[first + i] : b[first + i];
    });
  }
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
