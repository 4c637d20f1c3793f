#pragma once

// The input of implicit_gemm_wgmma and rolling_wgmma where the tensor has the operands' own 16 bits.

#include <type_traits>
#include <voxgrad/cuda/conv3d/implicit_gemm_wgmma_work.cuh>

namespace vox::cuda::flat {

/// What LaneWindow is (implicit_gemm_wgmma_input.cuh), with nothing to convert: a lane stands for every 32nd
/// run of `run` positions, 1 or 2 neighbours. Two of them are one aligned word of the input, or both outside;
/// that wants p.in_words (flat_product.h). The granules of its positions are assembled from the halves of 8
/// loads.
template <class Tile, int run>
class HalfWindow {
 public:
  using Storage = typename Tile::Storage;
  static_assert(sizeof(Storage) == 2 && sizeof(typename Tile::Element) == 2 && (run == 1 || run == 2));

  __device__ __forceinline__ void locate(int first_position, int first_image, int lane,
                                         const FlatProduct& p) {
    const auto image_numel = static_cast<uint32_t>(int64_t{p.groups} * p.in_per_group * p.in_channel);
    before_ = run == 2 ? (first_position + p.w.base) & 1 : 0;
#pragma unroll
    for (int b = 0; b < batches; ++b) {
#pragma unroll
      for (int u = 0; u < batch; ++u) {
        const int position = (b * batch + u) * 32 * run + lane * run - before_;
        const Place at = place_of(max(first_position + position, 0), p);
        const int h = at.h + p.h.base, w = at.w + p.w.base;
        const bool inside = first_position + position >= 0 && position < p.window && at.image < p.batch &&
                            static_cast<unsigned>(h) < static_cast<unsigned>(p.h.in_cells) &&
                            static_cast<unsigned>(w) < static_cast<unsigned>(p.w.in_cells);
        const uint32_t numel = (at.image - first_image) * image_numel + h * p.w.in_cells + w;
        from_[b][u] = inside ? numel * 2 : outside;
      }
    }
  }

  /// Loads stay as they come until all of a batch are under way: a conversion between two loads would wait
  /// for the first.
  template <class Wait>
  __device__ __forceinline__ bool bring(const Storage* source, int left, uint4* plane, int lane,
                                        const FlatProduct& p, Wait wait) const {
    // Where pairs lie 4 lanes apart, their granules lie in the same banks: half of the lanes store theirs the
    // other way round.
    constexpr uint32_t lower_halves = 0x5410, upper_halves = 0x7632;
    const int turned = run == 2 ? lane >> 2 & 1 : 0;
    const int first = lane * run - before_ + turned, second = lane * run - before_ + 1 - turned;
    const uint32_t first_halves = turned ? upper_halves : lower_halves,
                   second_halves = turned ? lower_halves : upper_halves;
    bool waited = false;
#pragma unroll 1
    for (int k = 0; k < Tile::slab; k += granule, left -= granule) {
#pragma unroll
      for (int b = 0; b < batches; ++b) {
        if (b * batch * 32 * run >= p.window + before_) break;
        uint32_t bits[batch][granule];
        const auto* channel = reinterpret_cast<const unsigned char*>(source);
#pragma unroll
        for (int c = 0; c < granule; ++c) {
#pragma unroll
          for (int u = 0; u < batch; ++u) {
            const bool inside = from_[b][u] != outside && c < left;
            bits[u][c] = inside ? __ldg(reinterpret_cast<const Run*>(channel + from_[b][u])) : 0;
          }
          channel += static_cast<uint32_t>(p.in_channel) * 2;
        }
        if (!waited) wait();
        waited = true;
#pragma unroll
        for (int u = 0; u < batch; ++u) {
          const int runs_before = (b * batch + u) * 32 * run;
          const auto store = [&](int position, uint32_t halves) {
            if (p.window - position > runs_before && (runs_before > 0 || position >= 0))
              plane[position + runs_before] = make_uint4(
                  __byte_perm(bits[u][0], bits[u][1], halves), __byte_perm(bits[u][2], bits[u][3], halves),
                  __byte_perm(bits[u][4], bits[u][5], halves), __byte_perm(bits[u][6], bits[u][7], halves));
          };
          store(first, first_halves);
          if constexpr (run == 2) store(second, second_halves);
        }
      }
      source += granule * p.in_channel;
      plane += p.window;
    }
    return true;
  }

 private:
  using Run = std::conditional_t<run == 2, uint32_t, uint16_t>;
  static constexpr int granule = Tile::granule;
  static constexpr int batch = 2, lane_runs = (Tile::host.most_window + run - 1) / (32 * run) + 1,
                       batches = (lane_runs + batch - 1) / batch;
  static constexpr uint32_t outside = 0xffffffff;

  uint32_t from_[batches][batch];  // where the runs lie, in bytes
  int before_;                     // 1 if the first pair begins before the window, else 0
};

}  // namespace vox::cuda::flat
