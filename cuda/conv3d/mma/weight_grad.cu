// weight_grad.cuh of 16-bit numbers: bf16, f16, and f32 as scaled f16.

#include <voxgrad/cuda/conv3d/mma/weight_grad.cuh>

namespace vox::cuda::conv::mma {

template void run_weight_grad<Bf16>(const WeightGradCall&);
template void run_weight_grad<F16>(const WeightGradCall&);
template void run_weight_grad<ScaledF16>(const WeightGradCall&);

}  // namespace vox::cuda::conv::mma
