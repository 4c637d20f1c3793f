#pragma once

#include <cstdint>
#include <type_traits>

#include <voxgrad/cuda/conv3d/weight_grad/plan.h>
#include <voxgrad/cuda/conv3d/common/operands.cuh>
#include <voxgrad/cuda/ptx/barriers.cuh>

// What a block of weight_grad owns (kernel.cuh): its threads and its shared memory.

namespace vox::cuda::conv::weight_grad {

constexpr int group_threads = 128;           // of a warpgroup
constexpr int consumers = 2, producers = 2;  // warpgroups
constexpr int producing_threads = producers * group_threads;
constexpr int block_threads = (consumers + producers) * group_threads;

/// Of the policies Tf32, Tf32x3, Bf16 and F16.
template <class Operand>
constexpr Factors factors_of = std::is_same_v<Operand, Tf32>     ? Factors::tf32
                               : std::is_same_v<Operand, Tf32x3> ? Factors::tf32x3
                                                                 : Factors::of_16_bits;

/// What the tensors hold, f32 or the bits of a bf16 or f16, and the same in shared memory.
template <class Operand>
using Stored = std::conditional_t<factors_of<Operand> == Factors::of_16_bits, uint16_t, float>;

#ifdef __CUDA_ARCH_FEAT_SM90_ALL

/// What consumers must know of one depth of a tile: its coarse rows, the chunks of 16 positions in a row, and
/// how many positions of the last chunk exist.
struct Extent {
  int rows, chunks, tail;
};

/// The two buffers of small, and of the other data of one depth, are used in turn.
struct Shared {
  uint32_t* big;      // [slot][channel][row][column]
  uint32_t* small;    // [buffer][part of a split][granule of positions][column, and one more][4 words]
  Entry* big_from;    // for each element of a slot in one channel
  Entry* small_from;  // for each element of a tile in one channel
  int* octets;        // [buffer][octet of rows]: where it begins, in words
  Extent* extents;    // [buffer]
  ptx::Mbarrier *full, *empty;
};

__device__ __forceinline__ Shared shared_memory(const Plan& p, uint32_t* at) {
  __shared__ Extent extents[2];
  __shared__ ptx::Mbarrier full[2], empty[2];
  Shared s;
  s.big = at, at += p.axis[0].extent * p.slot_words;
  s.small = at, at += 2 * p.parts * p.tile_words();
  s.big_from = reinterpret_cast<Entry*>(at), at += 2 * p.big_entries;
  s.small_from = reinterpret_cast<Entry*>(at), at += 2 * p.small_entries;
  s.octets = reinterpret_cast<int*>(at);
  s.extents = extents, s.full = full, s.empty = empty;
  return s;
}

#endif

}  // namespace vox::cuda::conv::weight_grad
