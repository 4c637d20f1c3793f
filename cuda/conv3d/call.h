#pragma once

#include <voxgrad/core/tensor.h>
#include <voxgrad/ops/conv3d_geometry.h>

// The kernels of the conv3d family on CUDA, which select.cpp calls. Each keeps the contract of ops/kernels.h
// for the problems that it supports according to the table in select.cpp.

namespace vox::cuda::conv {

/// conv3d, from big to small, or conv_transpose3d, from small to big. The batch is not empty.
///
/// Note [Redo]
///   Some kernels find out only while they run that they cannot compute a problem: a value does not fit their
///   arithmetic (Inf, NaN, or out of range). The host does not wait to know. Such a kernel sets the device
///   flag `failed`, and its output is then invalid. Its entry in the table names another kernel, the redo,
///   which is always launched with that flag as `only_if`, and returns at once if the flag is not set.
struct Conv3dCall {
  bool transposed;
  const Tensor& input;
  const Tensor& weight;
  const Tensor& bias;  ///< may be undefined
  const Tensor& output;
  const Conv3dGeometry& geometry;
  Tensor only_if = {};  ///< one i64: the kernel does nothing if it is 0. Undefined: always compute
  Tensor failed = {};   ///< one i64, initially 0; set to 1 by kernels with a redo if the output is invalid

  const char* op() const { return transposed ? "conv_transpose3d" : "conv3d"; }
};

/// Computes dweight.
struct WeightGradCall {
  const Tensor& big;
  const Tensor& small;
  const Tensor& dweight;
  const Conv3dGeometry& geometry;
  Tensor only_if = {}, failed = {};  ///< as above
};

// direct.cu: any floating dtype, any geometry
void direct(const Conv3dCall& call);
void direct_weight_grad(const WeightGradCall& call);

// bias_grad.cu: any floating dtype. dbias = the sum of grad over batch and cells.
void bias_grad(const Tensor& grad, Tensor& dbias);

// The other kernels are templates: `Storage` is the element type of tensors (float, bfloat16, float16),
// `Operand` what tensor cores multiply (common/operands.cuh). Each .cu file of a folder instantiates one or
// two. Where nothing else is said, any number of groups.
struct Tf32;
struct Bf16;
struct F16;
struct Tf32x3;
struct F16x3;
struct F16Pair;
struct F16OfF32;
struct ScaledF16;

/// f32, bf16 and f16, in f32 arithmetic. The workspace is 32 MiB, or one copy of dweight in f32.
namespace few_channels {
template <class T>
void run(const Conv3dCall& call);
template <class T>
void run_weight_grad(const WeightGradCall& call);
}  // namespace few_channels

/// GPUs since sm_80; one group, no padding, a kernel that equals the stride. Whole: 16-bit numbers; Parts:
/// f32 as sums of bf16 numbers. The workspace of a weight gradient is 32 MiB, or one padded copy of dweight
/// in f32; an operand or result that does not begin at a multiple of 16 bytes is copied.
namespace patches {
template <class T>
struct Whole;
template <int count>
struct Parts;
template <class Numbers>
void run(const Conv3dCall& call);
template <class Numbers>
void run_weight_grad(const WeightGradCall& call);
}  // namespace patches

/// Any GPU since sm_80; windows that fit in shared memory, of at most 64 cells along d and h and 512 along w.
/// Operands are of 16 bits (Bf16, F16), or of f32 (F16OfF32, F16Pair; in weight gradients ScaledF16,
/// F16Pair). The workspace is a copy of the input, of 2 bytes a number (F16Pair: 4), the packed weights, and
/// up to 64 MiB of partial sums. Weight gradients copy both operands so, and have 32 MiB of partial sums, or
/// one padded copy of dweight in f32.
namespace mma {
template <class Storage, class Operand>
void run(const Conv3dCall& call);
template <class Operand>
void run_weight_grad(const WeightGradCall& call);
}  // namespace mma

/// Hopper; stride 1, and 2, 3 or 5 taps along d with dilation 1.
namespace rolling {
template <class Storage, class Operand>
void run(const Conv3dCall& call);
}  // namespace rolling

/// Hopper; strides of 1 and 2, in conv3d also 3 and 4.
namespace strided {
template <class Storage, class Operand>
void run(const Conv3dCall& call);
template <>
void run<float, F16x3>(const Conv3dCall& call);
}  // namespace strided

/// f32 on Hopper; conv3d with any stride, conv_transpose3d with stride 1.
namespace gather {
template <class Operand>
void run(const Conv3dCall& call);
}  // namespace gather

/// Hopper; from channels-last copies of the operands, which are the workspace (with up to 64 MiB, or a copy
/// of dweight in f32, for the weight gradient). Strides up to 8, in conv_transpose3d 4; run_windows: stride
/// 1, and windows that fit in shared memory, as those of 5 taps along h and w do (windows.cuh). Weight
/// gradients have no groups: Bf16, F16, and ScaledF16 for f32.
namespace dense {
template <class Storage, class Operand>
void run(const Conv3dCall& call);
template <class Storage, class Operand>
void run_windows(const Conv3dCall& call);
template <class Operand>
void run_weight_grad(const WeightGradCall& call);
}  // namespace dense

/// Hopper. Tf32, Tf32x3: f32; Bf16, F16: that dtype. The workspace is 32 MiB at most, or one padded copy of
/// dweight in f32 if that is larger.
namespace weight_grad {
template <class Operand>
void run(const WeightGradCall& call);
}  // namespace weight_grad

}  // namespace vox::cuda::conv
