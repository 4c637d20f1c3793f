#pragma once

// The names of the elementwise ops: an enum each, since kernels and their tables take an op as a number.
// Plain, for ops/cpu/simd includes it too.

namespace vox {

enum class Unary {
  neg,
  abs,
  sign,
  exp,
  log,
  sqrt,
  rsqrt,
  erf,
  tanh,
  sigmoid,
  relu,
  leaky_relu,
  gelu,
  silu,
  clamp
};
inline constexpr int unary_count = 15;

enum class Binary { add, sub, mul, div, pow, maximum, minimum, add_scaled };
inline constexpr int binary_count = 8;

enum class Comparison { eq, ne, lt, le, gt, ge };
inline constexpr int comparison_count = 6;

}  // namespace vox
