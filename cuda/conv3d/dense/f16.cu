// kernel.cuh and windows.cuh of f16 tensors.

#include <voxgrad/cuda/conv3d/dense/launch.cuh>

namespace vox::cuda::conv::dense {

template void run<float16, F16>(const Conv3dCall& call);
template void run_windows<float16, F16>(const Conv3dCall& call);

}  // namespace vox::cuda::conv::dense
