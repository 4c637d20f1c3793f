#pragma once

// The names of the elementwise ops. These enums are the only lists: kernels take an op as a number, and every
// table is made from them. `count` stays last. Without includes, because ops/cpu/simd includes this file too.

namespace vox {

enum class Unary {
  neg,
  sign,
  floor,
  ceil,
  round,
  exp,
  log,
  abs,
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
  count
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

/// Whether the op has a gradient kernel (UnaryGradientKernel in ops/kernels.h): abs and those after it. The
/// gradients of the others are one op.
constexpr bool has_gradient(Unary op) { return op >= Unary::abs; }

}  // namespace vox
