// kernel.cuh for f32 rounded to TF32.
//
// Sums stay in the tensor core's accumulators for the whole split. They truncate (Note [Truncating sums] in
// common/operands.cuh), which on data of one sign adds an error of the order of TF32's own after some 10^4
// cells.

#include <voxgrad/cuda/conv3d/weight_grad/kernel.cuh>

namespace vox::cuda::conv::weight_grad {

template void run<Tf32>(const WeightGradCall& call);

}  // namespace vox::cuda::conv::weight_grad
