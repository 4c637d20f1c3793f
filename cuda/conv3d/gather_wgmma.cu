// gather_wgmma.cuh of f32 rounded to TF32.

#include <voxgrad/cuda/conv3d/gather_wgmma_launch.cuh>

namespace vox::cuda {

bool gather_wgmma_takes(const Conv3dGeometry& g, bool transposed) {
  return gather::takes<false>(g, transposed);
}

void conv3d_gather_wgmma(const Tensor& big, const Tensor& weight, const Tensor& bias, Tensor& small,
                         Conv3dGeometry g) {
  gather::run<false>("conv3d", big, weight, bias, small, g, false, {});
}

void conv_transpose3d_gather_wgmma(const Tensor& small, const Tensor& weight, const Tensor& bias, Tensor& big,
                                   Conv3dGeometry g) {
  gather::run<false>("conv_transpose3d", small, weight, bias, big, g, true, {});
}

}  // namespace vox::cuda
