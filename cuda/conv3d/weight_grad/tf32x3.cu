// kernel.cuh of f32, as accurate as f32 arithmetic: both factors are split into two TF32 numbers, and three
// of their products are computed. It fails on values that are infinite or NaN once rounded, which have no
// such parts.

#include <voxgrad/cuda/conv3d/weight_grad/kernel.cuh>

namespace vox::cuda::conv::weight_grad {

template bool takes<Tf32x3>(const Conv3dGeometry& g);
template void run<Tf32x3>(const WeightGradCall& call);

}  // namespace vox::cuda::conv::weight_grad
