#pragma once

#include <voxgrad/cuda/conv3d/call.h>

// Hopper; from channels-last copies of the operands, which are the workspace (with up to 64 MiB, or a copy of
// dweight in f32, for the weight gradient).

namespace vox::cuda::conv {
struct ScaledF16;
}

namespace vox::cuda::conv::dense {

/// Any stride up to 8, in conv_transpose3d 4.
template <class Storage, class Operand>
void run(const Conv3dCall& call);

/// Stride 1; windows that fit in shared memory, as those of 5 taps along h and w do (windows.cuh).
template <class Storage, class Operand>
void run_windows(const Conv3dCall& call);

/// Bf16, F16, and ScaledF16 for f32. No groups; any stride up to 8.
template <class Operand>
void run_weight_grad(const WeightGradCall& call);

}  // namespace vox::cuda::conv::dense
