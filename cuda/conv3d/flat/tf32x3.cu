// kernel.cuh for f32 split into two TF32 numbers: as accurate as f32 arithmetic. It sets `failed` for values
// that cannot be split: Inf, NaN, and the largest finite numbers.

#include <voxgrad/cuda/conv3d/flat/launch.cuh>

namespace vox::cuda::conv::flat {

template bool takes<float, Tf32x3>(const Conv3dGeometry& g, bool transposed);
template void run<float, Tf32x3>(const Conv3dCall& call);

}  // namespace vox::cuda::conv::flat
