#pragma once

#include <span>

#include <voxgrad/ops/grid_sample_tap.h>
#include <voxgrad/ops/interpolate_axis.h>
#include <voxgrad/ops/kernels.h>
#include <voxgrad/ops/norm_geometry.h>
#include <voxgrad/ops/pool3d_window.h>

// The second part of the contract in ops/kernels.h: kernels of layers and losses that only some networks
// have.

namespace vox {

// ---- Statistics

/// The variance, sum (x - mean)^2 / (length - correction), and the mean of each row, cut and shaped as in
/// ReduceKernel, in one pass. Floating dtypes. A divisor below 0 counts as 0. exact_mean, if it is defined,
/// gets the mean in opmath(dtype).
using VarMeanKernel = void(const Tensor& x, int64_t reduced_dims, double correction, Tensor& variance,
                           Tensor& mean, Tensor& exact_mean);

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

// ---- Interpolation of (N, C, D, H, W) of one floating dtype (CPU: f32, f64). The output is dense.

/// One axis after the other: y[.., o, ..] = (1 - w) x[.., index, ..] + w x[.., index + 1, ..] with
/// (index, w) = axis.tap(o). interpolate_adjoint: output[.., i, ..] = the sum of input[.., o, ..] times the
/// weight with which o reads i, in ascending order of o.
using InterpolateKernel = void(const Tensor& input, const InterpolateAxes& axes, Tensor& output);

// ---- Sampling at the points of a grid: dense tensors of one floating dtype (CPU: f32, f64), with the sizes
// of `s`. Note [The grid_sample family] in ops/grid_sample.cpp says what they compute.

/// grid_sample: from x to y. grid_sample_adjoint: from y to x.
using GridSampleKernel = void(const Tensor& input, const Tensor& grid, const detail::GridSampling& s,
                              Tensor& output);
/// The gradient of the grid of grid_sample, for g, the gradient of y. `s` has no slope, and is not nearest.
using GridGradientKernel = void(const Tensor& g, const Tensor& x, const Tensor& grid,
                                const detail::GridSampling& s, Tensor& grad_grid);

// ---- Pooling: dense tensors of floating dtype, except that x of max_pool3d and avg_pool3d may have any
// strides. x has geometry.cells() elements a plane; y and `indices` have geometry.windows(). The last
// argument's size gives the number of planes.
//
// `indices` holds the cell that each window took: its i64 number within the plane, or -1 for none. On CUDA,
// if geometry.has_small_windows(), it may be u8: the number of the cell within the window, or 255.

/// y = the first maximum, or the last NaN, of each window. `indices` may be undefined.
using MaxPoolKernel = void(const Tensor& x, const Pool3dGeometry& geometry, Tensor& y, Tensor& indices);
/// max_pool3d_gather: y[window] = x at its index. max_pool3d_scatter_add, its adjoint: x[cell] = the sum of y
/// over the windows with this index.
using MaxPoolIndexKernel = void(const Tensor& input, const Tensor& indices, const Pool3dGeometry& geometry,
                                Tensor& output);
/// avg_pool3d, and avg_pool3d_adjoint from y to x.
using AvgPoolKernel = void(const Tensor& input, const Pool3dGeometry& geometry, Tensor& output);

// ---- Indices: x is (outer, size, inner) around dimension `dim`, with any strides; y or `source`, which is
// dense, is (outer, indices, inner). `index` is i64 and dense. It has an element for each element of y, or
// one dimension: an element for each slice.

/// Throws ShapeError unless every index, which may have any strides, is in [0, size). On CUDA it waits for
/// the indices. While the stream is being captured it cannot wait, and accepts all. `argument` names them.
using CheckIndicesKernel = void(const char* function, const char* argument, const Tensor& index,
                                int64_t size);
/// y[.., k, ..] = x[.., index, ..]; NaN, or 0 in other dtypes, for an index outside x.
using GatherKernel = void(const Tensor& x, int64_t dim, const Tensor& index, Tensor& y);
/// x[.., index, ..] += source[.., k, ..], in ascending order of k; x has dtype f32, f64 or i64. If `source`
/// is undefined, x = k, of dtype i64, so that the last k stays. It leaves all other elements as they are.
using ScatterKernel = void(const Tensor& source, int64_t dim, const Tensor& index, Tensor& x);

// ---- Along the last dimension of dense tensors of one shape, with elements

/// y_k = a_k * y_{k-1} + b_k, with y_0 = b_0; in reverse y_k = a_{k+1} * y_{k+1} + b_k, from the end on. a is
/// 1 if undefined. f32, f64 and i64.
using RecurrenceKernel = void(const Tensor& a, const Tensor& b, bool reverse, Tensor& y);
/// The indices (i64) of x in ascending or descending order of detail::sort_key(x) (sort_key.h), of equal
/// elements in their own order.
using ArgsortKernel = void(const Tensor& x, bool descending, Tensor& indices);

// ---- Optimisers: as SGD in ops/kernels.h

namespace detail {
struct RmspropStep;  // rmsprop_step.h
struct OptimizerItem;
}  // namespace detail
using RmspropKernel = void(const detail::RmspropStep& step, std::span<const detail::OptimizerItem> items);

#define VOX_LAYER_KERNELS                                       \
  VarMeanKernel var_mean;                                       \
  NormKernel norm;                                              \
  NormWithKernel norm_with;                                     \
  NormGradientKernel norm_gradient;                             \
  SoftmaxKernel softmax;                                        \
  SoftmaxGradientKernel softmax_gradient;                       \
  CrossEntropyKernel cross_entropy;                             \
  CrossEntropyGradientKernel cross_entropy_gradient;            \
  InterpolateKernel interpolate, interpolate_adjoint;           \
  GridSampleKernel grid_sample, grid_sample_adjoint;            \
  GridGradientKernel grid_sample_gradient;                      \
  MaxPoolKernel max_pool3d;                                     \
  MaxPoolIndexKernel max_pool3d_gather, max_pool3d_scatter_add; \
  AvgPoolKernel avg_pool3d, avg_pool3d_adjoint;                 \
  CheckIndicesKernel check_indices;                             \
  GatherKernel gather;                                          \
  ScatterKernel scatter;                                        \
  RecurrenceKernel recurrence;                                  \
  ArgsortKernel argsort;                                        \
  RmspropKernel rmsprop_step

namespace cpu {
VOX_LAYER_KERNELS;
}
namespace cuda {
VOX_LAYER_KERNELS;
}
#undef VOX_LAYER_KERNELS

// ---- What only CUDA has

namespace detail {
struct AttentionTerms {
  double scale;  // above 0
  bool is_causal;
};
}  // namespace detail

namespace cuda {

/// y = softmax(scale q k^T) v for q and y (heads, L, E), k and v (heads, S, E): dense, aligned to 16 bytes,
/// of one dtype (f32, bf16, f16), with elements; E is 16, 32 or 64. If causal, row i has columns 0 to i.
/// log_sums (heads, L), in f32, gets log2(sum of exp(scores)) of each row.
void attention(const Tensor& q, const Tensor& k, const Tensor& v, const detail::AttentionTerms& terms,
               Tensor& y, Tensor& log_sums);
/// The gradients of q, k and v; grad_q may be undefined, or both others. delta (heads, L) = sum(grad_y y), in
/// f32.
void attention_gradient(const Tensor& grad_y, const Tensor& q, const Tensor& k, const Tensor& v,
                        const detail::AttentionTerms& terms, const Tensor& log_sums, const Tensor& delta,
                        Tensor& grad_q, Tensor& grad_k, Tensor& grad_v);

}  // namespace cuda

}  // namespace vox
