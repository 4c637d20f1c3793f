#pragma once

// Rings of slots in shared memory: producer warps fill them, consumer warps multiply their contents and empty
// them. Barriers count lanes, not warps: every lane arrives by itself, so a warp needs neither a __syncwarp
// nor a branch for one of its lanes.

#include <voxgrad/cuda/conv3d/model/machine.h>
#include <voxgrad/cuda/ptx/barriers.cuh>

namespace vox::cuda::conv {

constexpr int most_slots = 24;
constexpr uint32_t lanes = 32;  // of a warp, all of which arrive

/// Barriers of the slots of a ring, in shared memory.
struct Barriers {
  ptx::Mbarrier full[most_slots], empty[most_slots];

  /// One thread calls it, then mbarrier_init_done(). A slot is full, or empty, after so many arrivals.
  __device__ __forceinline__ void init(int slots, uint32_t to_fill, uint32_t to_empty) {
    for (int s = 0; s < slots; ++s) {
      ptx::mbarrier_init(full[s], to_fill);
      ptx::mbarrier_init(empty[s], to_empty);
    }
  }
};
static_assert(2 * sizeof(Barriers) <= barrier_bytes);

/// The next slot of one side of a ring.
struct Ring {
  int slots;
  int slot = 0;
  uint32_t parity = 0;

  __device__ __forceinline__ void advance() {
    if (++slot == slots) slot = 0, parity ^= 1;
  }
  __device__ __forceinline__ void wait_full(Barriers& b) const { ptx::mbarrier_wait(b.full[slot], parity); }
  __device__ __forceinline__ void wait_empty(Barriers& b) const {
    ptx::mbarrier_wait(b.empty[slot], parity ^ 1);
  }
};

/// A slot that a warp releases as soon as the products that still read it are done.
struct Released {
  Barriers& barriers;
  int slot = -1;  // none

  __device__ __forceinline__ void later(int s) { slot = s; }
  __device__ __forceinline__ void now() {
    if (slot >= 0) ptx::mbarrier_arrive(barriers.empty[slot]);
    slot = -1;
  }
};

}  // namespace vox::cuda::conv
