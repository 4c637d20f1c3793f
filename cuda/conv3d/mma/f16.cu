// kernel.cuh of f16 tensors.

#include <voxgrad/cuda/conv3d/mma/launch.cuh>

namespace vox::cuda::conv::mma {

template void run<float16, F16>(const Conv3dCall& call);

}  // namespace vox::cuda::conv::mma
