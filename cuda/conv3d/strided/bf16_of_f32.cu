// kernel.cuh for f32 rounded to bf16. It is a separate file because nvcc compresses larger ones, and the
// first call then takes 20 ms to unpack it.

#include <voxgrad/cuda/conv3d/strided/launch.cuh>

namespace vox::cuda::conv::strided {

template void run<float, Bf16>(const Conv3dCall& call);

}  // namespace vox::cuda::conv::strided
