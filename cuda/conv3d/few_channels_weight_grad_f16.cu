#include <voxgrad/cuda/conv3d/few_channels_weight_grad.cuh>

namespace vox::cuda::few {

template void weight_grad<float16>(const Tensor&, const Tensor&, Tensor&, const FewWeightGradPlan&);

}  // namespace vox::cuda::few
