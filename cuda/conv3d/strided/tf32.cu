// kernel.cuh of f32 rounded to TF32.

#include <voxgrad/cuda/conv3d/strided/launch.cuh>

namespace vox::cuda::conv::strided {

template void run<float, Tf32>(const Conv3dCall& call);

}  // namespace vox::cuda::conv::strided
