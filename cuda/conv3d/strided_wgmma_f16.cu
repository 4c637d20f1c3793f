// strided_wgmma.cuh of f16 tensors.

#include <voxgrad/cuda/conv3d/strided_wgmma_launch.cuh>

namespace vox::cuda {

bool strided_wgmma_f16_takes(const Conv3dGeometry& g, bool transposed) {
  return strided::takes<float16, flat::F16>(g, transposed);
}

void conv3d_strided_wgmma_f16(const Tensor& big, const Tensor& weight, const Tensor& bias, Tensor& small,
                              Conv3dGeometry g) {
  strided::run<float16, flat::F16>("conv3d", big, weight, bias, small, g, false);
}

void conv_transpose3d_strided_wgmma_f16(const Tensor& small, const Tensor& weight, const Tensor& bias,
                                        Tensor& big, Conv3dGeometry g) {
  strided::run<float16, flat::F16>("conv_transpose3d", small, weight, bias, big, g, true);
}

}  // namespace vox::cuda
