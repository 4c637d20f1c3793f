#pragma once

// The roles of warps, the order of the sum, and how a window of input, and the weights for it, come to shared
// memory.
//
// A window is what the taps of a tile read of one input plane (Note [The flat plane] in plan.h). In shared
// memory a k-block of its channels lies as [granule][position of the window][16 bytes], a granule being 4
// channels of TF32 or 8 of 16 bits. That is a K-major operand of wgmma without swizzle, and stays one when it
// starts at any other position: every tap is the same window, shifted. Each lane loads certain positions, so
// loads from NCDHW coalesce and the 16-byte stores have no bank conflicts. Values are rounded once.

#include <voxgrad/core/tensor.h>
#include <voxgrad/cuda/conv3d/rolling/plan.h>
#include <voxgrad/cuda/conv3d/common/ring.cuh>
#include <voxgrad/cuda/ptx/copies.cuh>
#include <voxgrad/cuda/ptx/wgmma.cuh>

#include <type_traits>
#include <utility>

namespace vox::cuda::conv::rolling {

constexpr int consumer_warps = 8, loader_warps = 7;
constexpr int block_threads = 32 * (consumer_warps + loader_warps + 1);

// ---- Order ------------------------------------------------------------------------------------------------

template <class F, int... q>
__device__ __forceinline__ void for_each_of(std::integer_sequence<int, q...>, F f) {
  (f(std::integral_constant<int, q>{}), ...);
}

/// f(k_block, group of rows of taps), in order.
template <class F>
__device__ __forceinline__ void for_each_pass(const Product& p, F f) {
  for (int k_block = 0; k_block < p.k_blocks; ++k_block)
    for (int rows = 0; rows < p.row_groups; ++rows) f(k_block, rows);
}

// ---- The input of a window --------------------------------------------------------------------------------

constexpr uint32_t outside = 0xffffffff;

/// The number of the input cell at a position of the window that begins at `first_position`, counted from
/// `first_image` on; `outside` if there is none.
__device__ __forceinline__ uint32_t cell_at(int first_position, int position, int first_image,
                                            const Product& p) {
  const auto image_numel = static_cast<uint32_t>(int64_t{p.groups} * p.in_per_group * p.in_channel);
  const Place at = place_of(max(first_position + position, 0), p);
  const int h = at.h + p.h.base, w = at.w + p.w.base;
  const bool inside = first_position + position >= 0 && position < p.window && at.image < p.batch &&
                      within(h, p.h.in_cells) && within(w, p.w.in_cells);
  return inside ? (at.image - first_image) * image_numel + h * p.w.in_cells + w : outside;
}

/// The positions of a window that a lane loads, every 32nd. It loads some at a time: first all of their
/// loads, then all of their stores. (Loads of later positions between these stores do not help: a warp has
/// six scoreboards, and a store would wait for the later loads as well.)
template <class Tile>
class LaneWindow {
 public:
  using Storage = typename Tile::Storage;

  /// Finds the positions in the window that starts at `first_position`; cells are counted from `first_image`
  /// on.
  __device__ __forceinline__ void locate(int first_position, int first_image, int lane, const Product& p) {
#pragma unroll
    for (int b = 0; b < batches; ++b) {
#pragma unroll
      for (int u = 0; u < batch; ++u)
        from_[b][u] = cell_at(first_position, (b * batch + u) * 32 + lane, first_image, p);
    }
  }

  /// One k-block of one plane: from `source`, the first channel of the first image at the plane's
  /// depth, to `plane` in shared memory; channels from `left` on are zeros. `wait` is called once before
  /// the first store.
  template <class Wait>
  __device__ __forceinline__ void load(const Storage* source, int left, uint4* plane, int lane,
                                       const Product& p, Wait wait) const {
    bool waited = false;
#pragma unroll 1
    for (int k = 0; k < Tile::k_block_channels; k += granule, left -= granule) {
#pragma unroll
      for (int b = 0; b < batches; ++b) {
        if (b * batch * 32 >= p.window) break;
        float value[batch][granule];
        load_granules(value, from_[b], source, left, p);
        if (!waited) wait();
        waited = true;
#pragma unroll
        for (int u = 0; u < batch; ++u) {
          const int position = (b * batch + u) * 32 + lane;
          if (position >= p.window) continue;
          alignas(16) Element bits[granule];
#pragma unroll
          for (int c = 0; c < granule; ++c) bits[c] = Tile::Operand::part(value[u][c]);
          plane[position] = *reinterpret_cast<const uint4*>(bits);
        }
      }
      source += granule * p.in_channel;
      plane += p.window;
    }
  }

 private:
  using Element = typename Tile::Element;
  static constexpr int granule = Tile::granule;
  static constexpr int batch = Tile::loads / granule,
                       batches = (Tile::host.most_window / 32 + batch - 1) / batch;

  /// Loads the values of a granule at some positions.
  __device__ __forceinline__ void load_granules(float (&value)[batch][granule], const uint32_t (&from)[batch],
                                                const Storage* source, int left, const Product& p) const {
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

  uint32_t from_[batches][batch];  // offsets of positions in the input
};

/// The same for 16-bit tensors, whose numbers need no conversion. A lane loads every 32nd run of `run`
/// positions, 1 or 2 neighbours. Two neighbours are one aligned word of the input, or both outside; that
/// needs p.in_words (plan.h). The granules of its positions are assembled from the halves of 8 loads.
template <class Tile, int run>
class HalfWindow {
 public:
  using Storage = typename Tile::Storage;
  static_assert(sizeof(Storage) == 2 && sizeof(typename Tile::Element) == 2 && (run == 1 || run == 2));

  __device__ __forceinline__ void locate(int first_position, int first_image, int lane, const Product& p) {
    before_ = run == 2 ? (first_position + p.w.base) & 1 : 0;
#pragma unroll
    for (int b = 0; b < batches; ++b) {
#pragma unroll
      for (int u = 0; u < batch; ++u) {
        const int position = ((b * batch + u) * 32 + lane) * run - before_;
        const uint32_t cell = cell_at(first_position, position, first_image, p);
        from_[b][u] = cell == outside ? outside : cell * 2;
      }
    }
  }

  /// Loaded words stay unconverted until all loads of a batch are in flight: a conversion between two loads
  /// would wait for the first.
  template <class Wait>
  __device__ __forceinline__ void load(const Storage* source, int left, uint4* plane, int lane,
                                       const Product& p, Wait wait) const {
    // Pairs that lie 4 lanes apart have their granules in the same banks, so half of the lanes store theirs
    // in the opposite order.
    constexpr uint32_t lower_halves = 0x5410, upper_halves = 0x7632;
    const int turned = run == 2 ? lane >> 2 & 1 : 0;
    const int first = lane * run - before_ + turned, second = lane * run - before_ + 1 - turned;
    const uint32_t first_halves = turned ? upper_halves : lower_halves,
                   second_halves = turned ? lower_halves : upper_halves;
    bool waited = false;
#pragma unroll 1
    for (int k = 0; k < Tile::k_block_channels; k += granule, left -= granule) {
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
  }

 private:
  using Run = std::conditional_t<run == 2, uint32_t, uint16_t>;
  static constexpr int granule = Tile::granule;
  static constexpr int batch = 2, lane_runs = (Tile::host.most_window + run - 1) / (32 * run) + 1,
                       batches = (lane_runs + batch - 1) / batch;

  uint32_t from_[batches][batch];  // offsets of the runs, in bytes
  int before_;                     // 1 if the first pair begins before the window, else 0
};

/// Whether 16-bit input can be read as words.
template <class Storage>
bool in_words(const Product& p, const Tensor& input) {
  return is_16_bit_v<Storage> && rows_are_words(p) &&
         reinterpret_cast<uintptr_t>(vox::detail::ptr<Storage>(input)) % sizeof(uint32_t) == 0;
}

/// Calls f.template operator()<Window>() with the type that loads a window of the tile's numbers.
template <class Tile, class F>
__device__ __forceinline__ void with_window(const Product& p, F f) {
  if constexpr (!is_16_bit_v<typename Tile::Storage>)
    f.template operator()<LaneWindow<Tile>>();
  else if (p.in_words)
    f.template operator()<HalfWindow<Tile, 2>>();
  else
    f.template operator()<HalfWindow<Tile, 1>>();
}

// ---- The weights of a window ------------------------------------------------------------------------------

/// Loads the taps of a window that lie from `packed` on, in chunks.
template <class Tile>
__device__ __forceinline__ void load_taps(const unsigned char* packed, int taps, unsigned char* stages,
                                          Ring& ring, Barriers& barriers, const Product& p) {
  for (int tap = 0; tap < taps; tap += p.chunk) {
    const uint32_t bytes = min(p.chunk, taps - tap) * Tile::tap_bytes;
    ring.wait_empty(barriers);
    ptx::mbarrier_arrive_expecting(barriers.full[ring.slot], bytes);
    ptx::bulk_copy(stages + ring.slot * p.chunk * Tile::tap_bytes, packed + int64_t{tap} * Tile::tap_bytes,
                   bytes, barriers.full[ring.slot]);
    ring.advance();
  }
}

}  // namespace vox::cuda::conv::rolling
