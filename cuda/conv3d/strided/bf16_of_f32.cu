// kernel.cuh of f32 rounded to bf16. A file of its own, since nvcc compresses larger ones, and the first call
// would take 20 ms to unpack it.

#include <voxgrad/cuda/conv3d/strided/launch.cuh>

namespace vox::cuda::conv::strided {

template bool takes<float, Bf16>(const Conv3dGeometry& g, bool transposed);
template void run<float, Bf16>(const Conv3dCall& call);

}  // namespace vox::cuda::conv::strided
