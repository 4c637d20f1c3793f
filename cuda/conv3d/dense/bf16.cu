// kernel.cuh of bf16 tensors.

#include <voxgrad/cuda/conv3d/dense/launch.cuh>

namespace vox::cuda::conv::dense {

template bool takes<bfloat16, Bf16>(const Conv3dGeometry& g, bool transposed);
template void run<bfloat16, Bf16>(const Conv3dCall& call);

}  // namespace vox::cuda::conv::dense
