// conv3d and conv_transpose3d of f32 on the tensor cores of sm_80 and later, with operands rounded to TF32.

#include <voxgrad/cuda/conv3d/kernels.h>
#include <voxgrad/cuda/conv3d/implicit_gemm_mma.cuh>

namespace vox::cuda {

void conv3d_implicit_gemm_mma(const Tensor& big, const Tensor& weight, const Tensor& bias, Tensor& small,
                              Conv3dGeometry g) {
  if (g.batch == 0) return;
  const Launch launch("conv3d", small, {&big, &weight, &bias});
  mma::implicit_gemm_mma<false>(launch, "conv3d", big, weight, bias, small, g, false, nullptr);
}

void conv_transpose3d_implicit_gemm_mma(const Tensor& small, const Tensor& weight, const Tensor& bias,
                                        Tensor& big, Conv3dGeometry g) {
  if (g.batch == 0) return;
  const Launch launch("conv_transpose3d", big, {&small, &weight, &bias});
  mma::implicit_gemm_mma<false>(launch, "conv_transpose3d", small, weight, bias, big, g, true, nullptr);
}

}  // namespace vox::cuda
