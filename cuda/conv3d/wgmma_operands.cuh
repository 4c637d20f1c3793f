#pragma once

// What the tensor cores are given for a number: the operands of the wgmma kernels as policies.

#include <voxgrad/core/half.h>
#include <voxgrad/cuda/conv3d/split_tf32.cuh>
#include <voxgrad/cuda/ptx/mma.cuh>
#include <voxgrad/cuda/ptx/wgmma.cuh>

namespace vox::cuda::flat {

/// f32 rounded to TF32.
struct Tf32 {
  static constexpr ptx::Operand operand = ptx::Operand::tf32;
  using Element = uint32_t;
  static constexpr int parts = 1;
  static __device__ __forceinline__ Element part(float x, int) { return ptx::to_tf32(x); }
};

/// Rounded to 16 bits, or stored so.
struct Bf16 {
  static constexpr ptx::Operand operand = ptx::Operand::bf16;
  using Element = bfloat16;
  static constexpr int parts = 1;
  static __device__ __forceinline__ Element part(float x, int) { return bfloat16(x); }
};
struct F16 {
  static constexpr ptx::Operand operand = ptx::Operand::f16;
  using Element = float16;
  static constexpr int parts = 1;
  static __device__ __forceinline__ Element part(float x, int) { return float16(x); }
};

/// f32 as a sum of two TF32 numbers, high and low. Of their four products the last is below the rounding of
/// f32 and left out. The tensor cores truncate when they add, so their sums move to f32 registers before they
/// are long.
struct Tf32x3 {
  static constexpr ptx::Operand operand = ptx::Operand::tf32;
  using Element = uint32_t;
  static constexpr int parts = 2;
  static __device__ __forceinline__ Element part(float x, int i) {
    const uint32_t high = tf32_high(x);
    return i == 0 ? high : tf32_low(x, high);
  }
};

}  // namespace vox::cuda::flat
