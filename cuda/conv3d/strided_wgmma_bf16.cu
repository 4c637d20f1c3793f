// strided_wgmma.cuh of bf16 tensors.

#include <voxgrad/cuda/conv3d/strided_wgmma_launch.cuh>

namespace vox::cuda {

bool strided_wgmma_bf16_takes(const Conv3dGeometry& g, bool transposed, DType dtype) {
  return dtype == f32 ? strided::takes<float, flat::Bf16>(g, transposed)
                      : strided::takes<bfloat16, flat::Bf16>(g, transposed);
}

void conv3d_strided_wgmma_bf16(const Tensor& big, const Tensor& weight, const Tensor& bias, Tensor& small,
                               Conv3dGeometry g) {
  if (small.dtype() == f32) return conv3d_strided_wgmma_bf16_of_f32(big, weight, bias, small, g);
  strided::run<bfloat16, flat::Bf16>("conv3d", big, weight, bias, small, g, false);
}

void conv_transpose3d_strided_wgmma_bf16(const Tensor& small, const Tensor& weight, const Tensor& bias,
                                         Tensor& big, Conv3dGeometry g) {
  if (big.dtype() == f32) return conv_transpose3d_strided_wgmma_bf16_of_f32(small, weight, bias, big, g);
  strided::run<bfloat16, flat::Bf16>("conv_transpose3d", small, weight, bias, big, g, true);
}

}  // namespace vox::cuda
