#pragma once

// The weights of implicit_gemm_wgmma: packed by a kernel of their own, and brought by one thread.
//
// Of a tap they lie as [granule][column][16 bytes], columns being (tap along d, descending) x (channel).

#include <voxgrad/cuda/conv3d/implicit_gemm_wgmma_work.cuh>
#include <voxgrad/cuda/conv3d/ring.cuh>
#include <voxgrad/cuda/conv3d/weight_row.cuh>

namespace vox::cuda::flat {

/// [group][block of channels][slab][group of taps along d][tap (h, w)][granule][column][channel of the
/// granule], zeros for channels that do not exist.
template <class Tile>
__global__ void __launch_bounds__(256)
    pack_kernel(const typename Tile::Storage* weight, typename Tile::Element* packed,
                const __grid_constant__ FlatProduct p, bool transposed, int kernel_h, int kernel_w,
                int64_t kernel_taps, int64_t numel, int64_t* not_split, const int64_t* wanted) {
  if (wanted && *wanted == 0) return;
  for (int64_t i = int64_t{blockIdx.x} * blockDim.x + threadIdx.x; i < numel;
       i += int64_t{gridDim.x} * blockDim.x) {
    int64_t rest = i;
    const auto next = [&](int extent) {
      const auto index = static_cast<int>(rest % extent);
      rest /= extent;
      return index;
    };
    const int in_granule = next(Tile::granule), out_in_block = next(Tile::channels);
    const int td = Tile::taps_d - 1 - next(Tile::taps_d), granule = next(2), part = next(Tile::parts);
    const int tw = next(p.w.taps), th = next(p.h.taps);
    const int d = p.d.first_tap + (next(p.depth_groups) * Tile::taps_d + td) * p.d.tap_pace;
    const int h = p.h.first_tap + th * p.h.tap_pace, w = p.w.first_tap + tw * p.w.tap_pace;
    const int in = next(p.slabs) * Tile::slab + granule * Tile::granule + in_granule;
    const int out = next(p.channel_blocks) * Tile::channels + out_in_block;
    const int64_t group = rest;
    float value = 0;
    if (in < p.in_per_group && out < p.out_per_group) {
      const int64_t row = weight_row(p, transposed, group, in, out);
      value = static_cast<float>(weight[row * kernel_taps + (int64_t{d} * kernel_h + h) * kernel_w + w]);
    }
    packed[i] = Tile::Operand::part(value, part);
    if constexpr (Tile::split)
      if (!Tile::Operand::holds({value})) *not_split = 1;
  }
}

template <class Tile>
int64_t packed_numel(const FlatProduct& p) {
  return int64_t{p.groups} * p.channel_blocks * p.slabs * p.depth_groups * p.h.taps * p.w.taps *
         Tile::tap_bytes / static_cast<int64_t>(sizeof(typename Tile::Element));
}

/// The taps of a window that lie from `packed` on, in chunks.
template <class Tile>
__device__ __forceinline__ void bring_taps(const unsigned char* packed, int taps, unsigned char* stages,
                                           Ring& ring, Barriers& barriers, const FlatProduct& p) {
  for (int tap = 0; tap < taps; tap += p.chunk) {
    const uint32_t bytes = min(p.chunk, taps - tap) * Tile::tap_bytes;
    ring.wait_empty(barriers);
    ptx::mbarrier_arrive_expecting(barriers.full[ring.slot], bytes);
    ptx::bulk_copy(stages + ring.slot * p.chunk * Tile::tap_bytes, packed + int64_t{tap} * Tile::tap_bytes,
                   bytes, barriers.full[ring.slot]);
    ring.advance();
  }
}

/// One thread: all chunks of weights, in the order of their use.
template <class Tile>
__device__ void bring_weights(const typename Tile::Element* packed, unsigned char* stages, Barriers& barriers,
                              const FlatProduct& p) {
  Ring ring{p.stages};
  const int64_t all_jobs = p.jobs();
  for (int64_t i = blockIdx.x; i < all_jobs; i += gridDim.x) {
    const Job job = job_at<Tile>(i, p);
    const auto* const block = reinterpret_cast<const unsigned char*>(packed) +
                              (int64_t{job.group} * p.channel_blocks + job.channel_block) * p.slabs *
                                  p.depth_groups * p.h.taps * p.w.taps * Tile::tap_bytes;
    for_each_pass(p, [&](int slab, int depth_group, int row_group) {
      const int64_t first_tap = (int64_t{slab} * p.depth_groups + depth_group) * p.h.taps * p.w.taps +
                                row_group * p.rows * p.w.taps;
      bring_taps<Tile>(block + first_tap * Tile::tap_bytes, taps_in(row_group, p), stages, ring, barriers, p);
    });
  }
}

}  // namespace vox::cuda::flat
