// kernel.cuh of f16 tensors.

#include <voxgrad/cuda/conv3d/strided/launch.cuh>

namespace vox::cuda::conv::strided {

template bool takes<float16, F16>(const Conv3dGeometry& g, bool transposed);
template void run<float16, F16>(const Conv3dCall& call);

}  // namespace vox::cuda::conv::strided
