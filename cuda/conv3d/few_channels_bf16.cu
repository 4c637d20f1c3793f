#include <voxgrad/cuda/conv3d/few_channels.cuh>

namespace vox::cuda::few {

template void product<bfloat16>(const char*, const Tensor&, const Tensor&, const Tensor&, Tensor&,
                                const FewChannelsPlan&);

}  // namespace vox::cuda::few
