// gather_wgmma.cuh of f32 as a sum of two TF32 numbers: as accurate as f32 arithmetic (of numbers below
// 2^-114, whose low part is below the smallest TF32 number, as TF32's). What has no such parts (Inf, NaN, and
// the last numbers before Inf) shows in results that are not finite; where there is one, `direct` does the
// work over: a kernel that starts in any case and leaves at once if there is none.

#include <voxgrad/core/factories.h>
#include <voxgrad/cuda/conv3d/gather_wgmma_launch.cuh>

namespace vox::cuda {

bool gather_wgmma_split_takes(const Conv3dGeometry& g, bool transposed) {
  return gather::takes<true>(g, transposed);
}

void conv3d_gather_wgmma_split(const Tensor& big, const Tensor& weight, const Tensor& bias, Tensor& small,
                               Conv3dGeometry g) {
  const Tensor mark = zeros({1}, {.dtype = i64, .device = small.device()});
  gather::run<true>("conv3d", big, weight, bias, small, g, false, mark);
  conv3d_direct_if(mark, big, weight, bias, small, g);
}

void conv_transpose3d_gather_wgmma_split(const Tensor& small, const Tensor& weight, const Tensor& bias,
                                         Tensor& big, Conv3dGeometry g) {
  const Tensor mark = zeros({1}, {.dtype = i64, .device = big.device()});
  gather::run<true>("conv_transpose3d", small, weight, bias, big, g, true, mark);
  conv_transpose3d_direct_if(mark, small, weight, bias, big, g);
}

}  // namespace vox::cuda
