#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include <voxgrad/core/generator.h>
#include <voxgrad/core/tensor.h>
#include <voxgrad/ops/conv3d_geometry.h>
#include <voxgrad/ops/dispatch.h>
#include <voxgrad/ops/interpolate_axis.h>
#include <voxgrad/ops/norm_geometry.h>
#include <voxgrad/ops/optimizer_step.h>
#include <voxgrad/ops/pool3d_window.h>
#include <voxgrad/ops/precision.h>

// The contract between ops and kernels: every kernel of both devices, each signature once. ByDevice
// (dispatch.h) states what holds for all of them: the caller checks shapes, dtypes and devices and allocates
// outputs; the kernel writes every element of its outputs. "Dense" means contiguous. A kernel reads any
// strides unless it asks for dense tensors.

namespace vox {

// ops/elementwise_formulas.h has their values.
enum class Unary;
enum class Binary;
enum class Comparison;

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
/// target = source, converted by detail::convert (layout.h) if the dtypes differ.
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

/// The variance, sum (x - mean)^2 / (length - correction), and the mean of each row, cut and shaped as in
/// ReduceKernel, in one pass. Floating dtypes. A divisor below 0 counts as 0. exact_mean, if it is defined,
/// gets the mean in opmath(dtype).
using VarMeanKernel = void(const Tensor& x, int64_t reduced_dims, double correction, Tensor& variance,
                           Tensor& mean, Tensor& exact_mean);

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

// ---- Norms (norm_geometry.h): x, y and their gradients are dense, of one floating dtype, and have elements.
// Weight and bias are dense, have that dtype or its opmath, and may be undefined (1 and 0).

/// Writes y and the statistics of x. Updates `running` where it is defined.
using NormKernel = void(const Tensor& x, const detail::NormGeometry& g, const Tensor& weight,
                        const Tensor& bias, double eps, Activation activation, Tensor& y,
                        detail::NormStatistics& statistics, detail::RunningStatistics& running);
/// Writes y, from the given statistics.
using NormWithKernel = void(const Tensor& x, const detail::NormGeometry& g, const Tensor& weight,
                            const Tensor& bias, const detail::NormStatistics& statistics,
                            Activation activation, Tensor& y);
/// The gradients of x, weight and bias for grad_y. If `of_x`, the statistics are functions of x; else they
/// are constants. A result that is not needed is undefined. The gradients of weight and bias have the
/// weights' dtype.
using NormGradientKernel = void(const Tensor& grad_y, const Tensor& x, const detail::NormGeometry& g,
                                const Tensor& weight, const Tensor& bias,
                                const detail::NormStatistics& statistics, bool of_x, Activation activation,
                                Tensor& grad_x, Tensor& grad_weight, Tensor& grad_bias);

// ---- Softmax along dimension `dim`: dense tensors of one floating dtype and shape, with elements

/// y = softmax(x), or log_softmax(x) if `logarithm`.
using SoftmaxKernel = void(const Tensor& x, int64_t dim, bool logarithm, Tensor& y);
/// The gradient of x for the result y.
using SoftmaxGradientKernel = void(const Tensor& grad_y, const Tensor& y, int64_t dim, bool logarithm,
                                   Tensor& grad_x);

// ---- Cross entropy of dense scores x (n, classes, ...) with elements, and a dense i64 target (n, ...).
//
//     loss = -sum over c of q_c * log_softmax(x)_c      q_c = weight_c * ((1 - smoothing) [c == target]
//                                                                         + smoothing / classes)
//
// is 0 where the target is ignore_index. `weight` (classes) is dense, of dtype opmath(x's dtype), and may be
// undefined (1). For any other class out of range the CPU throws ValueError; on CUDA that loss is NaN, and
// its gradient 0.

struct CrossEntropyTerms {
  int64_t ignore_index;
  double smoothing;
};
/// The loss of each row and, if it is defined, row_weight = weight[target], which is 0 for rows that do not
/// count. Both are dense with target's elements in opmath.
using CrossEntropyKernel = void(const Tensor& x, const Tensor& target, const Tensor& weight,
                                CrossEntropyTerms terms, Tensor& loss, Tensor& row_weight);
/// grad_x = scale * (softmax(x)_c * sum(q) - q_c). `scale`, in opmath, is one number or dense and one per
/// row.
using CrossEntropyGradientKernel = void(const Tensor& scale, const Tensor& x, const Tensor& target,
                                        const Tensor& weight, CrossEntropyTerms terms, Tensor& grad_x);

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

// ---- Interpolation of (N, C, D, H, W) of one floating dtype (CPU: f32, f64). The output is dense.

/// One axis after the other: y[.., o, ..] = (1 - w) x[.., index, ..] + w x[.., index + 1, ..] with
/// (index, w) = axis.tap(o). interpolate_adjoint: output[.., i, ..] = the sum of input[.., o, ..] times the
/// weight with which o reads i, in ascending order of o.
using InterpolateKernel = void(const Tensor& input, const InterpolateAxes& axes, Tensor& output);

// ---- Pooling: dense tensors of floating dtype, except that x of max_pool3d and avg_pool3d may have any
// strides. x has geometry.cells() elements a plane; y and `indices` have geometry.windows(). The last
// argument's size gives the number of planes.
//
// `indices` holds the cell that each window took: its i64 number within the plane, or -1 for none. On CUDA,
// if geometry.has_small_windows(), it may be u8: the number of the cell within the window, or 255.

/// y = the first maximum, or the last NaN, of each window. `indices` may be undefined.
using MaxPoolKernel = void(const Tensor& x, const Pool3dGeometry& geometry, Tensor& y, Tensor& indices);
/// max_pool3d_take: y[window] = x at its index. max_pool3d_give, its adjoint: x[cell] = the sum of y over the
/// windows with this index.
using MaxPoolIndexKernel = void(const Tensor& input, const Tensor& indices, const Pool3dGeometry& geometry,
                                Tensor& output);
/// avg_pool3d, and avg_pool3d_adjoint from y to x.
using AvgPoolKernel = void(const Tensor& input, const Pool3dGeometry& geometry, Tensor& output);

// ---- Indices: x is (outer, size, inner) and y (outer, indices, inner) around dimension `dim`, both dense
// except the x of index_select

/// Throws ShapeError unless every index is in [0, size). On CUDA it waits for the indices. While the stream
/// is being captured it cannot wait, and accepts all.
using CheckIndicesKernel = void(const Tensor& indices, int64_t size);
/// index_select: y[.., k, ..] = x[.., indices[k], ..]; NaN, or 0 in other dtypes, for an index outside x.
/// index_add: x[.., i, ..] = the sum of y[.., k, ..] over the k with indices[k] == i, in ascending order
/// of k. Floating dtypes.
using IndexKernel = void(const Tensor& input, int64_t dim, const Tensor& indices, Tensor& output);

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

#define VOX_KERNELS                                    \
  UnaryKernel unary;                                   \
  UnaryGradientKernel unary_gradient;                  \
  BinaryKernel binary;                                 \
  CompareKernel compare;                               \
  WhereKernel where;                                   \
  CopyKernel copy;                                     \
  FillKernel fill;                                     \
  PadKernel pad;                                       \
  ReduceKernel reduce;                                 \
  VarMeanKernel var_mean;                              \
  ReduceGradientKernel reduce_gradient;                \
  NormKernel norm;                                     \
  NormWithKernel norm_with;                            \
  NormGradientKernel norm_gradient;                    \
  SoftmaxKernel softmax;                               \
  SoftmaxGradientKernel softmax_gradient;              \
  CrossEntropyKernel cross_entropy;                    \
  CrossEntropyGradientKernel cross_entropy_gradient;   \
  MatmulKernel matmul;                                 \
  ConvKernel conv3d, conv_transpose3d;                 \
  ConvWeightGradKernel conv3d_weight_grad;             \
  InterpolateKernel interpolate, interpolate_adjoint;  \
  MaxPoolKernel max_pool3d;                            \
  MaxPoolIndexKernel max_pool3d_take, max_pool3d_give; \
  AvgPoolKernel avg_pool3d, avg_pool3d_adjoint;        \
  CheckIndicesKernel check_indices;                    \
  IndexKernel index_select, index_add;                 \
  RandomKernel rand, randn;                            \
  RandintKernel randint;                               \
  SgdKernel sgd_step;                                  \
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

// ---- What only the CPU has

namespace cpu {

/// The convolutions by their definition (ops/cpu/conv3d/direct.cpp): the reference of the tests, and the
/// fallback.
using ConvDefinition = void(const Tensor& input, const Tensor& weight, const Tensor& bias, Tensor& output,
                            Conv3dGeometry g);
ConvDefinition conv3d_direct, conv_transpose3d_direct;
void conv3d_weight_grad_direct(const Tensor& big, const Tensor& small, Tensor& dweight, Conv3dGeometry g);

}  // namespace cpu

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
