// The kernels of f32 tensors.

#include <voxgrad/cuda/conv3d/patches/launch.cuh>

namespace vox::cuda::conv::patches {

template void run<Parts<2>>(const Conv3dCall& call);
template void run_weight_grad<Parts<2>>(const WeightGradCall& call);
template void run<Parts<3>>(const Conv3dCall& call);
template void run_weight_grad<Parts<3>>(const WeightGradCall& call);

}  // namespace vox::cuda::conv::patches
