#pragma once

#include <cstdint>

#include <voxgrad/cuda/conv3d/weight_grad/plan.h>
#include <voxgrad/cuda/ptx/barriers.cuh>

// What a block of weight_grad owns (kernel.cuh): its threads, its slice of dweight, its shared memory.

namespace vox::cuda::conv::weight_grad {

constexpr int group_threads = 128;           // of a warpgroup
constexpr int consumers = 2, producers = 2;  // warpgroups
constexpr int producing_threads = producers * group_threads;
constexpr int block_threads = (consumers + producers) * group_threads;

/// The dtype of both tensors.
enum class Storage { f32, bf16, f16 };

/// Which part of dweight a block computes.
struct Slice {
  int group, first_column, first_tap, first_octet;
};

__device__ __forceinline__ Slice slice_of(const Plan& p, int64_t slice) {
  const int octet_block = static_cast<int>(slice % p.octet_blocks);
  const int64_t by_taps = slice / p.octet_blocks, by_columns = by_taps / p.tap_blocks;
  return {static_cast<int>(by_columns / p.column_blocks),
          static_cast<int>(by_columns % p.column_blocks) * p.columns,
          static_cast<int>(by_taps % p.tap_blocks) * p.slice_taps, octet_block * p.octets};
}

#ifdef __CUDA_ARCH_FEAT_SM90_ALL

/// An element to bring: where it is in its plane (negative: outside, so it is zero) and where it goes
/// (negative: nowhere).
struct Entry {
  int from, to;
};

/// What consumers must know of one depth of a tile: its coarse rows, the pairs of 8 positions in a row, and
/// how many positions of the last pair exist.
struct Extent {
  int rows, pairs, tail;
};

/// The two buffers of small, and of the other data of one depth, are used in turn.
struct Shared {
  uint32_t* big;      // [slot][channel][row][column]
  uint32_t* small;    // [buffer][part of a split][position / 4][column, and one more][4 positions]
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
