// The kernels of f32 tensors.

#include <voxgrad/cuda/conv3d/few_channels/forward.cuh>
#include <voxgrad/cuda/conv3d/few_channels/weight_grad.cuh>

namespace vox::cuda::conv::few_channels {

template void product<float>(const Conv3dCall& call, const Plan& p);
template void weight_grad<float>(const WeightGradCall& call, const WeightGradPlan& p);

}  // namespace vox::cuda::conv::few_channels
