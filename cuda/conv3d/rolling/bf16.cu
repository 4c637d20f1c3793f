// kernel.cuh of bf16 tensors, and of f32 rounded to bf16.

#include <voxgrad/cuda/conv3d/rolling/launch.cuh>

namespace vox::cuda::conv::rolling {

template void run<bfloat16, Bf16>(const Conv3dCall& call);
template void run<float, Bf16>(const Conv3dCall& call);

}  // namespace vox::cuda::conv::rolling
