#pragma once

#include <type_traits>

// The elementwise ops: their names, and their formulas, which the CPU's and CUDA's kernels share. These lists
// are the only ones: kernels take an op as a number, and every table is made from the enums.
//
// A formula is written over M, the arithmetic of a device: the functions of a number (M::exp), and Number,
// the type of constants. simd/elementwise.cpp has that of the CPU for each instruction set,
// cuda/elementwise.cu that of CUDA. For gradients, ops/unary.h has one more, whose numbers are tensors:
// formulas made of it record themselves, and can be differentiated.
//
// ops/cpu/simd includes this file, so it obeys Note [Instruction sets] (ops/cpu/isa.h): all code is inlined.

#ifdef __CUDACC__
#define VOX_FORMULA __device__
#else
#define VOX_FORMULA [[gnu::always_inline]] inline
#endif

namespace vox {

enum class Unary {
  sign,  // from here on the gradient is 0, see is_step()
  floor,
  ceil,
  round,
  neg,  // the gradient is one op
  exp,
  log,
  abs,  // the gradient is several ops, and has a kernel, see has_gradient()
  sqrt,
  rsqrt,
  sin,
  cos,
  log1p,
  expm1,
  erf,
  tanh,
  sigmoid,
  relu,
  leaky_relu,
  clamp,
  hardtanh,
  hardsigmoid,
  hardswish,
  elu,
  softplus,
  gelu,
  silu,
  mish,
  count  // stays last
};

enum class Binary { add, sub, mul, div, pow, maximum, minimum, add_scaled, count };

enum class Comparison { eq, ne, lt, le, gt, ge, count };

inline constexpr int unary_count = static_cast<int>(Unary::count);
inline constexpr int binary_count = static_cast<int>(Binary::count);
inline constexpr int comparison_count = static_cast<int>(Comparison::count);

/// Whether the op has kernels for i64 and u8; the others are for floating dtypes only.
constexpr bool takes_integers(Unary op) {
  return op == Unary::neg || op == Unary::abs || op == Unary::sign || op == Unary::relu ||
         op == Unary::clamp || op == Unary::hardtanh;
}
constexpr bool takes_integers(Binary op) { return op != Binary::div && op != Binary::pow; }

/// Whether the function is constant in pieces.
constexpr bool is_step(Unary op) { return op <= Unary::round; }
/// Whether the op has a gradient kernel (UnaryGradientKernel in ops/kernels.h).
constexpr bool has_gradient(Unary op) { return op >= Unary::abs; }
/// What the op's node keeps for the gradient: nothing, x or y = op(x).
enum class Keeps { nothing, input, output };
constexpr Keeps keeps(Unary op) {
  if (op <= Unary::neg) return Keeps::nothing;
  const bool output = op == Unary::exp || op == Unary::sqrt || op == Unary::rsqrt || op == Unary::expm1 ||
                      op == Unary::tanh || op == Unary::sigmoid || op == Unary::relu;
  return output ? Keeps::output : Keeps::input;
}

namespace detail {

/// What the arithmetic of both devices has in common.
template <class T>
struct Numbers {
  using Number = T;
  static constexpr bool is_real = std::is_floating_point_v<T>;
  /// Integers are computed as unsigned numbers, whose overflow is defined.
  using Wrapping = typename std::conditional_t<is_real, std::type_identity<T>, std::make_unsigned<T>>::type;

  VOX_FORMULA static bool is_negative(T x) {
    if constexpr (std::is_unsigned_v<T>)
      return false;
    else
      return x < T(0);
  }
  VOX_FORMULA static T negative(T x) {
    if constexpr (is_real)
      return -x;
    else
      return static_cast<T>(Wrapping(0) - static_cast<Wrapping>(x));
  }
  VOX_FORMULA static T sign(T x) { return x > T(0) ? T(1) : is_negative(x) ? T(-1) : x; }
  /// x, limited to [0, 6].
  VOX_FORMULA static T up_to_6(T x) { return x < T(0) ? T(0) : x > T(6) ? T(6) : x; }
  VOX_FORMULA static T choose(bool condition, T a, T b) { return condition ? a : b; }
  /// x in the results that are chosen; a recording needs more (ops/unary.h).
  VOX_FORMULA static T unless(bool, T x) { return x; }
};

/// y = op(x), with p and q as in ops/kernels.h.
template <Unary op, class M, class T, class N = typename M::Number>
VOX_FORMULA T unary_formula(T x, [[maybe_unused]] N p, [[maybe_unused]] N q) {
  using enum Unary;
  if constexpr (op == sign) return M::sign(x);
  if constexpr (op == floor) return M::floor(x);
  if constexpr (op == ceil) return M::ceil(x);
  if constexpr (op == round) return M::round(x);
  if constexpr (op == neg) return M::negative(x);
  if constexpr (op == exp) return M::exp(x);
  if constexpr (op == log) return M::log(x);
  if constexpr (op == abs) return M::magnitude(x);
  if constexpr (op == sqrt) return M::sqrt(x);
  if constexpr (op == rsqrt) return N(1) / M::sqrt(x);
  if constexpr (op == sin) return M::sin(x);
  if constexpr (op == cos) return M::cos(x);
  if constexpr (op == log1p) return M::log1p(x);
  if constexpr (op == expm1) return M::expm1(x);
  if constexpr (op == erf) return M::erf(x);
  if constexpr (op == tanh) return M::tanh(x);
  if constexpr (op == sigmoid) return M::sigmoid(x);
  if constexpr (op == relu) return M::is_negative(x) ? N(0) : x;
  if constexpr (op == leaky_relu) return x < N(0) ? p * x : x;
  if constexpr (op == clamp || op == hardtanh) return x < p ? p : x > q ? q : x;
  if constexpr (op == hardsigmoid) return M::up_to_6(x + N(3)) / N(6);
  if constexpr (op == hardswish) return x * M::up_to_6(x + N(3)) / N(6);
  if constexpr (op == elu) return x > N(0) ? x : p * M::expm1_of_negative(x);
  if constexpr (op == softplus) return x * p > q ? x : M::log_of_1_plus_exp(x * p) / p;
  if constexpr (op == gelu) return M::gelu(x);
  if constexpr (op == silu) return M::silu(x);
  if constexpr (op == mish) return M::mish(x);
}

/// The gradient of x for g, the gradient of y = op(x). `kept` is x or y, as keeps(op) says. For tensors,
/// every choice keeps what it hides finite: the second gradient multiplies that by 0.
template <Unary op, class M, class T, class N = typename M::Number>
VOX_FORMULA T gradient_formula(T g, T kept, [[maybe_unused]] N p, [[maybe_unused]] N q) {
  using enum Unary;
  [[maybe_unused]] const T &x = kept, &y = kept;
  if constexpr (op == exp) return g * y;
  if constexpr (op == log) return g / x;
  if constexpr (op == abs) return g * M::sign(x);
  if constexpr (op == sqrt) return g / (N(2) * y);
  if constexpr (op == rsqrt) return g * (y * y * y * N(-0.5));
  if constexpr (op == sin) return g * M::cos(x);
  if constexpr (op == cos) return g * -M::sin(x);
  if constexpr (op == log1p) return g / (x + N(1));
  if constexpr (op == expm1) return g * (y + N(1));
  if constexpr (op == erf) return g * (M::exp(-(x * x)) * N(1.12837916709551257390));  // 2 / sqrt(pi)
  if constexpr (op == tanh) return g * (N(1) - y * y);
  if constexpr (op == sigmoid) return g * (y * (N(1) - y));
  // In relu and hardtanh a NaN passes g on, so that its origin can be found. relu's y is never negative.
  if constexpr (op == relu) return M::choose(y <= N(0), N(0), g);
  if constexpr (op == leaky_relu) return M::choose(x > N(0), g, g * p);
  if constexpr (op == clamp) return M::choose(x >= p, M::choose(x <= q, g, N(0)), N(0));
  if constexpr (op == hardtanh) return M::choose(x <= p, N(0), M::choose(x >= q, N(0), g));
  if constexpr (op == hardsigmoid) return M::choose(x > N(-3), M::choose(x < N(3), g / N(6), N(0)), N(0));
  if constexpr (op == hardswish) {
    const T between = M::unless(x <= N(-3), M::unless(x >= N(3), x));
    return M::choose(x <= N(-3), N(0), M::choose(x >= N(3), g, g * (between / N(3) + N(0.5))));
  }
  if constexpr (op == elu) return M::choose(x > N(0), g, g * (p * M::exp(M::unless(x >= N(0), x))));
  if constexpr (op == softplus) return M::choose(x * p > q, g, g * M::sigmoid(x * p));
  if constexpr (op == gelu) return g * M::gelu_slope(x);
  if constexpr (op == silu) {
    const T s = M::sigmoid(x);
    return g * (s * (N(1) + x * (N(1) - s)));
  }
  if constexpr (op == mish) return g * M::mish_slope(x);
}

/// op(a, b); p is the factor of add_scaled.
template <Binary op, class M, class T>
VOX_FORMULA T binary_formula(T a, T b, [[maybe_unused]] T p) {
  using W = typename M::Wrapping;
  [[maybe_unused]] const W l = static_cast<W>(a), r = static_cast<W>(b);
  if constexpr (op == Binary::add) return static_cast<T>(l + r);
  if constexpr (op == Binary::sub) return static_cast<T>(l - r);
  if constexpr (op == Binary::mul) return static_cast<T>(l * r);
  if constexpr (op == Binary::add_scaled) return static_cast<T>(l + r * static_cast<W>(p));
  // If a is NaN the comparison is false, which gives a; a NaN in b is tested.
  if constexpr (op == Binary::maximum) return ((a < b) | (b != b)) ? b : a;
  if constexpr (op == Binary::minimum) return ((a > b) | (b != b)) ? b : a;
  if constexpr (op == Binary::div) return a / b;
  if constexpr (op == Binary::pow) return M::power(a, b);
}

/// op may be a constant or not.
template <class T>
VOX_FORMULA bool comparison_formula(Comparison op, T a, T b) {
  switch (op) {
    case Comparison::eq:
      return a == b;
    case Comparison::ne:
      return a != b;
    case Comparison::lt:
      return a < b;
    case Comparison::le:
      return a <= b;
    case Comparison::gt:
      return a > b;
    case Comparison::ge:
      return a >= b;
    case Comparison::count:
      break;
  }
  return false;
}

}  // namespace detail
}  // namespace vox
