// rolling_wgmma.cuh of bf16 tensors, and of f32 rounded to bf16.

#include <voxgrad/cuda/conv3d/rolling_wgmma_launch.cuh>

namespace vox::cuda {

bool rolling_wgmma_16_takes(const Conv3dGeometry& g, bool transposed) {
  return rolling::takes<float, flat::Bf16>(g, transposed) &&
         rolling::takes<bfloat16, flat::Bf16>(g, transposed);  // f16 is cut in the same way
}

bool rolling_wgmma_16_pays(const Conv3dGeometry& g, bool transposed, DType storage) {
  return storage == f32 ? rolling::pays<float, flat::Bf16>(g, transposed)
                        : rolling::pays<bfloat16, flat::Bf16>(g, transposed);
}

void conv3d_rolling_wgmma_bf16(const Tensor& big, const Tensor& weight, const Tensor& bias, Tensor& small,
                               Conv3dGeometry g) {
  if (small.dtype() == f32)
    rolling::run<float, flat::Bf16>("conv3d", big, weight, bias, small, g, false);
  else
    rolling::run<bfloat16, flat::Bf16>("conv3d", big, weight, bias, small, g, false);
}

void conv_transpose3d_rolling_wgmma_bf16(const Tensor& small, const Tensor& weight, const Tensor& bias,
                                         Tensor& big, Conv3dGeometry g) {
  if (big.dtype() == f32)
    rolling::run<float, flat::Bf16>("conv_transpose3d", small, weight, bias, big, g, true);
  else
    rolling::run<bfloat16, flat::Bf16>("conv_transpose3d", small, weight, bias, big, g, true);
}

}  // namespace vox::cuda
