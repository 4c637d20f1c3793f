// weight_grad.cuh of f32 split into two f16 numbers.

#include <voxgrad/cuda/conv3d/mma/weight_grad.cuh>

namespace vox::cuda::conv::mma {

template void run_weight_grad<F16Pair>(const WeightGradCall&);

}  // namespace vox::cuda::conv::mma
