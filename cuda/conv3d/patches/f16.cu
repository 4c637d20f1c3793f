// The kernels of f16 tensors.

#include <voxgrad/cuda/conv3d/patches/launch.cuh>

namespace vox::cuda::conv::patches {

template void run<Whole<float16>>(const Conv3dCall& call);
template void run_weight_grad<Whole<float16>>(const WeightGradCall& call);

}  // namespace vox::cuda::conv::patches
