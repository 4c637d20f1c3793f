#pragma once

#include <voxgrad/cuda/conv3d/call.h>

namespace vox::cuda::conv::mma {

/// Any GPU since sm_80; windows that fit in shared memory. The workspace is a copy of the input with its
/// channels last, the packed weights, and up to 64 MiB of partial sums.
template <class Storage, class Operand>
void run(const Conv3dCall& call);

}  // namespace vox::cuda::conv::mma
