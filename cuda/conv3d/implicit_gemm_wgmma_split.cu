// implicit_gemm_wgmma.cuh of f32 as a sum of two TF32 numbers: as accurate as f32 arithmetic. What has no
// such parts (Inf, NaN, and the last numbers before Inf) leaves a mark, and `direct` does the work over.

#include <voxgrad/core/factories.h>
#include <voxgrad/cuda/conv3d/implicit_gemm_wgmma_launch.cuh>

namespace vox::cuda {

bool implicit_gemm_wgmma_split_takes(const Conv3dGeometry& g, bool transposed) {
  return flat::takes<float, flat::Tf32x3>(g, transposed);
}

void conv3d_implicit_gemm_wgmma_split_if(const Tensor& wanted, const Tensor& mark, const Tensor& big,
                                         const Tensor& weight, const Tensor& bias, Tensor& small,
                                         Conv3dGeometry g) {
  flat::run<float, flat::Tf32x3>("conv3d", big, weight, bias, small, g, false, mark, wanted);
  conv3d_direct_if(mark, big, weight, bias, small, g);
}

void conv_transpose3d_implicit_gemm_wgmma_split_if(const Tensor& wanted, const Tensor& mark,
                                                   const Tensor& small, const Tensor& weight,
                                                   const Tensor& bias, Tensor& big, Conv3dGeometry g) {
  flat::run<float, flat::Tf32x3>("conv_transpose3d", small, weight, bias, big, g, true, mark, wanted);
  conv_transpose3d_direct_if(mark, small, weight, bias, big, g);
}

void conv3d_implicit_gemm_wgmma_split(const Tensor& big, const Tensor& weight, const Tensor& bias,
                                      Tensor& small, Conv3dGeometry g) {
  const Tensor mark = zeros({1}, {.dtype = i64, .device = small.device()});
  conv3d_implicit_gemm_wgmma_split_if({}, mark, big, weight, bias, small, g);
}

void conv_transpose3d_implicit_gemm_wgmma_split(const Tensor& small, const Tensor& weight, const Tensor& bias,
                                                Tensor& big, Conv3dGeometry g) {
  const Tensor mark = zeros({1}, {.dtype = i64, .device = big.device()});
  conv_transpose3d_implicit_gemm_wgmma_split_if({}, mark, small, weight, bias, big, g);
}

}  // namespace vox::cuda
