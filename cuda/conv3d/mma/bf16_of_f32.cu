// kernel.cuh of f32 rounded to bf16.

#include <voxgrad/cuda/conv3d/mma/launch.cuh>

namespace vox::cuda::conv::mma {

template void run<float, Bf16>(const Conv3dCall& call);

}  // namespace vox::cuda::conv::mma
