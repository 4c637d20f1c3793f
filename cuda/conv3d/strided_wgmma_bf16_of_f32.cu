// strided_wgmma.cuh of f32 rounded to bf16. A file of its own, since nvcc compresses what is larger than one
// of them, and the first call would take 20 ms to unpack it.

#include <voxgrad/cuda/conv3d/strided_wgmma_launch.cuh>

namespace vox::cuda {

void conv3d_strided_wgmma_bf16_of_f32(const Tensor& big, const Tensor& weight, const Tensor& bias,
                                      Tensor& small, Conv3dGeometry g) {
  strided::run<float, flat::Bf16>("conv3d", big, weight, bias, small, g, false);
}

void conv_transpose3d_strided_wgmma_bf16_of_f32(const Tensor& small, const Tensor& weight, const Tensor& bias,
                                                Tensor& big, Conv3dGeometry g) {
  strided::run<float, flat::Bf16>("conv_transpose3d", small, weight, bias, big, g, true);
}

}  // namespace vox::cuda
