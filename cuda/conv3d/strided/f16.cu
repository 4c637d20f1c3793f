// kernel.cuh of f16 tensors.

#include <voxgrad/cuda/conv3d/strided/launch.cuh>

namespace vox::cuda::conv::strided {

template void run<float16, F16>(const Conv3dCall& call);

}  // namespace vox::cuda::conv::strided
