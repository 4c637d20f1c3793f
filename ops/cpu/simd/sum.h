#pragma once

#include <cstdint>

namespace vox::cpu::simd {

/// The sum of n numbers, added up in double.
struct SumKernels {
  double (*f32)(const float*, int64_t n);
  double (*f64)(const double*, int64_t n);
};

namespace baseline {
extern const SumKernels sum_kernels;
}
namespace v3 {
extern const SumKernels sum_kernels;
}
namespace v4 {
extern const SumKernels sum_kernels;
}

}  // namespace vox::cpu::simd
