#pragma once

#include <voxgrad/ops/cpu/isa.h>
#include <voxgrad/ops/cpu/simd/conv3d.h>

#include <type_traits>

namespace vox::cpu {

/// The inner loops of the instruction set in use.
template <class T>
const simd::ConvKernelsOf<T>& conv_kernels() {
  constexpr ByIsa kernels{&simd::baseline::conv_kernels, VOX_X86(&simd::v3::conv_kernels),
                          VOX_X86(&simd::v4::conv_kernels)};
  if constexpr (std::is_same_v<T, double>)
    return kernels.here().f64;
  else
    return kernels.here().f32;
}

}  // namespace vox::cpu
