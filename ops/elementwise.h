#pragma once

#include <optional>

#include <voxgrad/core/tensor.h>

// Elementwise ops. Two tensors must have one dtype and device, and broadcast by NumPy's rule; a C++ number
// takes the tensor's dtype. Every op whose result has a floating dtype is differentiable; the gradient of
// sign is zero. bf16 and f16 are computed in f32 and rounded once; a number beside them is an f32.

namespace vox {

// ---- Two operands: any dtype except bool; div, pow: floating only. Integers wrap around ------------------
Tensor add(const Tensor& a, const Tensor& b);
Tensor sub(const Tensor& a, const Tensor& b);
Tensor mul(const Tensor& a, const Tensor& b);
Tensor div(const Tensor& a, const Tensor& b);
Tensor pow(const Tensor& a, const Tensor& b);  ///< pow(a, 0) is 1, and its gradient by a is 0, for every a
/// Elementwise larger / smaller; NaN if either is NaN. Equal operands share the gradient equally; if either
/// is NaN, both get all of it.
Tensor maximum(const Tensor& a, const Tensor& b);
Tensor minimum(const Tensor& a, const Tensor& b);
Tensor maximum(const Tensor& a, Scalar b);
Tensor minimum(const Tensor& a, Scalar b);
Tensor add(const Tensor& a, Scalar b);
Tensor sub(const Tensor& a, Scalar b);
Tensor sub(Scalar a, const Tensor& b);
Tensor mul(const Tensor& a, Scalar b);
Tensor div(const Tensor& a, Scalar b);
Tensor div(Scalar a, const Tensor& b);
Tensor pow(const Tensor& a, Scalar exponent);
Tensor pow(Scalar a, const Tensor& exponent);

inline Tensor operator+(const Tensor& a, const Tensor& b) { return add(a, b); }
inline Tensor operator-(const Tensor& a, const Tensor& b) { return sub(a, b); }
inline Tensor operator*(const Tensor& a, const Tensor& b) { return mul(a, b); }
inline Tensor operator/(const Tensor& a, const Tensor& b) { return div(a, b); }
inline Tensor operator+(const Tensor& a, Scalar b) { return add(a, b); }
inline Tensor operator-(const Tensor& a, Scalar b) { return sub(a, b); }
inline Tensor operator*(const Tensor& a, Scalar b) { return mul(a, b); }
inline Tensor operator/(const Tensor& a, Scalar b) { return div(a, b); }
inline Tensor operator+(Scalar a, const Tensor& b) { return add(b, a); }
inline Tensor operator-(Scalar a, const Tensor& b) { return sub(a, b); }
inline Tensor operator*(Scalar a, const Tensor& b) { return mul(b, a); }
inline Tensor operator/(Scalar a, const Tensor& b) { return div(a, b); }

// ---- One operand -----------------------------------------------------------------------------------------
// neg, abs, sign, floor, ceil, round, relu, clamp, hardtanh and relu6 take any dtype except bool (u8 wraps);
// the others take floating dtypes only.
Tensor neg(const Tensor& x);
Tensor abs(const Tensor& x);   ///< gradient at 0 is 0, at NaN NaN
Tensor sign(const Tensor& x);  ///< -1, 0 or 1; NaN stays NaN
/// The next whole number below, above, and the nearest one (a half goes to the even one). Gradient 0.
Tensor floor(const Tensor& x);
Tensor ceil(const Tensor& x);
Tensor round(const Tensor& x);
Tensor exp(const Tensor& x);
Tensor log(const Tensor& x);
Tensor sqrt(const Tensor& x);
Tensor rsqrt(const Tensor& x);
Tensor sin(const Tensor& x);
Tensor cos(const Tensor& x);
Tensor log1p(const Tensor& x);  ///< log(1 + x), accurate near 0
Tensor expm1(const Tensor& x);  ///< exp(x) - 1, accurate near 0
Tensor erf(const Tensor& x);
Tensor tanh(const Tensor& x);
Tensor sigmoid(const Tensor& x);
Tensor relu(const Tensor& x);  ///< gradient at 0 is 0, at NaN 1; NaN stays NaN
Tensor leaky_relu(const Tensor& x, Real negative_slope = 0.01);
/// Exact: x * (1 + erf(x / sqrt 2)) / 2 (Hendrycks & Gimpel, arXiv 1606.08415).
Tensor gelu(const Tensor& x);
/// Its approximation x * (1 + tanh(sqrt(2 / pi) * (x + 0.044715 x^3))) / 2; PyTorch's approximate='tanh'.
Tensor gelu_tanh(const Tensor& x);
Tensor silu(const Tensor& x);  ///< x * sigmoid(x); like gelu, NaN at -inf
/// Bounds each element; gradient 1 within [min, max], 0 outside and at NaN. NaN stays NaN. min <= max.
Tensor clamp(const Tensor& x, Scalar min, Scalar max);
/// With one bound or both: `clamp(x, {.min = -1})`.
struct ClampOptions {
  detail::ByName by_name{};
  std::optional<Scalar> min = {}, max = {};
};
Tensor clamp(const Tensor& x, const ClampOptions& bounds);
/// With a bound for each element; all broadcast, and one bound may be undefined. max where min > max; NaN
/// where an operand is. A bound gets the gradient of the elements that it replaces, as in PyTorch: no operand
/// gets one at a NaN, and none where x is below min == max.
Tensor clamp(const Tensor& x, const Tensor& min, const Tensor& max);
/// As clamp, but the gradient at min and max is 0, and at NaN 1, as in PyTorch.
Tensor hardtanh(const Tensor& x, Scalar min = -1, Scalar max = 1);
Tensor relu6(const Tensor& x);                ///< hardtanh(x, 0, 6)
Tensor hardsigmoid(const Tensor& x);          ///< relu6(x + 3) / 6
Tensor hardswish(const Tensor& x);            ///< x * hardsigmoid(x); NaN at -inf
Tensor elu(const Tensor& x, Real alpha = 1);  ///< x for x > 0, else alpha * (exp(x) - 1)
/// log(1 + exp(beta * x)) / beta; x itself where beta * x > threshold.
Tensor softplus(const Tensor& x, Real beta = 1, Real threshold = 20);
Tensor mish(const Tensor& x);  ///< x * tanh(softplus(x)); NaN at -inf
inline Tensor operator-(const Tensor& x) { return neg(x); }

// ---- Comparisons: bool results, never differentiable ------------------------------------------------------
Tensor eq(const Tensor& a, const Tensor& b);
Tensor ne(const Tensor& a, const Tensor& b);
Tensor lt(const Tensor& a, const Tensor& b);
Tensor le(const Tensor& a, const Tensor& b);
Tensor gt(const Tensor& a, const Tensor& b);
Tensor ge(const Tensor& a, const Tensor& b);
Tensor eq(const Tensor& a, Scalar b);
Tensor ne(const Tensor& a, Scalar b);
Tensor lt(const Tensor& a, Scalar b);
Tensor le(const Tensor& a, Scalar b);
Tensor gt(const Tensor& a, Scalar b);
Tensor ge(const Tensor& a, Scalar b);
// No operator==: C++ expects a bool of it.
inline Tensor operator<(const Tensor& a, const Tensor& b) { return lt(a, b); }
inline Tensor operator<=(const Tensor& a, const Tensor& b) { return le(a, b); }
inline Tensor operator>(const Tensor& a, const Tensor& b) { return gt(a, b); }
inline Tensor operator>=(const Tensor& a, const Tensor& b) { return ge(a, b); }
inline Tensor operator<(const Tensor& a, Scalar b) { return lt(a, b); }
inline Tensor operator<=(const Tensor& a, Scalar b) { return le(a, b); }
inline Tensor operator>(const Tensor& a, Scalar b) { return gt(a, b); }
inline Tensor operator>=(const Tensor& a, Scalar b) { return ge(a, b); }

/// Of any dtype; integers are finite. Never differentiable.
Tensor isnan(const Tensor& x);
Tensor isinf(const Tensor& x);
Tensor isfinite(const Tensor& x);

/// Of any dtypes: everything except 0 counts as true. bool results.
Tensor logical_and(const Tensor& a, const Tensor& b);
Tensor logical_or(const Tensor& a, const Tensor& b);
Tensor logical_xor(const Tensor& a, const Tensor& b);
Tensor logical_not(const Tensor& x);

/// Whether shape, dtype and all elements are equal. A NaN is unequal to itself.
bool equal(const Tensor& a, const Tensor& b);
/// Whether |a - b| <= atol + rtol * |b| everywhere; infinities must be equal. Shapes broadcast. Any dtype
/// except bool. Throws ValueError for a negative or NaN tolerance.
bool allclose(const Tensor& a, const Tensor& b, Real rtol = 1e-5, Real atol = 1e-8, Flag equal_nan = false);

/// condition ? a : b, elementwise; condition is bool, all three broadcast. Gradients: where(c, g, 0),
/// where(c, 0, g).
Tensor where(const Tensor& condition, const Tensor& a, const Tensor& b);
Tensor where(const Tensor& condition, const Tensor& a, Scalar b);
Tensor where(const Tensor& condition, Scalar a, const Tensor& b);
/// where(mask, value, x)
Tensor masked_fill(const Tensor& x, const Tensor& mask, Scalar value);

}  // namespace vox
