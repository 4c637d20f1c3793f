#pragma once

#include <cstdint>

namespace vox::cpu::simd {

/// Whether all of n numbers are finite.
struct FiniteKernels {
  bool (*f32)(const float*, int64_t n);
  bool (*f64)(const double*, int64_t n);
};

namespace baseline {
extern const FiniteKernels finite_kernels;
}
namespace v3 {
extern const FiniteKernels finite_kernels;
}
namespace v4 {
extern const FiniteKernels finite_kernels;
}

}  // namespace vox::cpu::simd
