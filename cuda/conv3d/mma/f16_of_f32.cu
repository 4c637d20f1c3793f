// kernel.cuh of f32 as scaled f16 numbers: as precise as TF32.

#include <voxgrad/cuda/conv3d/mma/launch.cuh>

namespace vox::cuda::conv::mma {

template void run<float, F16OfF32>(const Conv3dCall& call);

}  // namespace vox::cuda::conv::mma
