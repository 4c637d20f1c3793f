#pragma once

#include <voxgrad/core/tensor.h>
#include <voxgrad/ops/conv3d_geometry.h>

// The kernels of the conv3d family on CUDA, which select.cpp chooses from. Each keeps the contract of
// ops/kernels.h for what its row in the table says it takes.

namespace vox::cuda {

/// conv3d, from big to small, or conv_transpose3d, from small to big. An undefined bias is none.
using Conv3dKernel = void(const Tensor& input, const Tensor& weight, const Tensor& bias, Tensor& output,
                          Conv3dGeometry g);
/// dweight, and the sum of the tensor on grid `bias_of` if dbias is defined.
using WeightGradKernel = void(const Tensor& big, const Tensor& small, Tensor& dweight, Tensor& dbias,
                              Grid bias_of, Conv3dGeometry g);
/// Whether a kernel can do it; whether it is faster than what is below it in the table.
using Conv3dTakes = bool(const Conv3dGeometry& g, bool transposed);
using Conv3dPays = bool(const Conv3dGeometry& g, bool transposed);

/// The same if *wanted, one i64 on the device, is not 0 when the kernel starts; else nothing is written. The
/// host does not wait to know. So a fast kernel that cannot finish (a value that its arithmetic has no room
/// for) leaves a mark, and has its work done over. `mark` is one i64, 0, of the kernel's own.
using Conv3dKernelIf = void(const Tensor& wanted, const Tensor& mark, const Tensor& input,
                            const Tensor& weight, const Tensor& bias, Tensor& output, Conv3dGeometry g);

// direct.cu. Of the last three an undefined `wanted` means always.
Conv3dKernel conv3d_direct, conv_transpose3d_direct;
WeightGradKernel conv3d_weight_grad_direct;
void conv3d_direct_if(const Tensor& wanted, const Tensor& big, const Tensor& weight, const Tensor& bias,
                      Tensor& small, Conv3dGeometry g);
void conv_transpose3d_direct_if(const Tensor& wanted, const Tensor& small, const Tensor& weight,
                                const Tensor& bias, Tensor& big, Conv3dGeometry g);
void conv3d_weight_grad_direct_if(const Tensor& wanted, const Tensor& big, const Tensor& small,
                                  Tensor& dweight, Conv3dGeometry g);

// few_channels.cpp: f32, bf16 and f16, all in f32 arithmetic; workspace of 32 MiB, or one copy of dweight in
// f32
Conv3dTakes few_channels_takes;
bool few_channels_weight_grad_takes(const Conv3dGeometry& g);
Conv3dKernel conv3d_few_channels, conv_transpose3d_few_channels;
WeightGradKernel conv3d_weight_grad_few_channels;

// implicit_gemm_mma.cu: f32 by TF32
Conv3dKernel conv3d_implicit_gemm_mma, conv_transpose3d_implicit_gemm_mma;

// implicit_gemm_mma_split.cu: f32, as accurate as f32 arithmetic, by pairs of TF32 numbers
Conv3dKernel conv3d_implicit_gemm_mma_split, conv_transpose3d_implicit_gemm_mma_split;
Conv3dKernelIf conv3d_implicit_gemm_mma_split_if, conv_transpose3d_implicit_gemm_mma_split_if;

// implicit_gemm_wgmma.cu: f32 by TF32 on Hopper, where cells step by one
Conv3dTakes implicit_gemm_wgmma_takes;
Conv3dKernel conv3d_implicit_gemm_wgmma, conv_transpose3d_implicit_gemm_wgmma;

// implicit_gemm_wgmma_bf16.cu, _f16.cu, _bf16_of_f32.cu: the same of 16-bit operands; bf16 also of f32,
// rounded, for which the first calls the last
Conv3dTakes implicit_gemm_wgmma_16_takes;
Conv3dKernel conv3d_implicit_gemm_wgmma_bf16, conv_transpose3d_implicit_gemm_wgmma_bf16;
Conv3dKernel conv3d_implicit_gemm_wgmma_bf16_of_f32, conv_transpose3d_implicit_gemm_wgmma_bf16_of_f32;
Conv3dKernel conv3d_implicit_gemm_wgmma_f16, conv_transpose3d_implicit_gemm_wgmma_f16;

// implicit_gemm_wgmma_f16x3.cu: f32 at `highest` where cells step by one, by pairs of f16 numbers
Conv3dTakes implicit_gemm_wgmma_f16x3_takes;
Conv3dKernel conv3d_implicit_gemm_wgmma_f16x3, conv_transpose3d_implicit_gemm_wgmma_f16x3;

// implicit_gemm_wgmma_split.cu: the same by pairs of TF32 numbers
Conv3dTakes implicit_gemm_wgmma_split_takes;
Conv3dKernel conv3d_implicit_gemm_wgmma_split, conv_transpose3d_implicit_gemm_wgmma_split;
Conv3dKernelIf conv3d_implicit_gemm_wgmma_split_if, conv_transpose3d_implicit_gemm_wgmma_split_if;

// rolling_wgmma.cu: f32 by TF32 on Hopper, where cells step by one, and 2, 3 or 5 taps along d by one. `pays`
// is against implicit_gemm_wgmma.
Conv3dTakes rolling_wgmma_takes;
Conv3dPays rolling_wgmma_pays;
Conv3dKernel conv3d_rolling_wgmma, conv_transpose3d_rolling_wgmma;

// rolling_wgmma_bf16.cu, _f16.cu: the same of 16-bit operands; bf16 also of f32, rounded
Conv3dTakes rolling_wgmma_16_takes;
bool rolling_wgmma_16_pays(const Conv3dGeometry& g, bool transposed, DType storage);
Conv3dKernel conv3d_rolling_wgmma_bf16, conv_transpose3d_rolling_wgmma_bf16;
Conv3dKernel conv3d_rolling_wgmma_f16, conv_transpose3d_rolling_wgmma_f16;

// strided_wgmma.cu: f32 by TF32 on Hopper, steps of 1 or 2, and of 3 and 4 in conv3d
Conv3dTakes strided_wgmma_takes;
Conv3dKernel conv3d_strided_wgmma, conv_transpose3d_strided_wgmma;

// strided_wgmma_bf16.cu, _f16.cu, _bf16_of_f32.cu: the same of 16-bit operands; bf16 also of f32, rounded,
// for which the first calls the last
bool strided_wgmma_bf16_takes(const Conv3dGeometry& g, bool transposed, DType dtype);
Conv3dKernel conv3d_strided_wgmma_bf16, conv_transpose3d_strided_wgmma_bf16;
Conv3dKernel conv3d_strided_wgmma_bf16_of_f32, conv_transpose3d_strided_wgmma_bf16_of_f32;
Conv3dTakes strided_wgmma_f16_takes;
Conv3dKernel conv3d_strided_wgmma_f16, conv_transpose3d_strided_wgmma_f16;

// strided_wgmma_f16x3.cu: f32 at `highest`, steps as strided_wgmma's, by pairs of f16 numbers. `pays`:
// whether there is work for enough multiprocessors.
Conv3dTakes strided_wgmma_f16x3_takes;
Conv3dPays strided_wgmma_f16x3_pays;
Conv3dKernel conv3d_strided_wgmma_f16x3, conv_transpose3d_strided_wgmma_f16x3;

// gather_wgmma.cu: f32 by TF32 on Hopper, conv3d with any steps, conv_transpose3d with steps of 1
Conv3dTakes gather_wgmma_takes;
Conv3dKernel conv3d_gather_wgmma, conv_transpose3d_gather_wgmma;

// gather_wgmma_split.cu: the same as accurate as f32 arithmetic, by pairs of TF32 numbers
Conv3dTakes gather_wgmma_split_takes;
Conv3dKernel conv3d_gather_wgmma_split, conv_transpose3d_gather_wgmma_split;

// weight_grad_mma.cu: f32 by TF32; workspace of 32 MiB at most
WeightGradKernel conv3d_weight_grad_mma;

// weight_grad_wgmma.cu: f32 by TF32, bf16 and f16 on Hopper, where weight_grad_plan has a plan; workspace of
// 32 MiB at most, or one padded copy of dweight in f32 if that is larger
WeightGradKernel conv3d_weight_grad_wgmma;

// weight_grad_wgmma_split.cu: f32 as accurate as its own arithmetic, otherwise likewise
WeightGradKernel conv3d_weight_grad_wgmma_split;

// bias_grad.cu: any floating dtype
/// dbias = the sum of grad over batch and cells.
void conv3d_bias_grad(const Tensor& grad, Tensor& dbias);

}  // namespace vox::cuda
