#pragma once

// The weights of rolling_wgmma: packed by a kernel of their own, and brought by one thread.
//
// Of a tap (h, w) they lie as [granule][column][16 bytes], columns being (slot) x (channel). Which tap along
// d a slot has changes from plane to plane, with period taps_d: there is a copy for each such `turn`.

#include <voxgrad/cuda/conv3d/implicit_gemm_wgmma_weights.cuh>
#include <voxgrad/cuda/conv3d/rolling_wgmma_work.cuh>

namespace vox::cuda::rolling {

/// [group][block of channels][turn][slab][tap (h, w)][granule][slot][channel][channel of the granule], zeros
/// for channels that do not exist.
template <class Tile>
__global__ void __launch_bounds__(256)
    pack_kernel(const typename Tile::Storage* weight, typename Tile::Element* packed,
                const __grid_constant__ FlatProduct p, bool transposed, int kernel_h, int kernel_w,
                int64_t kernel_taps, int64_t numel) {
  for (int64_t i = int64_t{blockIdx.x} * blockDim.x + threadIdx.x; i < numel;
       i += int64_t{gridDim.x} * blockDim.x) {
    int64_t rest = i;
    const auto next = [&](int extent) {
      const auto index = static_cast<int>(rest % extent);
      rest /= extent;
      return index;
    };
    const int in_granule = next(Tile::granule), out_in_block = next(Tile::channels);
    const int slot = next(Tile::taps_d), granule = next(2);
    const int tw = next(p.w.taps), th = next(p.h.taps);
    const int in = next(p.slabs) * Tile::slab + granule * Tile::granule + in_granule;
    const int td = (next(Tile::taps_d) - slot + Tile::taps_d) % Tile::taps_d;
    const int d = p.d.first_tap + td * p.d.tap_pace;
    const int h = p.h.first_tap + th * p.h.tap_pace, w = p.w.first_tap + tw * p.w.tap_pace;
    const int out = next(p.channel_blocks) * Tile::channels + out_in_block;
    const int64_t group = rest;
    float value = 0;
    if (in < p.in_per_group && out < p.out_per_group) {
      const int64_t row = weight_row(p, transposed, group, in, out);
      value = static_cast<float>(weight[row * kernel_taps + (int64_t{d} * kernel_h + h) * kernel_w + w]);
    }
    packed[i] = Tile::Operand::part(value, 0);
  }
}

template <class Tile>
int64_t packed_numel(const FlatProduct& p) {
  return int64_t{p.groups} * p.channel_blocks * Tile::taps_d * p.slabs * p.h.taps * p.w.taps *
         Tile::tap_bytes / static_cast<int64_t>(sizeof(typename Tile::Element));
}

/// One thread: all chunks of weights, in the order of their use.
template <class Tile>
__device__ void bring_weights(const typename Tile::Element* packed, unsigned char* stages,
                              flat::Barriers& barriers, const RollingPlan& plan) {
  const FlatProduct& p = plan.product;
  flat::Ring ring{p.stages};
  const int64_t all_taps = int64_t{p.h.taps} * p.w.taps;
  for_each_march(plan, [&](const March& m) {
    const int64_t first_turn = (int64_t{m.group} * p.channel_blocks + m.channel_block) * Tile::taps_d;
    for (int v = m.first_plane; v < m.end_plane; ++v) {
      const auto* const turn = reinterpret_cast<const unsigned char*>(packed) +
                               (first_turn + v % Tile::taps_d) * p.slabs * all_taps * Tile::tap_bytes;
      flat::for_each_pass(p, [&](int slab, int, int row_group) {
        const int64_t first_tap = slab * all_taps + row_group * p.rows * p.w.taps;
        flat::bring_taps<Tile>(turn + first_tap * Tile::tap_bytes, flat::taps_in(row_group, p), stages, ring,
                               barriers, p);
      });
    }
  });
}

}  // namespace vox::cuda::rolling
