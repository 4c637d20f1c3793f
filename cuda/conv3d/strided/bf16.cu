// kernel.cuh of bf16 tensors.

#include <voxgrad/cuda/conv3d/strided/launch.cuh>

namespace vox::cuda::conv::strided {

template void run<bfloat16, Bf16>(const Conv3dCall& call);

}  // namespace vox::cuda::conv::strided
