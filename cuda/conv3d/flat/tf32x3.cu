// kernel.cuh of f32 as a sum of two TF32 numbers: as accurate as f32 arithmetic. It fails on values that have
// no such parts: Inf, NaN, and the last numbers before Inf.

#include <voxgrad/cuda/conv3d/flat/launch.cuh>

namespace vox::cuda::conv::flat {

template bool takes<float, Tf32x3>(const Conv3dGeometry& g, bool transposed);
template void run<float, Tf32x3>(const Conv3dCall& call);

}  // namespace vox::cuda::conv::flat
