#pragma once

#include <cstdint>

#include <voxgrad/core/half.h>
#include <voxgrad/cuda/conv3d/common/operands.cuh>
#include <voxgrad/cuda/ptx/mma.cuh>
#include <voxgrad/cuda/ptx/registers.cuh>
#include <voxgrad/cuda/ptx/shared.cuh>

// Products of small matrices by a warp, in tensor cores, for kernels that keep their operands in shared
// memory as rows of any length: 16 x 16 (left) times 16 x 16 (right), added to sums (16 x 16, f32).
//
// 16-bit elements are multiplied as they are. f32 elements are split into two TF32 numbers, of whose four
// products three are computed: the fourth is below the rounding of f32. Tensor cores truncate their sums, so
// a kernel that adds up many products in f32 starts new sums now and then and adds the old ones itself.
//
// The result is the same for every order of the 16 products that are summed, so f32 factors take them in an
// order in which two neighbours in memory, or in a lane's sums, belong to one lane. 16-bit factors do not.

namespace vox::cuda {

/// A lane's part of 16 x 16 sums, as of two m16n8 products: element i of half h is at row lane / 4 + 8 (i /
/// 2) and column 8 h + 2 (lane % 4) + i % 2.
using Sums = float[2][4];
__device__ __forceinline__ int row_of(int lane, int i) { return lane / 4 + 8 * (i / 2); }
__device__ __forceinline__ int column_of(int lane, int half, int i) {
  return 8 * half + 2 * (lane % 4) + i % 2;
}

/// The factors of dtype T. `rows` points at the first element in shared memory, `stride` is the distance of
/// rows in elements: a multiple of 8, and to avoid bank conflicts 8 above a multiple of 16.
template <class T>
struct Factors {
  static_assert(is_16_bit_v<T>);
  static constexpr ptx::Operand operand =
      std::is_same_v<T, bfloat16> ? ptx::Operand::bf16 : ptx::Operand::f16;
  struct Part {
    uint32_t words[4];
  };
  using Left = Part;
  using Right = Part;

  static __device__ Left left(const T* rows, int stride, int lane) {
    return matrices(rows + lane % 16 * stride + lane / 16 * 8);
  }
  /// The left factor that was a result.
  static __device__ Left left(const Sums& sums) {
    const auto pair = [&](int half, int i) { return ptx::packed<operand>(sums[half][i], sums[half][i + 1]); };
    return {{pair(0, 0), pair(0, 2), pair(1, 0), pair(1, 2)}};
  }
  /// The right factor whose columns are rows in memory.
  static __device__ Right transposed_right(const T* rows, int stride, int lane) {
    return matrices(rows + (lane % 8 + lane / 16 * 8) * stride + lane / 8 % 2 * 8);
  }
  static __device__ Right right(const T* rows, int stride, int lane) {
    Right part;
    ptx::load_transposed_matrices(part.words,
                                  ptx::shared_address_of(rows + lane % 16 * stride + lane / 16 * 8));
    return part;
  }
  static __device__ void multiply(Sums& sums, const Left& a, const Right& b) {
    ptx::mma_m16n8k16<operand>(sums[0], a.words, b.words[0], b.words[1]);
    ptx::mma_m16n8k16<operand>(sums[1], a.words, b.words[2], b.words[3]);
  }

 private:
  static __device__ Part matrices(const T* row) {
    Part part;
    ptx::load_matrices(part.words, ptx::shared_address_of(row));
    return part;
  }
};

template <>
struct Factors<float> {
  /// Element [j][i] belongs to step j of 8 products. Left: i as in Sums. Right: [h] is its half of columns.
  struct Left {
    float x[2][4];
  };
  struct Right {
    float x[2][2][2];
  };

  static __device__ Left left(const float* rows, int stride, int lane) {
    Left a;
#pragma unroll
    for (int j = 0; j < 2; ++j)
#pragma unroll
      for (int r = 0; r < 2; ++r) {
        const float* const at = rows + row_of(lane, 2 * r) * stride + column_of(lane, j, 0);
        a.x[j][2 * r] = at[0], a.x[j][2 * r + 1] = at[1];
      }
    return a;
  }
  static __device__ Left left(const Sums& sums) {
    Left a;
#pragma unroll
    for (int j = 0; j < 2; ++j)
#pragma unroll
      for (int i = 0; i < 4; ++i) a.x[j][i] = sums[j][i];
    return a;
  }
  static __device__ Right transposed_right(const float* rows, int stride, int lane) {
    return gathered([&](int k, int n) { return rows[n * stride + k]; }, lane);
  }
  static __device__ Right right(const float* rows, int stride, int lane) {
    return gathered([&](int k, int n) { return rows[k * stride + n]; }, lane);
  }
  static __device__ void multiply(Sums& sums, const Left& a, const Right& b) {
#pragma unroll
    for (int j = 0; j < 2; ++j) {
      // A lane's product k, k + 4 of an instruction are its elements 2 k, 2 k + 1 here.
      uint32_t high[4], low[4];
      constexpr int order[4] = {0, 2, 1, 3};
#pragma unroll
      for (int i = 0; i < 4; ++i) split(a.x[j][order[i]], high[i], low[i]);
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        uint32_t b_high[2], b_low[2];
#pragma unroll
        for (int i = 0; i < 2; ++i) split(b.x[half][j][i], b_high[i], b_low[i]);
        ptx::mma_m16n8k8_tf32(sums[half], low, b_high);
        ptx::mma_m16n8k8_tf32(sums[half], high, b_low);
        ptx::mma_m16n8k8_tf32(sums[half], high, b_high);
      }
    }
  }

 private:
  template <class At>
  static __device__ Right gathered(At at, int lane) {
    Right b;
#pragma unroll
    for (int half = 0; half < 2; ++half)
#pragma unroll
      for (int j = 0; j < 2; ++j)
#pragma unroll
        for (int i = 0; i < 2; ++i) b.x[half][j][i] = at(column_of(lane, j, i), 8 * half + lane / 4);
    return b;
  }
  static __device__ void split(float x, uint32_t& high, uint32_t& low) {
    high = conv::tf32_high(x), low = conv::tf32_low(x, high);
  }
};

}  // namespace vox::cuda
