// forward.cuh for f32 split into two TF32 numbers: as accurate as f32 arithmetic. It sets `failed` for values
// that are infinite or NaN once rounded, because they cannot be split.

#include <voxgrad/cuda/conv3d/mma/forward.cuh>

namespace vox::cuda::conv::mma {

template void run<Tf32x3>(const Conv3dCall& call);

}  // namespace vox::cuda::conv::mma
