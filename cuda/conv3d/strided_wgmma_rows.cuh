#pragma once

// The results of strided_wgmma.cuh, from registers to the output by the copy engine.
//
// A warpgroup's elements of a channel are few long runs (strided_wgmma_runs.cuh). Sums are staged as these
// runs, four channels at a time (those that four lanes have in the same register), at the misalignment modulo
// 16 bytes that they have in the output. Whole granules of 16 bytes then leave by bulk copies, one for each
// run of a channel, and the elements at its ends by a lane each. The warpgroup goes on meanwhile, with the
// next channels or products: it waits only for buffers to have been read before it stages into them again.
//
// An image is what lies in one plane, of all channels of the block. Where only one of the cells' two rows has
// taps, or one of the phases along w, the bias completes it.

#include <voxgrad/cuda/conv3d/strided_wgmma_rows_direct.cuh>
#include <voxgrad/cuda/conv3d/strided_wgmma_runs.cuh>
#include <voxgrad/cuda/ptx/barrier.cuh>
#include <voxgrad/cuda/ptx/bulk_store.cuh>
#include <voxgrad/cuda/ptx/packed.cuh>

#include <type_traits>
#include <utility>

namespace vox::cuda::strided {

/// Elements of the output, one or two.
template <class Block, int size = sizeof(typename Block::Storage)>
struct Elements {
  using One = float;
  using Two = float2;
  static __device__ __forceinline__ Two both(float a, float b) { return make_float2(a, b); }
  static __device__ __forceinline__ One first(Two v) { return v.x; }
  static __device__ __forceinline__ One second(Two v) { return v.y; }
};
template <class Block>
struct Elements<Block, 2> {
  using One = uint16_t;
  using Two = uint32_t;
  static __device__ __forceinline__ Two both(float a, float b) {
    return ptx::packed<Block::Operand::operand>(a, b);
  }
  static __device__ __forceinline__ One first(Two v) { return static_cast<uint16_t>(v); }
  static __device__ __forceinline__ One second(Two v) { return static_cast<uint16_t>(v >> 16); }
};

template <class Block>
struct StagedRows {
  using Storage = typename Block::Storage;
  using Of = Elements<Block>;
  using One = typename Of::One;
  using Two = typename Of::Two;
  static constexpr int channels = Block::channels, slots = Block::slots, tiles = Block::tiles;
  static constexpr int rows = Block::rows, sums = Block::sums;
  static constexpr int size = sizeof(Storage), granule = 16 / size;  // elements
  static constexpr int cells = 2 * tiles;                            // of a thread

  static_assert(rows <= 2);

  /// Where a thread stages the two rows of its cells, in bytes, but for a channel's misalignment; what does
  /// not exist goes behind the last channel. Row 0 is that of the block's first pair of phases, 1 the other.
  /// And whether the second phase along w exists.
  struct Places {
    static constexpr bool packed = slots == 1;  // as half words, where registers are few
    int at[packed ? 1 : 2][cells];
    bool two[cells];

    __device__ __forceinline__ int of(int row, int i) const {
      return packed ? at[0][i] >> 16 * row & 0xffff : at[row][i];
    }
  };
  static __device__ __forceinline__ Places places_of(int position, const Runs& runs, int first_h,
                                                     const StridedPlan& p) {
    Places places;
    const Place first = place_of(position, p);
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32 % 4;
    const int channel = lane % 4 * p.staged_pitch, nowhere = 4 * p.staged_pitch;
#pragma unroll
    for (int i = 0; i < cells; ++i) {
      Place cell{first.row, first.column + i / 2 * 64 + warp * 16 + i % 2 * 8 + lane / 4};
      const int further = rows_in(cell.column, p);
      cell.row += further, cell.column -= further * p.pitch;
      const int w = cell.column * p.w.out_step;
      places.two[i] = p.w.out_step == 2 && w + 1 < p.w.out;
      const auto at = [&](int h) {
        const int row = cell.row * p.h.out_step + h;
        const bool exists = h < p.h.out_step && row < p.h.out && cell.column < p.w.cells;
        // Nowhere is even or odd as the row is.
        return (exists ? channel + row * p.w.out + w + runs.shift(cell.row, h, p)
                       : nowhere + h * p.w.out % 2) *
               size;
      };
      if constexpr (Places::packed)
        places.at[0][i] = at(first_h) | at(1 - first_h) << 16;
      else
        places.at[0][i] = at(first_h), places.at[1][i] = at(1 - first_h);
    }
    return places;
  }

  /// Stages a row of the thread's cells: `values(i)` are the phases along w of cell i, the first alone if
  /// there is one. `even`: pairs of them are aligned.
  template <class Values>
  __device__ __forceinline__ void stage(unsigned char* to, int row, bool even, Values values) const {
    if (even) {
#pragma unroll
      for (int i = 0; i < cells; ++i) {
        const Two v = values(i);
        if (places.two[i])
          *reinterpret_cast<Two*>(to + places.of(row, i)) = v;
        else
          *reinterpret_cast<One*>(to + places.of(row, i)) = Of::first(v);
      }
    } else {
#pragma unroll
      for (int i = 0; i < cells; ++i) {
        const Two v = values(i);
        *reinterpret_cast<One*>(to + places.of(row, i)) = Of::first(v);
        if (places.two[i]) *reinterpret_cast<One*>(to + places.of(row, i) + size) = Of::second(v);
      }
    }
  }

  /// Number `of` (a constant) of the channels' pairs of phases along w, of the thread's cell i.
  static __device__ __forceinline__ Two phases(const float (&sum)[tiles][slots * sums], int r, int of, int i,
                                               float bias, const StridedPlan& p) {
    const float v = sum[i / 2][2 * r * sums * (slots > 1) + of + i % 2 * 2];
    if constexpr (slots > 1) return Of::both(v, sum[i / 2][(2 * r + 1) * sums + of + i % 2 * 2]);
    return p.w.out_step == 1 || p.phase_w[0] == 0 ? Of::both(v, bias) : Of::both(bias, v);
  }

  /// What a lane sends of a channel: bytes from a place in the buffer to one in the plane, 16 or more by the
  /// copy engine, 8, 4 or 2 itself; or nothing.
  struct Parcel {
    int from;
    uint32_t to;
    int bytes;
  };
  /// A run has eight lanes: one for its whole granules, and at each end one for each power of two that may be
  /// over. `misaligned` are bytes of the channel's plane, modulo 16.
  static __device__ __forceinline__ Parcel parcel_of(const Runs& runs, int misaligned) {
    const int lane = ptx::lane_here(), part = lane % 8;
    const Run run = lane < 8 ? runs.run[0] : lane < 16 ? runs.run[1] : runs.run[2];
    const int begin = run.first * size + misaligned, end = begin + (lane < 24 ? run.length : 0) * size;
    const int unit = part == 3 ? 16 : size << part % 4;
    const int up = (begin + unit - 1) & -unit, down = end & -2 * unit;
    int at = part < 4 ? up : down, bytes = unit;
    if (part == 3)
      bytes = max((end & -16) - up, 0);
    else if (unit >= 16 || (part < 3 ? (up & unit) == 0 || up + unit > end : (end & unit) == 0 || down < begin))
      bytes = 0;
    return {at + run.shift * size, static_cast<uint32_t>(at - misaligned), bytes};
  }
  static __device__ __forceinline__ void send(const Parcel& parcel, const unsigned char* staged, char* to) {
    staged += parcel.from;
    to += parcel.to;
    if (parcel.bytes >= 16) ptx::bulk_store(to, staged, parcel.bytes);
    if (parcel.bytes == 8) *reinterpret_cast<uint2*>(to) = *reinterpret_cast<const uint2*>(staged);
    if (parcel.bytes == 4) *reinterpret_cast<uint32_t*>(to) = *reinterpret_cast<const uint32_t*>(staged);
    if (size == 2 && parcel.bytes == 2)
      *reinterpret_cast<uint16_t*>(to) = *reinterpret_cast<const uint16_t*>(staged);
  }

  /// What a thread has to know of an image: of channels that are even or odd, since those 8 further on have
  /// the same misalignment.
  struct Image {
    char* channel;              // the plane of the first one that the warp sends
    int misaligned[2];          // of the channels that the thread stages, in bytes
    Parcel parcel[2];           // of the channels that the warp sends
    bool own_even, other_even;  // whether pairs of phases are aligned in even channels, in either row
    bool odd_differ;            // and not in odd ones, or the other way round
  };
  /// The image at a depth of the output, of which row `h` comes first. `block` is the block's first channel.
  static __device__ __forceinline__ Image image_of(const Runs& runs, char* block, int depth, int h,
                                                   const StridedPlan& p) {
    const int lane = threadIdx.x % 32, warp = __shfl_sync(0xffffffff, threadIdx.x / 32 % 4, 0);
    char* const plane = block + int64_t{depth} * p.h.out * p.w.out * size;
    const int base = static_cast<int>(reinterpret_cast<uintptr_t>(plane) / size % granule),
              next = p.out_channel % granule;
    const bool rows_even = p.w.out_step == 2 && (p.h.out_step == 2 || p.w.out % 2 == 0);
    Image image;
    image.channel = plane + 2 * warp * (int64_t{p.out_channel} * size);
#pragma unroll
    for (int e = 0; e < 2; ++e) {
      image.misaligned[e] = (base + (lane % 4 * 2 + e) * next) % granule * size;
      image.parcel[e] = parcel_of(runs, (base + (warp * 2 + e) * next) % granule * size);
    }
    image.own_even = rows_even && (base + h * p.w.out) % 2 == 0;
    image.other_even = rows_even && (base + (1 - h) * p.w.out) % 2 == 0;
    image.odd_differ = rows_even && next % 2 == 1;
    return image;
  }

  /// Writes an image: the first of the cells' rows are the sums of pair `r` of phases, and the other one, if
  /// there is one, those of the next pair if `both`, or the bias. `here` channels exist.
  template <int r, bool both>
  __device__ __forceinline__ void write_image(const float (&sum)[tiles][slots * sums], const Image& image,
                                              const float* bias, unsigned char* staging, int warpgroup,
                                              int here, const StridedPlan& p) {
    const int lane = threadIdx.x % 32, warp = __shfl_sync(0xffffffff, threadIdx.x / 32 % 4, 0);
    const int64_t channel_bytes = int64_t{p.out_channel} * size;
    char* to = image.channel;
#pragma unroll
    for (int j = 0; j < channels / 8; ++j, to += 6 * channel_bytes)
#pragma unroll
      for (int e = 0; e < 2; ++e, to += channel_bytes) {
        unsigned char* const staged = staging + buffer * p.buffer_bytes;
        unsigned char* const at = staged + image.misaligned[e];
        const float channel_bias = bias[8 * j + lane % 4 * 2 + e];
        const bool differs = e == 1 && image.odd_differ;
        if (p.buffers <= 2) {  // this one is free; if there are more, that was made sure of a turn ago
          ptx::bulk_store_wait_read(p.buffers - 1);
          ptx::named_barrier<128>(1 + warpgroup);
        }
        stage(at, 0, image.own_even != differs,
              [&](int i) { return phases(sum, r, 4 * j + e, i, channel_bias, p); });
        if (p.h.out_step == 2) {
          if constexpr (both)
            stage(at, 1, image.other_even != differs,
                  [&](int i) { return phases(sum, r + 1, 4 * j + e, i, channel_bias, p); });
          else
            stage(at, 1, image.other_even != differs,
                  [&](int) { return Of::both(channel_bias, channel_bias); });
        }
        ptx::fence_proxy_async();
        if (p.buffers > 2) ptx::bulk_store_wait_read(p.buffers - 2);  // the next one is free
        ptx::named_barrier<128>(1 + warpgroup);
        if (8 * j + 2 * warp + e < here) send(image.parcel[e], staged + warp * p.staged_pitch * size, to);
        ptx::bulk_store_commit();
        buffer = buffer + 1 == p.buffers ? 0 : buffer + 1;
      }
  }

  /// Writes the bias to all runs, of every fourth channel from `to` and `bias` on.
  static __device__ __forceinline__ void fill(const Runs& runs, const float* bias, char* to,
                                              int64_t channel_bytes, int count) {
    const int lane = ptx::lane_here();
#pragma unroll 1
    for (int c = 0; c < count; ++c, bias += 4, to += 4 * channel_bytes) {
      const Two two = Of::both(*bias, *bias);
      uint4 whole;
      if constexpr (size == 4)
        whole.x = whole.y = whole.z = whole.w = __float_as_uint(two.x);
      else
        whole.x = whole.y = whole.z = whole.w = two;
      const int misaligned = static_cast<int>(reinterpret_cast<uintptr_t>(to) / size % granule);
#pragma unroll
      for (int i = 0; i < 3; ++i) {
        const Run& run = runs.run[i];
        const int head = min(-(run.first + misaligned) & (granule - 1), run.length);
        const int body = (run.length - head) / granule, tail = run.length - head - body * granule;
        char* const first = to + int64_t{run.first} * size;
        for (int x = lane; x < body; x += 32) reinterpret_cast<uint4*>(first + head * size)[x] = whole;
        if (lane < head) reinterpret_cast<One*>(first)[lane] = Of::first(two);
        if (lane < tail) reinterpret_cast<One*>(first)[run.length - 1 - lane] = Of::first(two);
      }
    }
  }

  static __device__ __forceinline__ char* block_of(const Tile& tile, const Columns& columns, Storage* output,
                                                   const StridedPlan& p) {
    return reinterpret_cast<char*>(output + (int64_t{tile.image} * p.groups * p.out_per_group +
                                             columns.group * p.out_per_group +
                                             columns.channel_block * channels) *
                                                p.out_channel);
  }
  static __device__ __forceinline__ int depth_of(const Tile& tile, int warpgroup, const StridedPlan& p) {
    return (tile.depth + (p.depths == 2 ? warpgroup : 0)) * p.d.out_step;
  }

  /// Works out where the tile of a block of rows goes, its first image at least.
  __device__ __forceinline__ void prepare(const Shared&, const Tile& tile, const Columns& columns,
                                          int row_block, int warpgroup, Storage* output,
                                          const StridedPlan& p) {
    const int position = tile.position + (p.depths == 2 ? 0 : warpgroup * tiles * 64);
    runs = runs_of<granule>(position, tiles * 64, p);
    const PhasePair row = p.row[row_block * rows];
    places = places_of(position, runs, row.h, p);
    image = image_of(runs, block_of(tile, columns, output, p), depth_of(tile, warpgroup, p) + row.d, row.h, p);
  }

  /// Writes it: the pairs of phases of this block of rows, and with the first one depths without taps.
  __device__ __forceinline__ void write(const float (&sum)[tiles][slots * sums], const Shared& shared,
                                        const Tile& tile, const Columns& columns, int row_block,
                                        int warpgroup, Storage* __restrict__ output, const StridedPlan& p) {
    const int depth = depth_of(tile, warpgroup, p), first_row = row_block * rows;
    const int here = min(channels, p.out_per_group - columns.channel_block * channels);
    char* const block = block_of(tile, columns, output, p);
    unsigned char* const staging = shared.staging + warpgroup * p.buffers * p.buffer_bytes;
    const auto write = [&]<int r, bool both>(std::integer_sequence<int, r>, std::bool_constant<both>) {
      if (first_row + r >= p.rows) return;
      const PhasePair row = p.row[first_row + r];
      if (depth + row.d >= p.d.out) return;
      if constexpr (r > 0) image = image_of(runs, block, depth + row.d, row.h, p);
      write_image<r, both>(sum, image, shared.bias, staging, warpgroup, here, p);
    };
    if constexpr (rows == 1) {
      write(std::integer_sequence<int, 0>{}, std::false_type{});
    } else if (p.rows_together) {
      write(std::integer_sequence<int, 0>{}, std::true_type{});
    } else {
      write(std::integer_sequence<int, 0>{}, std::false_type{});
      write(std::integer_sequence<int, 1>{}, std::false_type{});
    }
    if (row_block > 0) return;
    const int warp = __shfl_sync(0xffffffff, threadIdx.x / 32 % 4, 0);
    const int64_t channel_bytes = int64_t{p.out_channel} * size;
    for (int i = 0; i < p.dead_depths; ++i)
      if (const int at = depth + p.dead_depth[i]; at < p.d.out)
        fill(runs, shared.bias + warp,
             block + int64_t{at} * p.h.out * p.w.out * size + warp * channel_bytes, channel_bytes,
             (here - warp + 3) / 4);
  }

  int buffer = 0;  // the next to be staged into
  Runs runs;
  Places places;
  Image image;
};

template <class Block>
using Results =
    std::conditional_t<stages_sums(Block::channels, Block::slots), StagedRows<Block>, DirectRows<Block>>;

}  // namespace vox::cuda::strided
