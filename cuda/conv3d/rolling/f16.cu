// kernel.cuh of f16 tensors.

#include <voxgrad/cuda/conv3d/rolling/launch.cuh>

namespace vox::cuda::conv::rolling {

template void run<float16, F16>(const Conv3dCall& call);

}  // namespace vox::cuda::conv::rolling
