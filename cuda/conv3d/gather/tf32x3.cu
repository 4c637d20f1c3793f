// kernel.cuh for f32 split into two TF32 numbers: as accurate as f32 arithmetic. (Numbers below 2^-114, whose
// low part is below the smallest TF32 number, are as accurate as TF32.) Inf, NaN and the largest finite
// numbers cannot be split. They make results that are not finite, for which the kernel sets `failed`.

#include <voxgrad/cuda/conv3d/gather/launch.cuh>

namespace vox::cuda::conv::gather {

template void run<Tf32x3>(const Conv3dCall& call);

}  // namespace vox::cuda::conv::gather
