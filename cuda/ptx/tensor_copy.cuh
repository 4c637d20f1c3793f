#pragma once

#include <cuda.h>

#include <cstdint>

#include <voxgrad/cuda/ptx/barriers.cuh>
#include <voxgrad/cuda/ptx/shared.cuh>
#include <voxgrad/cuda/ptx/wgmma.cuh>

// Boxes of a tensor by TMA, as wgmma reads them. sm_90 and later. PTX ISA, "cp.async.bulk.tensor"
// and "Swizzling modes".
//
// A box lies in shared memory as rows of 128 bytes, 8 granules of 16 bytes each. Granule u of row r is stored
// in place u ^ r % 8, so that 8 rows of one granule are in different banks. The matrix begins at a multiple
// of 1024 bytes.

namespace vox::cuda::ptx {

/// Where granule u of row r lies, in bytes.
__host__ __device__ constexpr uint32_t swizzled(uint32_t row, uint32_t granule) {
  return row * 128 + ((granule ^ row % 8) << 4);
}

/// Fetches the map itself, which the first copy would wait for.
__device__ __forceinline__ void prefetch(const CUtensorMap& map) {
  asm volatile("prefetch.tensormap [%0];" ::"l"(&map) : "memory");
}

/// Where a box begins in the tensor. Elements outside the tensor arrive as zeros.
struct BoxAt {
  int channel, w, h, d, n;
};

/// Starts to copy a box. The barrier counts all bytes of the box. One thread calls it.
__device__ __forceinline__ void tensor_copy(void* to_shared, const CUtensorMap& map, const BoxAt& at,
                                            Mbarrier& barrier) {
  asm volatile(
      "cp.async.bulk.tensor.5d.shared::cluster.global.tile.mbarrier::complete_tx::bytes "
      "[%0], [%1, {%2, %3, %4, %5, %6}], [%7];" ::"r"(shared_address_of(to_shared)),
      "l"(&map), "r"(at.channel), "r"(at.w), "r"(at.h), "r"(at.d), "r"(at.n), "r"(shared_address_of(&barrier))
      : "memory");
}

/// Describes to wgmma a matrix of such rows that is contiguous in k: a row is an m (or n), and 128 bytes of
/// k. The instruction reads 32 bytes of k; moved(matrix, 32) are the next ones. Groups of 8 rows are `apart`
/// bytes from each other. The first group may begin at any row of a box.
__device__ __forceinline__ uint64_t swizzled_matrix(const void* start, uint32_t apart = 1024) {
  return shared_matrix(start, 16, apart) | uint64_t{1} << 62;
}
/// The same for a matrix of 16-bit numbers that is contiguous in m (or n): a row is a k, and 64 numbers of m.
/// The next 64 are `m_bytes` further on. The instruction reads 16 rows; moved(matrix, 2048) are the next
/// ones.
__device__ __forceinline__ uint64_t swizzled_mn_major_matrix(const void* start, uint32_t m_bytes) {
  return shared_matrix(start, m_bytes, 1024) | uint64_t{1} << 62;
}

}  // namespace vox::cuda::ptx
