#pragma once

#include <voxgrad/core/tensor.h>
#include <voxgrad/ops/conv3d_geometry.h>

// The kernels of the conv3d family on CUDA, which select.cpp chooses from. Each keeps the contract of
// ops/conv3d_kernels.h for what its row in the table says it takes.

namespace vox::cuda {

// direct.cu
void conv3d_direct(const Tensor& big, const Tensor& weight, const Tensor& bias, Tensor& small,
                   Conv3dGeometry g);
void conv_transpose3d_direct(const Tensor& small, const Tensor& weight, const Tensor& bias, Tensor& big,
                             Conv3dGeometry g);
void conv3d_weight_grad_direct(const Tensor& big, const Tensor& small, Tensor& dweight, Tensor& dbias,
                               Grid bias_of, Conv3dGeometry g);
// The same if *wanted, one i64 on the device, is not 0 when the kernel starts; else nothing is written. The
// host does not wait to know. So a fast kernel that cannot finish (a value that its arithmetic has no room
// for) leaves a mark, and has its work done over. An undefined `wanted` means always.
void conv3d_direct_if(const Tensor& wanted, const Tensor& big, const Tensor& weight, const Tensor& bias,
                      Tensor& small, Conv3dGeometry g);
void conv_transpose3d_direct_if(const Tensor& wanted, const Tensor& small, const Tensor& weight,
                                const Tensor& bias, Tensor& big, Conv3dGeometry g);
void conv3d_weight_grad_direct_if(const Tensor& wanted, const Tensor& big, const Tensor& small,
                                  Tensor& dweight, Conv3dGeometry g);

// implicit_gemm_mma.cu: f32 by TF32
void conv3d_implicit_gemm_mma(const Tensor& big, const Tensor& weight, const Tensor& bias, Tensor& small,
                              Conv3dGeometry g);
void conv_transpose3d_implicit_gemm_mma(const Tensor& small, const Tensor& weight, const Tensor& bias,
                                        Tensor& big, Conv3dGeometry g);

// implicit_gemm_wgmma.cu: f32 by TF32 on Hopper, where cells step by one
bool implicit_gemm_wgmma_takes(const Conv3dGeometry& g, bool transposed);
void conv3d_implicit_gemm_wgmma(const Tensor& big, const Tensor& weight, const Tensor& bias, Tensor& small,
                                Conv3dGeometry g);
void conv_transpose3d_implicit_gemm_wgmma(const Tensor& small, const Tensor& weight, const Tensor& bias,
                                          Tensor& big, Conv3dGeometry g);

// implicit_gemm_wgmma_bf16.cu, _f16.cu: the same of 16-bit operands; bf16 also of f32, rounded
bool implicit_gemm_wgmma_16_takes(const Conv3dGeometry& g, bool transposed);
void conv3d_implicit_gemm_wgmma_bf16(const Tensor& big, const Tensor& weight, const Tensor& bias,
                                     Tensor& small, Conv3dGeometry g);
void conv_transpose3d_implicit_gemm_wgmma_bf16(const Tensor& small, const Tensor& weight, const Tensor& bias,
                                               Tensor& big, Conv3dGeometry g);
void conv3d_implicit_gemm_wgmma_f16(const Tensor& big, const Tensor& weight, const Tensor& bias,
                                    Tensor& small, Conv3dGeometry g);
void conv_transpose3d_implicit_gemm_wgmma_f16(const Tensor& small, const Tensor& weight, const Tensor& bias,
                                              Tensor& big, Conv3dGeometry g);

// rolling_wgmma.cu: f32 by TF32 on Hopper, where cells step by one, and 2, 3 or 5 taps along d by one. `pays`
// is against implicit_gemm_wgmma.
bool rolling_wgmma_takes(const Conv3dGeometry& g, bool transposed);
bool rolling_wgmma_pays(const Conv3dGeometry& g, bool transposed);
void conv3d_rolling_wgmma(const Tensor& big, const Tensor& weight, const Tensor& bias, Tensor& small,
                          Conv3dGeometry g);
void conv_transpose3d_rolling_wgmma(const Tensor& small, const Tensor& weight, const Tensor& bias,
                                    Tensor& big, Conv3dGeometry g);

// rolling_wgmma_bf16.cu, _f16.cu: the same of 16-bit operands; bf16 also of f32, rounded
bool rolling_wgmma_16_takes(const Conv3dGeometry& g, bool transposed);
bool rolling_wgmma_16_pays(const Conv3dGeometry& g, bool transposed, DType storage);
void conv3d_rolling_wgmma_bf16(const Tensor& big, const Tensor& weight, const Tensor& bias, Tensor& small,
                               Conv3dGeometry g);
void conv_transpose3d_rolling_wgmma_bf16(const Tensor& small, const Tensor& weight, const Tensor& bias,
                                         Tensor& big, Conv3dGeometry g);
void conv3d_rolling_wgmma_f16(const Tensor& big, const Tensor& weight, const Tensor& bias, Tensor& small,
                              Conv3dGeometry g);
void conv_transpose3d_rolling_wgmma_f16(const Tensor& small, const Tensor& weight, const Tensor& bias,
                                        Tensor& big, Conv3dGeometry g);

// implicit_gemm_wgmma_f16x3.cu: f32 at `highest` where cells step by one, by pairs of f16 numbers
bool implicit_gemm_wgmma_f16x3_takes(const Conv3dGeometry& g, bool transposed);
void conv3d_implicit_gemm_wgmma_f16x3(const Tensor& big, const Tensor& weight, const Tensor& bias,
                                      Tensor& small, Conv3dGeometry g);
void conv_transpose3d_implicit_gemm_wgmma_f16x3(const Tensor& small, const Tensor& weight, const Tensor& bias,
                                                Tensor& big, Conv3dGeometry g);

// implicit_gemm_wgmma_split.cu: the same by pairs of TF32 numbers; _if: see conv3d_direct_if. `mark` is one
// i64 on the device, 0, of the kernel's own.
bool implicit_gemm_wgmma_split_takes(const Conv3dGeometry& g, bool transposed);
void conv3d_implicit_gemm_wgmma_split(const Tensor& big, const Tensor& weight, const Tensor& bias,
                                      Tensor& small, Conv3dGeometry g);
void conv_transpose3d_implicit_gemm_wgmma_split(const Tensor& small, const Tensor& weight, const Tensor& bias,
                                                Tensor& big, Conv3dGeometry g);
void conv3d_implicit_gemm_wgmma_split_if(const Tensor& wanted, const Tensor& mark, const Tensor& big,
                                         const Tensor& weight, const Tensor& bias, Tensor& small,
                                         Conv3dGeometry g);
void conv_transpose3d_implicit_gemm_wgmma_split_if(const Tensor& wanted, const Tensor& mark,
                                                   const Tensor& small, const Tensor& weight,
                                                   const Tensor& bias, Tensor& big, Conv3dGeometry g);

// weight_grad_wgmma.cu: f32 by TF32, bf16 and f16 on Hopper, where weight_grad_plan has a plan; workspace of
// 32 MiB at most, or one padded copy of dweight in f32 if that is larger
void conv3d_weight_grad_wgmma(const Tensor& big, const Tensor& small, Tensor& dweight, Tensor& dbias,
                              Grid bias_of, Conv3dGeometry g);

// weight_grad_wgmma_split.cu: f32 as accurate as its own arithmetic, otherwise likewise
void conv3d_weight_grad_wgmma_split(const Tensor& big, const Tensor& small, Tensor& dweight, Tensor& dbias,
                                    Grid bias_of, Conv3dGeometry g);

// strided_wgmma.cu: f32 by TF32 on Hopper, steps of 1 or 2
bool strided_wgmma_takes(const Conv3dGeometry& g, bool transposed);
void conv3d_strided_wgmma(const Tensor& big, const Tensor& weight, const Tensor& bias, Tensor& small,
                          Conv3dGeometry g);
void conv_transpose3d_strided_wgmma(const Tensor& small, const Tensor& weight, const Tensor& bias,
                                    Tensor& big, Conv3dGeometry g);

// strided_wgmma_bf16.cu, _f16.cu: the same of 16-bit operands; bf16 also of f32, rounded
bool strided_wgmma_bf16_takes(const Conv3dGeometry& g, bool transposed, DType dtype);
void conv3d_strided_wgmma_bf16(const Tensor& big, const Tensor& weight, const Tensor& bias, Tensor& small,
                               Conv3dGeometry g);
void conv_transpose3d_strided_wgmma_bf16(const Tensor& small, const Tensor& weight, const Tensor& bias,
                                         Tensor& big, Conv3dGeometry g);
bool strided_wgmma_f16_takes(const Conv3dGeometry& g, bool transposed);
void conv3d_strided_wgmma_f16(const Tensor& big, const Tensor& weight, const Tensor& bias, Tensor& small,
                              Conv3dGeometry g);
void conv_transpose3d_strided_wgmma_f16(const Tensor& small, const Tensor& weight, const Tensor& bias,
                                        Tensor& big, Conv3dGeometry g);

// strided_wgmma_f16x3.cu: f32 at `highest`, steps of 1 or 2, by pairs of f16 numbers. `pays`: whether there
// is work for enough multiprocessors.
bool strided_wgmma_f16x3_takes(const Conv3dGeometry& g, bool transposed);
bool strided_wgmma_f16x3_pays(const Conv3dGeometry& g, bool transposed);
void conv3d_strided_wgmma_f16x3(const Tensor& big, const Tensor& weight, const Tensor& bias, Tensor& small,
                                Conv3dGeometry g);
void conv_transpose3d_strided_wgmma_f16x3(const Tensor& small, const Tensor& weight, const Tensor& bias,
                                          Tensor& big, Conv3dGeometry g);

// implicit_gemm_mma_split.cu: f32, as accurate as f32 arithmetic; _if: as implicit_gemm_wgmma_split's
void conv3d_implicit_gemm_mma_split(const Tensor& big, const Tensor& weight, const Tensor& bias,
                                    Tensor& small, Conv3dGeometry g);
void conv_transpose3d_implicit_gemm_mma_split(const Tensor& small, const Tensor& weight, const Tensor& bias,
                                              Tensor& big, Conv3dGeometry g);
void conv3d_implicit_gemm_mma_split_if(const Tensor& wanted, const Tensor& mark, const Tensor& big,
                                       const Tensor& weight, const Tensor& bias, Tensor& small,
                                       Conv3dGeometry g);
void conv_transpose3d_implicit_gemm_mma_split_if(const Tensor& wanted, const Tensor& mark,
                                                 const Tensor& small, const Tensor& weight,
                                                 const Tensor& bias, Tensor& big, Conv3dGeometry g);

// few_channels.cpp: f32, bf16 and f16, all in f32 arithmetic; workspace of 32 MiB, or one copy of dweight in
// f32
bool few_channels_takes(const Conv3dGeometry& g, bool transposed);
bool few_channels_weight_grad_takes(const Conv3dGeometry& g);
void conv3d_few_channels(const Tensor& big, const Tensor& weight, const Tensor& bias, Tensor& small,
                         Conv3dGeometry g);
void conv_transpose3d_few_channels(const Tensor& small, const Tensor& weight, const Tensor& bias, Tensor& big,
                                   Conv3dGeometry g);
void conv3d_weight_grad_few_channels(const Tensor& big, const Tensor& small, Tensor& dweight, Tensor& dbias,
                                     Grid bias_of, Conv3dGeometry g);

// weight_grad_mma.cu: f32 by TF32; workspace of 32 MiB at most
void conv3d_weight_grad_mma(const Tensor& big, const Tensor& small, Tensor& dweight, Tensor& dbias,
                            Grid bias_of, Conv3dGeometry g);

// bias_grad.cu: any floating dtype
/// dbias = the sum of grad over batch and cells.
void conv3d_bias_grad(const Tensor& grad, Tensor& dbias);

}  // namespace vox::cuda
