// rolling_wgmma.cuh of f16 tensors.

#include <voxgrad/cuda/conv3d/rolling_wgmma_launch.cuh>

namespace vox::cuda {

void conv3d_rolling_wgmma_f16(const Tensor& big, const Tensor& weight, const Tensor& bias, Tensor& small,
                              Conv3dGeometry g) {
  rolling::run<float16, flat::F16>("conv3d", big, weight, bias, small, g, false);
}

void conv_transpose3d_rolling_wgmma_f16(const Tensor& small, const Tensor& weight, const Tensor& bias,
                                        Tensor& big, Conv3dGeometry g) {
  rolling::run<float16, flat::F16>("conv_transpose3d", small, weight, bias, big, g, true);
}

}  // namespace vox::cuda
