#pragma once

#include <voxgrad/ops/cpu/isa.h>
#include <voxgrad/ops/cpu/simd/finite.h>

namespace vox::cpu {

constexpr ByIsa finite_kernels{&simd::baseline::finite_kernels, VOX_X86(&simd::v3::finite_kernels),
                               VOX_X86(&simd::v4::finite_kernels)};

/// Whether all of n numbers are finite.
inline bool all_finite(const float* x, int64_t n) { return finite_kernels.here().f32(x, n); }
inline bool all_finite(const double* x, int64_t n) { return finite_kernels.here().f64(x, n); }

}  // namespace vox::cpu
