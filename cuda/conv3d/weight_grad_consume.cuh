#pragma once

#include <voxgrad/cuda/conv3d/split_tf32.cuh>
#include <voxgrad/cuda/conv3d/weight_grad_shared.cuh>
#include <voxgrad/cuda/ptx/mma.cuh>
#include <voxgrad/cuda/ptx/shared.cuh>
#include <voxgrad/cuda/ptx/wgmma.cuh>

#include <type_traits>

// Consumers of weight_grad_wgmma.cuh: a warpgroup's products of 64 rows, over all steps.

namespace vox::cuda {

#ifdef __CUDA_ARCH_FEAT_SM90_ALL

/// A thread's part of 64 rows x 8 positions: two octets of rows, positions k and k + 4.
template <int offset>  // in bytes
__device__ __forceinline__ void load_fragment(uint32_t (&a)[4], const uint32_t (&octets)[2]) {
  a[0] = ptx::load_shared<offset>(octets[0]);
  a[1] = ptx::load_shared<offset>(octets[1]);
  a[2] = ptx::load_shared<offset + 16>(octets[0]);
  a[3] = ptx::load_shared<offset + 16>(octets[1]);
}

/// Zeros for positions from `tail` on: what lies there is not of this row.
__device__ __forceinline__ void cut_fragment(uint32_t (&a)[4], int position, int tail) {
  if (position >= tail) a[0] = a[1] = 0;
  if (position + 4 >= tail) a[2] = a[3] = 0;
}

/// Sums of `count` products, as a thread holds them.
template <int count, int sums>
__device__ __forceinline__ void clear(float (&sum)[count][sums]) {
#pragma unroll
  for (int m = 0; m < count; ++m)
#pragma unroll
    for (int i = 0; i < sums; ++i) sum[m][i] = 0;
}
template <int count, int sums>
__device__ __forceinline__ void store(const float (&sum)[count][sums], int first, int thread, float* to) {
#pragma unroll
  for (int m = 0; m < count; ++m)
#pragma unroll
    for (int i = 0; i < sums; ++i) to[((first + m) * sums + i) * group_threads + thread] = sum[m][i];
}

/// A warpgroup's `count` products of 64 rows, from the first-th of the block, over all steps.
template <int columns, int count>
__device__ __forceinline__ void consume(const WeightGradPlan& p, const Shared& s, int first, int steps,
                                        float* to) {
  const int thread = threadIdx.x % group_threads, lane = thread % 32, warp = thread / 32;
  const int row = lane / 4, k = lane % 4;
  const uint32_t lane_at = ptx::shared_address_of(s.big) + 4 * (row * p.channel_pitch + k);
  const uint32_t plane_bytes = 4 * p.plane_words, row_bytes = 4 * p.axis[2].extent;
  const int row_planes = p.axis[2].tile / 4;

  // Fragments are loaded `ahead` products before they are used; a set of registers waits for its product.
  constexpr int sets = count, ahead = sets / 2;
  float sum[count][columns / 2];
  clear(sum);
  uint32_t a[sets][4];
  uint32_t at[count][2];

  // 16 positions; `next` bytes lead to the following ones, of which the first fragments are loaded here.
  const auto multiply_pair = [&](auto masked, uint64_t b, uint32_t next, int tail) {
#pragma unroll
    for (int i = 0; i < 2 * count; ++i) {
      const int load_i = i + ahead, m = load_i % count;
      if (load_i >= 2 * count) at[m][0] += next, at[m][1] += next;
      ptx::wgmma_wait<sets - ahead - 1>();
      if (load_i % (2 * count) < count)
        load_fragment<0>(a[load_i % sets], at[m]);
      else
        load_fragment<32>(a[load_i % sets], at[m]);
      if constexpr (masked) cut_fragment(a[i % sets], i / count * 8 + k, tail);
      ptx::wgmma_fence();
      ptx::wgmma<ptx::Operand::tf32, columns>(sum[i % count], a[i % sets],
                                              ptx::moved(b, i / count * 2 * plane_bytes));
      ptx::wgmma_commit();
    }
#pragma unroll
    for (int m = ahead; m < count; ++m) at[m][0] += next, at[m][1] += next;
  };

  for (int step = 0; step < steps; ++step) {
    const int buffer = step % 2;
    ptx::mbarrier_wait(s.full[buffer], step / 2 % 2);
    const Extent extent = s.extents[buffer];
    const int* octet = s.octets + buffer * p.products * 8 + (first * 4 + warp) * 2;
#pragma unroll
    for (int m = 0; m < count; ++m) {
      at[m][0] = lane_at + 4 * octet[m * 8];
      at[m][1] = lane_at + 4 * octet[m * 8 + 1];
    }
#pragma unroll
    for (int m = 0; m < ahead; ++m) load_fragment<0>(a[m], at[m]);
    uint64_t b = ptx::shared_matrix(s.small + buffer * p.tile_words(), plane_bytes, 128);
    for (int r = 0; r < extent.rows; ++r) {
      for (int pair = 0; pair < extent.pairs; ++pair) {
        const bool row_ends = pair == extent.pairs - 1, all_ends = row_ends && r == extent.rows - 1;
        const uint32_t next = all_ends ? 0 : row_ends ? row_bytes - pair * 64 : 64;
        if (row_ends && extent.tail < 16)
          multiply_pair(std::true_type{}, b, next, extent.tail);
        else
          multiply_pair(std::false_type{}, b, next, 16);
        b = ptx::moved(b, (row_ends ? row_planes - pair * 4 : 4) * plane_bytes);
      }
    }
    ptx::wgmma_wait<0>();
    ptx::mbarrier_arrive(s.empty[buffer]);
  }

  store(sum, first, thread, to);
}

/// The same with both factors split in two TF32 numbers, x = high + low: three products, of which low * low
/// is dropped as smaller than f32's own rounding. Fragments are loaded whole and split in registers. The
/// tensor core's sums truncate, so they are added to others, in f32, after 32 positions, and the small
/// products go first; the products of 64 rows are made one after the other.
template <int columns, int count>
__device__ __forceinline__ void consume_split(const WeightGradPlan& p, const Shared& s, int first, int steps,
                                              float* to) {
  const int thread = threadIdx.x % group_threads, lane = thread % 32, warp = thread / 32;
  const int row = lane / 4, k = lane % 4;
  const uint32_t lane_at = ptx::shared_address_of(s.big) + 4 * (row * p.channel_pitch + k);
  const uint32_t plane_bytes = 4 * p.plane_words, row_bytes = 4 * p.axis[2].extent;
  const uint32_t low_bytes = 4 * p.tile_words();
  const int row_planes = p.axis[2].tile / 4;
  constexpr int pairs_in_part = 2;

  float sum[count][columns / 2], part[columns / 2];
  clear(sum);
  uint32_t whole[2][4], high[2][4], low[2][4];
  uint32_t at[2] = {};

  // While the tensor core is at it, the next fragments come, and the other warpgroup splits its own.
  const auto multiply_pair = [&](auto masked, uint64_t b, uint32_t next, int tail, bool more) {
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      if constexpr (masked) cut_fragment(whole[i], i * 8 + k, tail);
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        high[i][j] = tf32_high_of_finite(whole[i][j]);
        low[i][j] = __float_as_uint(__uint_as_float(whole[i][j]) - __uint_as_float(high[i][j]));
      }
    }
    at[0] += next, at[1] += next;
    ptx::wgmma_fence();
    const uint64_t b_next = ptx::moved(b, 2 * plane_bytes);
    ptx::wgmma<ptx::Operand::tf32, columns>(part, low[0], b, more);
    ptx::wgmma<ptx::Operand::tf32, columns>(part, low[1], b_next);
    ptx::wgmma<ptx::Operand::tf32, columns>(part, high[0], ptx::moved(b, low_bytes));
    ptx::wgmma<ptx::Operand::tf32, columns>(part, high[1], ptx::moved(b_next, low_bytes));
    ptx::wgmma<ptx::Operand::tf32, columns>(part, high[0], b);
    ptx::wgmma<ptx::Operand::tf32, columns>(part, high[1], b_next);
    ptx::wgmma_commit();
    load_fragment<0>(whole[0], at);
    load_fragment<32>(whole[1], at);
    ptx::wgmma_wait<0>();
  };

  for (int step = 0; step < steps; ++step) {
    const int buffer = step % 2;
    ptx::mbarrier_wait(s.full[buffer], step / 2 % 2);
    const Extent extent = s.extents[buffer];
    const int* octet = s.octets + buffer * p.products * 8 + (first * 4 + warp) * 2;
#pragma unroll
    for (int m = 0; m < count; ++m) {
      at[0] = lane_at + 4 * octet[m * 8];
      at[1] = lane_at + 4 * octet[m * 8 + 1];
      load_fragment<0>(whole[0], at);
      load_fragment<32>(whole[1], at);
      uint64_t b = ptx::shared_matrix(s.small + buffer * 2 * p.tile_words(), plane_bytes, 128);
      int pair = 0;  // in its row
#pragma unroll 1
      for (int left = extent.rows * extent.pairs; left > 0; left -= pairs_in_part) {
#pragma unroll 1
        for (int i = 0; i < min(left, pairs_in_part); ++i) {
          const bool row_ends = pair == extent.pairs - 1, all_ends = i == left - 1;
          const uint32_t next = all_ends ? 0 : row_ends ? row_bytes - pair * 64 : 64;
          if (row_ends && extent.tail < 16)
            multiply_pair(std::true_type{}, b, next, extent.tail, i > 0);
          else
            multiply_pair(std::false_type{}, b, next, 16, i > 0);
          b = ptx::moved(b, (row_ends ? row_planes - pair * 4 : 4) * plane_bytes);
          pair = row_ends ? 0 : pair + 1;
        }
#pragma unroll
        for (int i = 0; i < columns / 2; ++i) sum[m][i] += part[i];
      }
    }
    ptx::mbarrier_arrive(s.empty[buffer]);
  }

  store(sum, first, thread, to);
}

#endif

}  // namespace vox::cuda
