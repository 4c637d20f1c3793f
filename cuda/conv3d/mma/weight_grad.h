#pragma once

#include <voxgrad/cuda/conv3d/call.h>

namespace vox::cuda::conv {

struct ScaledF16;

namespace mma {

/// On any GPU since sm_80. Bf16, F16: that dtype; ScaledF16, F16Pair: f32. The workspace is a copy of both
/// operands with their channels last, of 2 bytes a number (F16Pair: 4), and partial sums: 32 MiB, or one
/// padded copy of dweight in f32.
template <class Operand>
void run_weight_grad(const WeightGradCall& call);

}  // namespace mma

}  // namespace vox::cuda::conv
