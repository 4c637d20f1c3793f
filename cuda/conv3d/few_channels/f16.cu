// The kernels of f16 tensors.

#include <voxgrad/cuda/conv3d/few_channels/forward.cuh>
#include <voxgrad/cuda/conv3d/few_channels/weight_grad.cuh>

namespace vox::cuda::conv::few_channels {

template void run<float16>(const Conv3dCall& call);
template void run_weight_grad<float16>(const WeightGradCall& call);

}  // namespace vox::cuda::conv::few_channels
