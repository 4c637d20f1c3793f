// kernel.cuh and windows.cuh of f32 rounded to bf16.

#include <voxgrad/cuda/conv3d/dense/launch.cuh>

namespace vox::cuda::conv::dense {

template void run<float, Bf16>(const Conv3dCall& call);
template void run_windows<float, Bf16>(const Conv3dCall& call);

}  // namespace vox::cuda::conv::dense
