#pragma once

#include <cstdint>

#include <voxgrad/cuda/map.cuh>

// for_each_packet(): a map over up to 72 tensors of each of several lists, in one launch. The addresses
// travel as kernel parameters, of which every GPU takes 4 KB.

namespace vox::cuda {

/// Tensors of one size, one of each list.
struct ListEntry {
  static constexpr int most_tensors = 5;
  void* at[most_tensors] = {};
  int64_t numel = 0;
};

/// Part of the lists, and which blocks work on which entry. `whole_packets` says that all tensors of an entry
/// begin at multiples of 16 bytes.
struct ListBatch {
  static constexpr int most = 72, block = 256;
  int count = 0;
  ListEntry entries[most];
  int first_block[most + 1] = {};
  bool whole_packets[most] = {};

  /// The entry that this thread block works on: the last one that begins at or before it.
  __device__ int entry_of(int b) const {
    int low = 0, high = count;
    while (high - low > 1) {
      const int middle = (low + high) / 2;
      (first_block[middle] <= b ? low : high) = middle;
    }
    return low;
  }
};
static_assert(sizeof(ListBatch) < 4000);

/// f.template run<n>(entry, k, i) computes elements i to i + n - 1 of entry k of the batch.
template <int size, class F>
__global__ void __launch_bounds__(ListBatch::block) for_each_packet_kernel(ListBatch batch, F f) {
  constexpr int64_t chunk = int64_t{ListBatch::block} * size * 4;
  const int b = static_cast<int>(blockIdx.x), k = batch.entry_of(b), thread = static_cast<int>(threadIdx.x);
  const ListEntry& entry = batch.entries[k];
  const int64_t begin = (b - batch.first_block[k]) * chunk;
  const int64_t end = std::min(begin + chunk, entry.numel);
  const int64_t packets_end = batch.whole_packets[k] ? begin + (end - begin) / size * size : begin;
  for (int64_t i = begin + thread * size; i < packets_end; i += ListBatch::block * size)
    f.template run<size>(entry, k, i);
  for (int64_t i = packets_end + thread; i < end; i += ListBatch::block) f.template run<1>(entry, k, i);
}

/// Calls f for all packets of `size` elements of a batch, of which `count` and `entries` are set.
template <int size, class F>
void for_each_packet(const Launch& launch, ListBatch& batch, const F& f) {
  constexpr int64_t chunk = int64_t{ListBatch::block} * size * 4;
  for (int k = 0; k < batch.count; ++k) {
    const ListEntry& entry = batch.entries[k];
    batch.first_block[k + 1] =
        batch.first_block[k] + static_cast<int>(entry.numel / chunk + (entry.numel % chunk != 0));
    batch.whole_packets[k] = std::all_of(std::begin(entry.at), std::end(entry.at), [](const void* p) {
      return reinterpret_cast<uintptr_t>(p) % 16 == 0;
    });
  }
  if (const int blocks = batch.first_block[batch.count])
    for_each_packet_kernel<size><<<blocks, ListBatch::block, 0, launch.stream()>>>(batch, f);
  launch.check();
}

}  // namespace vox::cuda
