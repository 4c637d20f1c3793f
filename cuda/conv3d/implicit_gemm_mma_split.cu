// conv3d and conv_transpose3d of f32 on the tensor cores of sm_80 and later, as accurate as f32 arithmetic:
// operands are split into two TF32 numbers, and three of their products are made (implicit_gemm_mma.cuh).
//
// Values that are infinite or NaN once rounded have no split. Where there is one, the kernels leave a mark,
// and `direct` does the work over, without the host having to know.

#include <voxgrad/core/factories.h>
#include <voxgrad/cuda/conv3d/kernels.h>
#include <voxgrad/cuda/conv3d/implicit_gemm_mma.cuh>

namespace vox::cuda {

void conv3d_implicit_gemm_mma_split(const Tensor& big, const Tensor& weight, const Tensor& bias,
                                    Tensor& small, Conv3dGeometry g) {
  if (g.batch == 0) return;
  Tensor not_split = zeros({1}, {.dtype = i64, .device = small.device()});
  {
    const Launch launch("conv3d", small, {&big, &weight, &bias, &not_split});
    mma::implicit_gemm_mma<true>(launch, "conv3d", big, weight, bias, small, g, false,
                                 detail::mutable_ptr<int64_t>(not_split));
  }
  conv3d_direct_if(not_split, big, weight, bias, small, g);
}

void conv_transpose3d_implicit_gemm_mma_split(const Tensor& small, const Tensor& weight, const Tensor& bias,
                                              Tensor& big, Conv3dGeometry g) {
  if (g.batch == 0) return;
  Tensor not_split = zeros({1}, {.dtype = i64, .device = big.device()});
  {
    const Launch launch("conv_transpose3d", big, {&small, &weight, &bias, &not_split});
    mma::implicit_gemm_mma<true>(launch, "conv_transpose3d", small, weight, bias, big, g, true,
                                 detail::mutable_ptr<int64_t>(not_split));
  }
  conv_transpose3d_direct_if(not_split, small, weight, bias, big, g);
}

}  // namespace vox::cuda
