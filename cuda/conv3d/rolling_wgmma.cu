// rolling_wgmma.cuh of f32 rounded to TF32.

#include <voxgrad/cuda/conv3d/rolling_wgmma_launch.cuh>

namespace vox::cuda {

bool rolling_wgmma_takes(const Conv3dGeometry& g, bool transposed) {
  return rolling::takes<float, flat::Tf32>(g, transposed);
}

bool rolling_wgmma_pays(const Conv3dGeometry& g, bool transposed) {
  return rolling::pays<float, flat::Tf32>(g, transposed);
}

void conv3d_rolling_wgmma(const Tensor& big, const Tensor& weight, const Tensor& bias, Tensor& small,
                          Conv3dGeometry g) {
  rolling::run<float, flat::Tf32>("conv3d", big, weight, bias, small, g, false);
}

void conv_transpose3d_rolling_wgmma(const Tensor& small, const Tensor& weight, const Tensor& bias,
                                    Tensor& big, Conv3dGeometry g) {
  rolling::run<float, flat::Tf32>("conv_transpose3d", small, weight, bias, big, g, true);
}

}  // namespace vox::cuda
