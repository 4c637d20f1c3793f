#include <voxgrad/cuda/conv3d/dense/weight_grad.cuh>

namespace vox::cuda::conv::dense {

template void run_weight_grad<Bf16>(const WeightGradCall&);
template void run_weight_grad<F16>(const WeightGradCall&);
template void run_weight_grad<ScaledF16>(const WeightGradCall&);

}  // namespace vox::cuda::conv::dense
