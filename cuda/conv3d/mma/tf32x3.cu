// forward.cuh of f32 as a sum of two TF32 numbers: as accurate as f32 arithmetic. It fails on values that are
// infinite or NaN once rounded, which have no such parts.

#include <voxgrad/cuda/conv3d/mma/forward.cuh>

namespace vox::cuda::conv::mma {

template void run<Tf32x3>(const Conv3dCall& call);

}  // namespace vox::cuda::conv::mma
