// conv3d_weight_grad of f32 on Hopper, as accurate as f32 arithmetic (weight_grad_wgmma.cuh): both factors
// are split into two TF32 numbers, and three of their products are made.
//
// Values that are infinite or NaN once rounded have no split. Where there is one, the producers leave a mark,
// and `direct` does the work over, without the host having to know.

#include <voxgrad/core/factories.h>
#include <voxgrad/cuda/conv3d/kernels.h>
#include <voxgrad/cuda/conv3d/weight_grad_wgmma.cuh>

namespace vox::cuda {

void conv3d_weight_grad_wgmma_split(const Tensor& big, const Tensor& small, Tensor& dweight, Tensor& dbias,
                                    Grid bias_of, Conv3dGeometry g) {
  Tensor not_split = zeros({1}, {.dtype = i64, .device = dweight.device()});
  {
    const Launch launch("conv3d_weight_grad", dweight, {&big, &small, &not_split});
    weight_grad_in_slices<true>(launch, big, small, dweight, detail::mutable_ptr<int64_t>(not_split),
                                *weight_grad_plan(g, true));
  }
  conv3d_weight_grad_direct_if(not_split, big, small, dweight, g);
  if (dbias.defined()) conv3d_bias_grad(bias_of == Grid::big ? big : small, dbias);
}

}  // namespace vox::cuda
