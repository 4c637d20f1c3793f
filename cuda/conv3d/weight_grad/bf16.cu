// kernel.cuh for bf16. Sums stay in the tensor core's accumulators, as in tf32.cu.

#include <voxgrad/cuda/conv3d/weight_grad/kernel.cuh>

namespace vox::cuda::conv::weight_grad {

template void run<Bf16>(const WeightGradCall& call);

}  // namespace vox::cuda::conv::weight_grad
