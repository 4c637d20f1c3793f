// The kernels of bf16 tensors.

#include <voxgrad/cuda/conv3d/patches/launch.cuh>

namespace vox::cuda::conv::patches {

template void run<bfloat16>(const Conv3dCall& call);
template void run_weight_grad<bfloat16>(const WeightGradCall& call);

}  // namespace vox::cuda::conv::patches
