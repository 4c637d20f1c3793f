// kernel.cuh of f32 split into two f16 numbers: as accurate as f32 arithmetic.

#include <voxgrad/cuda/conv3d/mma/launch.cuh>

namespace vox::cuda::conv::mma {

template void run<float, F16Pair>(const Conv3dCall& call);

}  // namespace vox::cuda::conv::mma
