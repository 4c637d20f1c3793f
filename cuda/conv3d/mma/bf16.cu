// kernel.cuh of bf16 tensors.

#include <voxgrad/cuda/conv3d/mma/launch.cuh>

namespace vox::cuda::conv::mma {

template void run<bfloat16, Bf16>(const Conv3dCall& call);

}  // namespace vox::cuda::conv::mma
