#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include <voxgrad/core/generator.h>
#include <voxgrad/core/tensor.h>
#include <voxgrad/ops/conv3d_geometry.h>
#include <voxgrad/ops/dispatch.h>
#include <voxgrad/ops/optimizer_step.h>
#include <voxgrad/ops/precision.h>

// The contract between ops and kernels: the kernels of both devices, each signature once. Here are those that
// every network needs; norms, pooling and other layers have theirs in ops/layer_kernels.h. ByDevice
// (dispatch.h) states what holds for all of them: the caller checks shapes, dtypes and devices and allocates
// outputs; the kernel writes every element of its outputs. "Dense" means contiguous. A kernel reads any
// strides unless it asks for dense tensors.

namespace vox {

// ops/elementwise_formulas.h has their values.
enum class Unary;
enum class Binary;
enum class Comparison;

namespace detail {
struct AdamStep;  // adam_step.h
}
// ---- Elementwise: all tensors have the shape of the output (a broadcast operand has stride 0). An input is
// the output itself, element for element, or does not overlap it. bf16 and f16 are computed in f32 and
// rounded once. A *number operand* (number() in ops/broadcast.h) is an input of one repeated element. It is
// in host memory, whatever the output's device, and an f32 for 16-bit outputs.

/// y = op(x). p is the slope of leaky_relu and the alpha of elu; p and q are the bounds of clamp and
/// hardtanh, and beta and threshold of softplus. Integers wrap around.
using UnaryKernel = void(Unary op, const Tensor& x, const Tensor& y, Scalar p, Scalar q);
/// grad_x = the gradient of op for g, from `kept`, op's input or output as keeps(op) says. For ops with
/// has_gradient(op), and floating dtypes.
using UnaryGradientKernel = void(Unary op, const Tensor& g, const Tensor& kept, const Tensor& grad_x,
                                 Scalar p, Scalar q);
/// y = op(a, b); add_scaled is a + p * b. Integers wrap around.
using BinaryKernel = void(Binary op, const Tensor& a, const Tensor& b, const Tensor& y, Scalar p);
/// y = op(a, b), y bool.
using CompareKernel = void(Comparison op, const Tensor& a, const Tensor& b, const Tensor& y);
/// y = condition ? a : b.
using WhereKernel = void(const Tensor& condition, const Tensor& a, const Tensor& b, const Tensor& y);
/// target = source, converted by detail::convert (element.h) if the dtypes differ.
using CopyKernel = void(const Tensor& source, const Tensor& target);
using FillKernel = void(const Tensor& target, Scalar value);
/// y[before + step * i] = x[i] for every index i of x, and `value` elsewhere. y is dense; in each dimension
/// it has room for x. x and y have one dtype.
using PadKernel = void(const Tensor& x, const Shape& before, const Shape& step, Scalar value,
                       const Tensor& y);

// ---- Reductions

enum class ReduceKind {
  sum,
  mean,
  max,
  min,
  argmax,
  argmin,
  sum_of_magnitudes,
  mean_magnitude,
  sum_of_squares,
  mean_square,
  norm,  // the square root of the sum of squares
  logsumexp
};

/// A longer row is reduced in blocks of this many elements; then the row of block results is reduced.
inline constexpr int64_t reduce_block_size = 1024;

/// Reduces the last `reduced_dims` dimensions of x into the dense y, whose elements are those of x's other
/// dimensions in row-major order. y has x's dtype, but i64 for arg* and for sums of i64, u8 and bool. The
/// kinds up to argmin take all dtypes, except mean; the others floating ones. max, min, argmax and argmin
/// never get an empty row. Magnitudes and squares are those of x - target if `target` is defined, which has
/// x's dtype, shape and strides. `extra` is dense, of y's shape and dtype opmath. If it is defined, it gets,
/// for max and min of floating dtypes, the number of elements that equal the result, and for the kinds from
/// sum_of_magnitudes on the results before they are rounded; these may then leave y undefined.
using ReduceKernel = void(ReduceKind kind, const Tensor& x, const Tensor& target, int64_t reduced_dims,
                          Tensor& y, Tensor& extra);

/// Gradients of reductions. g, r and b are repeated over the elements that belong to one result.
enum class ReduceGradient {
  difference,   ///< g * (x - r), plus b if that is defined
  sign,         ///< g * sign(x - r)
  exponential,  ///< g * exp(x - r); 0 where r is -inf
  winner        ///< g where x equals its row's extremum r or is NaN, else 0
};
/// All tensors have x's shape; g, r and b may repeat elements with stride 0, and r may be a number operand. g
/// and b have dtype opmath, and so has r for `exponential` and with b; else it has x's. grad_x is dense.
using ReduceGradientKernel = void(ReduceGradient kind, const Tensor& g, const Tensor& x, const Tensor& r,
                                  const Tensor& b, Tensor& grad_x);

// ---- Products

/// a is (batch..., n, k), b is (batch..., k, m) and the dense y is (batch..., n, m), with equal batch
/// dimensions and one floating dtype. An operand that serves many batches has stride 0 there.
using MatmulKernel = void(const Tensor& a, const Tensor& b, Tensor& y);

// ---- The conv3d family: dense tensors of one floating dtype, with the geometry's shapes. An undefined bias
// means none. The precision affects f32 on CUDA only.

/// conv3d: small = bias + sum over bc, k of big * weight. conv_transpose3d: big = bias + sum over sc, k of
/// small * weight.
using ConvKernel = void(const Tensor& input, const Tensor& weight, const Tensor& bias, Tensor& output,
                        Conv3dGeometry g, Float32Precision precision);
/// dweight = sum over n, i of small * big. If dbias is defined, it becomes the sum over batch and cells of
/// the tensor on the grid `bias_of`.
using ConvWeightGradKernel = void(const Tensor& big, const Tensor& small, Tensor& dweight, Tensor& dbias,
                                  Grid bias_of, Conv3dGeometry g, Float32Precision precision);

// ---- Random numbers: a dense output, filled from the place `at` of a generator's stream

/// Floating dtypes.
using RandomKernel = void(const Tensor& output, GeneratorState at);
/// low + [0, range); range is not 0, and low + range - 1 fits the dtype.
using RandintKernel = void(const Tensor& output, GeneratorState at, int64_t low, uint64_t range);

// ---- Optimisers (optimizer_step.h): one step of all items, which are on one device; there is at least one.
// An item's gradient and the parameters share no memory.

using SgdKernel = void(const detail::SgdStep& step, std::span<const detail::OptimizerItem> items);
using AdamKernel = void(const detail::AdamStep& step, std::span<const detail::OptimizerItem> items);

// ---- Both devices have

#define VOX_KERNELS                        \
  UnaryKernel unary;                       \
  UnaryGradientKernel unary_gradient;      \
  BinaryKernel binary;                     \
  CompareKernel compare;                   \
  WhereKernel where;                       \
  CopyKernel copy;                         \
  FillKernel fill;                         \
  PadKernel pad;                           \
  ReduceKernel reduce;                     \
  ReduceGradientKernel reduce_gradient;    \
  MatmulKernel matmul;                     \
  ConvKernel conv3d, conv_transpose3d;     \
  ConvWeightGradKernel conv3d_weight_grad; \
  RandomKernel rand, randn;                \
  RandintKernel randint;                   \
  SgdKernel sgd_step;                      \
  AdamKernel adam_step

namespace cpu {
VOX_KERNELS;
}
namespace cuda {
VOX_KERNELS;
}
#undef VOX_KERNELS

// ---- What only CUDA has

namespace cuda {

/// The gradient of operand 0 (a) or 1 (b) of op(a, b) for g, in one pass: of div by b, of maximum, minimum
/// and pow by either. For pow by b, the last input is y = pow(a, b). Elementwise, floating dtypes.
void binary_gradient(Binary op, int operand, const Tensor& g, const Tensor& a, const Tensor& b,
                     const Tensor& grad);

}  // namespace cuda

// ---- The kernels that several ops use

namespace detail {

inline constexpr ByDevice unary_kernel{"unary", &cpu::unary, VOX_CUDA(&cuda::unary)};
inline constexpr ByDevice unary_gradient_kernel{"unary_gradient", &cpu::unary_gradient,
                                                VOX_CUDA(&cuda::unary_gradient)};
inline constexpr ByDevice binary_kernel{"binary", &cpu::binary, VOX_CUDA(&cuda::binary)};
inline constexpr ByDevice compare_kernel{"compare", &cpu::compare, VOX_CUDA(&cuda::compare)};
inline constexpr ByDevice where_kernel{"where", &cpu::where, VOX_CUDA(&cuda::where)};
inline constexpr ByDevice copy_kernel{"copy", &cpu::copy, VOX_CUDA(&cuda::copy)};
inline constexpr ByDevice fill_kernel{"fill", &cpu::fill, VOX_CUDA(&cuda::fill)};
inline constexpr ByDevice pad_kernel{"pad", &cpu::pad, VOX_CUDA(&cuda::pad)};

}  // namespace detail
}  // namespace vox
