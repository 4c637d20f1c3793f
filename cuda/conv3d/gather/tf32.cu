// kernel.cuh of f32 rounded to TF32.

#include <voxgrad/cuda/conv3d/gather/launch.cuh>

namespace vox::cuda::conv::gather {

template void run<Tf32>(const Conv3dCall& call);

}  // namespace vox::cuda::conv::gather
