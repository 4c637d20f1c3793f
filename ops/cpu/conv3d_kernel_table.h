#pragma once

#include <voxgrad/ops/cpu/isa.h>
#include <voxgrad/ops/cpu/simd/conv3d.h>

namespace vox::cpu {

/// The convolutions' inner loops.
inline constexpr ByIsa conv_kernels = VOX_BY_ISA(conv_kernels);

}  // namespace vox::cpu
