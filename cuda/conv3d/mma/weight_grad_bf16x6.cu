// weight_grad.cuh of f32 as sums of three bf16 numbers.

#include <voxgrad/cuda/conv3d/mma/weight_grad.cuh>

namespace vox::cuda::conv::mma {

template void run_weight_grad<Bf16x6>(const WeightGradCall&);

}  // namespace vox::cuda::conv::mma
