// kernel.cuh for f32, as accurate as f32 arithmetic: both factors are split into two TF32 numbers, and three
// products are computed. It sets `failed` for values that are infinite or NaN once rounded, because they
// cannot be split.

#include <voxgrad/cuda/conv3d/weight_grad/kernel.cuh>

namespace vox::cuda::conv::weight_grad {

template void run<Tf32x3>(const WeightGradCall& call);

}  // namespace vox::cuda::conv::weight_grad
