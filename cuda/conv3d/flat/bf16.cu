// kernel.cuh of bf16 tensors.

#include <voxgrad/cuda/conv3d/flat/launch.cuh>

namespace vox::cuda::conv::flat {

template bool takes<bfloat16, Bf16>(const Conv3dGeometry& g, bool transposed);
template void run<bfloat16, Bf16>(const Conv3dCall& call);

}  // namespace vox::cuda::conv::flat
