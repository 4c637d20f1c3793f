#pragma once

// The input of implicit_gemm_wgmma: planes of a window, loaded, rounded and stored by warps.

#include <voxgrad/cuda/conv3d/implicit_gemm_wgmma_load16.cuh>
#include <voxgrad/cuda/conv3d/implicit_gemm_wgmma_work.cuh>
#include <voxgrad/cuda/conv3d/ring.cuh>

namespace vox::cuda::flat {

/// The positions of a window that a lane stands for, every 32nd, and the bringing of them. Some of them at a
/// time: all of their loads, then all of their stores. (Loads of later positions between these stores do not
/// help: a warp has six scoreboards, and a store would wait for the later loads as well.)
template <class Tile>
class LaneWindow {
 public:
  using Storage = typename Tile::Storage;

  /// For the window that starts at a position of the flat plane; cells are counted from `first_image`'s on.
  __device__ __forceinline__ void locate(int first_position, int first_image, int lane,
                                         const FlatProduct& p) {
    first_position_ = first_position, first_image_ = first_image;
    if constexpr (!Tile::scaled) {
#pragma unroll
      for (int b = 0; b < batches; ++b) {
#pragma unroll
        for (int u = 0; u < batch; ++u) from_[b][u] = place((b * batch + u) * 32 + lane, p);
      }
    }
  }

  /// One slab of channels of one plane: from `source`, the first channel of the first image at the plane's
  /// depth, to `plane` in shared memory; channels from `left` on are zeros. `wait` is called once before
  /// the first store. False if a value cannot be split.
  template <class Wait>
  __device__ __forceinline__ bool bring(const Storage* source, int left, uint4* plane, int lane,
                                        const FlatProduct& p, Wait wait) const {
    bool waited = false, all_split = true;
#pragma unroll 1
    for (int k = 0; k < Tile::slab; k += granule, left -= granule) {
#pragma unroll
      for (int b = 0; b < batches; ++b) {
        if (b * batch * 32 >= p.window) break;
        float value[batch][granule];
        load(value, from_[b], source, left, p);
        if (!waited) wait();
        waited = true;
#pragma unroll
        for (int u = 0; u < batch; ++u) {
          const int position = (b * batch + u) * 32 + lane;
          if (position >= p.window) continue;
#pragma unroll
          for (int part = 0; part < Tile::parts; ++part) {
            alignas(16) Element bits[granule];
#pragma unroll
            for (int c = 0; c < granule; ++c) bits[c] = Tile::Operand::part(value[u][c], part);
            plane[part * Tile::slab_granules * p.window + position] = *reinterpret_cast<const uint4*>(bits);
          }
          if constexpr (Tile::split) all_split &= Tile::Operand::holds(value[u]);
        }
      }
      source += granule * p.in_channel;
      plane += p.window;
    }
    return all_split;
  }

  /// The same where operands are scaled: all by one power of two, `scale` if that fits; else it becomes
  /// another. The values lie in the plane as they came until the largest is known.
  template <class Wait>
  __device__ __forceinline__ bool bring_scaled(const Storage* source, int left, uint4* plane, int lane,
                                               const FlatProduct& p, Wait wait, float& scale) const {
    static_assert(Tile::slab == granule && Tile::parts * sizeof(Element) == sizeof(float));
    float most = 0, least = INFINITY;  // of what is largest at a position and not 0
#pragma unroll 1
    for (int first = lane; first < p.window; first += batch * 32) {
      uint32_t from[batch];
#pragma unroll
      for (int u = 0; u < batch; ++u) from[u] = place(first + u * 32, p);
      float value[batch][granule];
      load(value, from, source, left, p);
      if (first == lane) wait();
#pragma unroll
      for (int u = 0; u < batch; ++u) {
        float here = 0;
#pragma unroll
        for (int c = 0; c < granule; ++c) here = larger_size(here, value[u][c]);
        most = larger_size(most, here);
        if (here != 0) least = fminf(least, here);
        const int position = first + u * 32;
        if (position >= p.window) continue;
#pragma unroll
        for (int part = 0; part < 2; ++part) {
          const float* const four = value[u] + part * 4;
          reinterpret_cast<float4*>(plane)[part * p.window + position] = {four[0], four[1], four[2], four[3]};
        }
      }
    }
    most = __uint_as_float(__reduce_max_sync(0xffffffff, __float_as_uint(most)));  // as integers, NaN is most
    scale = Tile::Operand::scale_for(most, scale);
#pragma unroll 2
    for (int position = lane; position < p.window; position += 32) {
      float value[granule];
#pragma unroll
      for (int part = 0; part < 2; ++part) {
        const float4 four = reinterpret_cast<const float4*>(plane)[part * p.window + position];
        value[part * 4] = four.x * scale, value[part * 4 + 1] = four.y * scale;
        value[part * 4 + 2] = four.z * scale, value[part * 4 + 3] = four.w * scale;
      }
#pragma unroll
      for (int part = 0; part < 2; ++part) {
        alignas(16) Element bits[granule];
#pragma unroll
        for (int c = 0; c < granule; ++c) bits[c] = Tile::Operand::part(value[c], part);
        plane[part * p.window + position] = *reinterpret_cast<const uint4*>(bits);
      }
    }
    return Tile::Operand::range_holds(most) && least * scale >= Tile::Operand::full;
  }

 private:
  using Element = typename Tile::Element;
  static constexpr int granule = Tile::granule;
  static constexpr int batch = Tile::loads / granule,
                       batches = (Tile::host.most_window / 32 + batch - 1) / batch;
  static constexpr uint32_t outside = 0xffffffff;

  /// Where a position of the window lies.
  __device__ __forceinline__ uint32_t place(int position, const FlatProduct& p) const {
    const auto image_numel = static_cast<uint32_t>(int64_t{p.groups} * p.in_per_group * p.in_channel);
    const Place at = place_of(first_position_ + position, p);
    const int h = at.h + p.h.base, w = at.w + p.w.base;
    const bool inside = position < p.window && at.image < p.batch &&
                        static_cast<unsigned>(h) < static_cast<unsigned>(p.h.in_cells) &&
                        static_cast<unsigned>(w) < static_cast<unsigned>(p.w.in_cells);
    return inside ? (at.image - first_image_) * image_numel + h * p.w.in_cells + w : outside;
  }

  /// The values of a granule at some positions.
  __device__ __forceinline__ void load(float (&value)[batch][granule], const uint32_t (&from)[batch],
                                       const Storage* source, int left, const FlatProduct& p) const {
#pragma unroll
    for (int u = 0; u < batch; ++u) {
      const Storage* at = source + from[u];
#pragma unroll
      for (int c = 0; c < granule; ++c) {
        value[u][c] = from[u] != outside && c < left ? static_cast<float>(*at) : 0.0f;
        at += p.in_channel;
      }
    }
  }

  int first_position_, first_image_;
  uint32_t from_[batches][batch];  // where the positions lie; too large a list where operands are scaled
};

/// f.template operator()<Window>(), with what brings a window of the tile's numbers.
template <class Tile, class F>
__device__ __forceinline__ void with_window(const FlatProduct& p, F f) {
  if constexpr (!is_16_bit_v<typename Tile::Storage>)
    f.template operator()<LaneWindow<Tile>>();
  else if (p.in_words)
    f.template operator()<HalfWindow<Tile, 2>>();
  else
    f.template operator()<HalfWindow<Tile, 1>>();
}

/// A warp's share of all planes, in turn, so that there are as many planes under way as warps; no more warps
/// than slots, since two must not wait for the same one.
/// `Window` says what a lane brings.
template <class Tile, class Window>
__device__ void bring_input(const typename Tile::Storage* input, unsigned char* planes_memory,
                            Barriers& barriers, float* unscale, int warp, int lane, const FlatProduct& p,
                            int64_t* not_split) {
  bool all_split = true;
  Window window;
  float scale = 1;  // stays as it is while it fits, so that planes have the same
  Ring ring{p.planes};
  const int loaders = min(loader_warps, p.planes);
  if (warp >= loaders) return;
  int turn = 0;  // whose the next plane is

  const int64_t all_jobs = p.jobs();
  for (int64_t i = blockIdx.x; i < all_jobs; i += gridDim.x) {
    const Job job = job_at<Tile>(i, p);
    const int first_position = job.tile * Tile::positions, first_image = place_of(first_position, p).image;
    const typename Tile::Storage* const source =
        input + (int64_t{first_image} * p.groups + job.group) * p.in_per_group * p.in_channel;
    int located = -1;  // the group of rows that `window` is for
    for_each_pass(p, [&](int slab, int depth_group, int row_group) {
      const Planes planes = planes_of<Tile>(job, depth_group, p);
      for (int q = planes.first; q < planes.end; ++q, ring.advance()) {
        const bool mine = turn == warp;
        turn = turn + 1 == loaders ? 0 : turn + 1;
        if (!mine) continue;
        if (located != row_group)
          window.locate(first_position + row_group * p.rows * p.row_shift, first_image, lane, p);
        located = row_group;
        const int64_t cell = int64_t{planes.cell + q * p.d.tap_step} * p.h.in_cells * p.w.in_cells;
        const int channel = slab * Tile::slab;
        const typename Tile::Storage* const from = source + channel * p.in_channel + cell;
        const int left = p.in_per_group - channel;
        uint4* const to =
            reinterpret_cast<uint4*>(planes_memory + ring.slot * p.window * 16 * Tile::plane_granules);
        const auto wait = [&] { ring.wait_empty(barriers); };
        if constexpr (Tile::scaled) {
          all_split &= window.bring_scaled(from, left, to, lane, p, wait, scale);
          if (lane == 0) unscale[ring.slot] = Tile::Operand::inverse(scale);
        } else {
          all_split &= window.bring(from, left, to, lane, p, wait);
        }
        ptx::fence_proxy_async();
        ptx::mbarrier_arrive(barriers.full[ring.slot]);
      }
    });
  }
  if (!all_split) *not_split = 1;
}

}  // namespace vox::cuda::flat
