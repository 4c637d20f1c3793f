// kernel.cuh and windows.cuh of bf16 tensors.

#include <voxgrad/cuda/conv3d/dense/launch.cuh>

namespace vox::cuda::conv::dense {

template void run<bfloat16, Bf16>(const Conv3dCall& call);
template void run_windows<bfloat16, Bf16>(const Conv3dCall& call);

}  // namespace vox::cuda::conv::dense
