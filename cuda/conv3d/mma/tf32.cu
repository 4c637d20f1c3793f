// kernel.cuh of f32 rounded to TF32.

#include <voxgrad/cuda/conv3d/mma/launch.cuh>

namespace vox::cuda::conv::mma {

template void run<float, Tf32>(const Conv3dCall& call);

}  // namespace vox::cuda::conv::mma
