#pragma once

// Results of the strided kernel where one phase is live among dead ones (Form::runs): from registers to the
// output, by TMA.
//
// Most of what is written there is the bias. A warpgroup's elements of a channel are a few long runs. They
// are staged whole, sums and the bias between them, four channels at a time (those that four lanes have in
// the same register), at the misalignment modulo 16 bytes that they have in the output. Whole granules of 16
// bytes then leave by bulk copies, one for each run of a channel. What is left at the ends of a run is stored
// by one lane for each power of two. Depths without taps are filled 16 bytes at a time.

#include <voxgrad/cuda/conv3d/strided/block.cuh>
#include <voxgrad/cuda/ptx/barriers.cuh>
#include <voxgrad/cuda/ptx/copies.cuh>
#include <voxgrad/cuda/ptx/registers.cuh>
#include <voxgrad/cuda/ptx/wgmma.cuh>

namespace vox::cuda::conv::strided {

// ---- Runs -------------------------------------------------------------------------------------------------

// Where the cells of a warpgroup lie in a plane (one depth) of the output. A coarse row of cells is one or
// two whole rows of the output. So consecutive cells are at most three runs of contiguous elements, however
// short rows are. With two rows for each cell these are: the first row of the coarse row in which the cells
// begin, which may be cut; everything up to the first row of the last coarse row; and that one's second row.
// Adjacent runs are joined: whole coarse rows are a single run.

/// Elements of a plane. In shared memory, element x of a channel has number x + shift, plus the channel's
/// misalignment (places_of).
struct Run {
  int first, length, shift;
};

struct Runs {
  Run run[3];  // length 0: there is none, or it was joined to another
  int first_row, last_row;

  /// The shift of a cell's first (h = 0) or second row.
  __device__ __forceinline__ int shift(int row, int h, const Plan& p) const {
    if (p.h.out_step == 1 || (h == 0 && row == first_row)) return run[0].shift;
    return h == 1 && row == last_row ? run[2].shift : run[1].shift;
  }
};

/// The runs of `cells` cells from a position on; `granule` elements are 16 bytes. Each run begins at its own
/// granule, with space for a misalignment behind it.
template <int granule>
__device__ __forceinline__ Runs runs_of(int position, int cells, const Plan& p) {
  Place first = place_of(position, p), last = place_of(position + cells - 1, p);
  if (first.column >= p.w.cells) first = {first.row + 1, 0};
  if (last.row >= p.h.cells) last = {p.h.cells - 1, p.w.cells - 1};
  const bool any =
      first.row < last.row || (first.row == last.row && first.column <= min(last.column, p.w.cells - 1));
  const bool one_row = first.row == last.row;
  const int rows = p.h.out_step, width = p.w.out;
  const int begin = first.column * p.w.out_step, end = min((last.column + 1) * p.w.out_step, width);
  const int top = first.row * rows * width, bottom = last.row * rows * width;
  // The runs before adjacent ones are joined.
  const int from[3]{top + begin, top + width + begin, bottom + width + (one_row ? begin : 0)};
  const int to[3]{one_row || rows == 1 ? bottom + end : top + width, bottom + end, bottom + width + end};
  const bool exists[3]{any, any && rows == 2 && !one_row, any && rows == 2 && last.row * 2 + 1 < p.h.out};
  Runs r{{}, first.row, last.row};
  int staged = 0;
  const auto place = [&](int i) {
    r.run[i] = {from[i], exists[i] ? to[i] - from[i] : 0, staged - from[i] / granule * granule};
  };
  const auto close = [&](int i) {
    if (exists[i]) staged = (to[i] + r.run[i].shift + 2 * granule - 2) / granule * granule;
  };
  const auto join = [&](int i, int next) {
    if (!exists[i] || !exists[next] || from[next] != from[i] + r.run[i].length) return false;
    r.run[next].shift = r.run[i].shift;
    r.run[i].length += r.run[next].length;
    r.run[next].length = 0;
    return true;
  };
  place(0), close(0);
  place(1);
  const bool joined = join(0, 1);
  close(1);
  place(2);
  if (joined || !exists[1])
    join(0, 2);
  else
    join(1, 2);
  return r;
}

// ---- The store --------------------------------------------------------------------------------------------

/// One or two elements of the output.
template <class Block, int size = sizeof(typename Block::Storage)>
struct Elements {
  using One = float;
  using Two = float2;
  static __device__ __forceinline__ Two both(float a, float b) { return make_float2(a, b); }
  static __device__ __forceinline__ One first(Two v) { return v.x; }
  static __device__ __forceinline__ One second(Two v) { return v.y; }
  static __device__ __forceinline__ uint32_t word(Two v) { return __float_as_uint(v.x); }
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
  static __device__ __forceinline__ uint32_t word(Two v) { return v; }
};

template <class Block>
struct RunRows {
  static_assert(Block::slots == 1);
  using Storage = typename Block::Storage;
  using Of = Elements<Block>;
  using One = typename Of::One;
  using Two = typename Of::Two;
  static constexpr int channels = Block::channels, tiles = Block::tiles, sums = Block::sums;
  static constexpr int size = sizeof(Storage), granule = 16 / size;  // elements
  static constexpr int cells = 2 * tiles;                            // of a thread

  /// Where a thread stages the two rows of its cells, in bytes without a channel's misalignment, or
  /// `nowhere`; and whether the second phase along w exists.
  static constexpr int nowhere = -1;
  struct Places {
    int at[2][cells];
    bool two[cells];
  };
  static __device__ __forceinline__ Places places_of(int position, const Runs& runs, const Plan& p) {
    Places places;
    const Place first = place_of(position, p);
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32 % 4;
    const int channel = lane % 4 * p.staged_pitch;
#pragma unroll
    for (int i = 0; i < cells; ++i) {
      Place cell{first.row, first.column + i / 2 * 64 + warp * 16 + i % 2 * 8 + lane / 4};
      const int further = rows_in(cell.column, p);
      cell.row += further, cell.column -= further * p.pitch;
      const int w = cell.column * p.w.out_step;
      places.two[i] = p.w.out_step == 2 && w + 1 < p.w.out;
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        const int row = cell.row * p.h.out_step + h;
        const bool exists = h < p.h.out_step && row < p.h.out && cell.column < p.w.cells;
        places.at[h][i] =
            exists ? (channel + row * p.w.out + w + runs.shift(cell.row, h, p)) * size : nowhere;
      }
    }
    return places;
  }

  /// Stages one row of the thread's cells. `values(i)` are the phases along w of cell i, or only the first if
  /// there is one. `even`: pairs of them are aligned.
  template <class Values>
  static __device__ __forceinline__ void stage(unsigned char* to, const int (&at)[cells],
                                               const bool (&two)[cells], bool even, Values values) {
    if (even) {
#pragma unroll
      for (int i = 0; i < cells; ++i) {
        const Two v = values(i);
        if (at[i] == nowhere) continue;
        if (two[i])
          *reinterpret_cast<Two*>(to + at[i]) = v;
        else
          *reinterpret_cast<One*>(to + at[i]) = Of::first(v);
      }
    } else {
#pragma unroll
      for (int i = 0; i < cells; ++i) {
        const Two v = values(i);
        if (at[i] == nowhere) continue;
        *reinterpret_cast<One*>(to + at[i]) = Of::first(v);
        if (two[i]) *reinterpret_cast<One*>(to + at[i] + size) = Of::second(v);
      }
    }
  }

  /// What a lane sends of a channel: bytes from an address in the buffer to one in the plane; 16 or more by
  /// TMA, 8, 4 or 2 by a store; or nothing.
  struct Parcel {
    int from;
    uint32_t to;
    int bytes;
  };
  /// A run has eight lanes: one for its whole granules, and at each end one for each power of two that may be
  /// left. `misaligned` is the address of the channel's plane modulo 16.
  static __device__ __forceinline__ Parcel parcel_of(const Runs& runs, int misaligned) {
    const int lane = ptx::lane_here(), part = lane % 8;
    const Run run = lane < 8 ? runs.run[0] : lane < 16 ? runs.run[1] : runs.run[2];
    const int begin = run.first * size + misaligned, end = begin + (lane < 24 ? run.length : 0) * size;
    const int unit = part == 3 ? 16 : size << part % 4;
    const int up = (begin + unit - 1) & -unit, down = end & -2 * unit;
    int at = part < 4 ? up : down, bytes = unit;
    if (part == 3)
      bytes = max((end & -16) - up, 0);
    else if (unit >= 16 ||
             (part < 3 ? (up & unit) == 0 || up + unit > end : (end & unit) == 0 || down < begin))
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

  /// Writes a plane, of which `here` channels of the block exist, from `plane` on. Row `h` of the cells has
  /// the sums; all other elements are the bias.
  __device__ __forceinline__ void write_plane(const float (&sum)[tiles][sums], int h, const Runs& runs,
                                              const Places& places, const float* bias, unsigned char* staging,
                                              int warpgroup, char* plane, int here, const Plan& p) {
    const int lane = threadIdx.x % 32, warp = __shfl_sync(0xffffffff, threadIdx.x / 32 % 4, 0);
    const int64_t channel_bytes = int64_t{p.out_channel} * size;
    const int base = static_cast<int>(reinterpret_cast<uintptr_t>(plane) / size % granule);
    const bool rows_even = p.w.out_step == 2 && (p.h.out_step == 2 || p.w.out % 2 == 0);
    int own[cells], other[cells];
#pragma unroll
    for (int i = 0; i < cells; ++i) {
      own[i] = h == 0 ? places.at[0][i] : places.at[1][i];
      other[i] = h == 0 ? places.at[1][i] : places.at[0][i];
    }
    // What a lane must do for even and for odd channels; channels 8 apart are alike.
    int misaligned[2];
    Parcel parcel[2];
    bool own_even[2], other_even[2];
#pragma unroll
    for (int e = 0; e < 2; ++e) {
      const int next = p.out_channel % granule;
      misaligned[e] = (base + (lane % 4 * 2 + e) * next) % granule * size;
      parcel[e] = parcel_of(runs, (base + (warp * 2 + e) * next) % granule * size);
      const int first = base + e * next + h * p.w.out;
      own_even[e] = rows_even && first % 2 == 0;
      other_even[e] = rows_even && (first + p.w.out) % 2 == 0;
    }
    char* to = plane + 2 * warp * channel_bytes;
#pragma unroll
    for (int j = 0; j < channels / 8; ++j, to += 6 * channel_bytes)
#pragma unroll
      for (int e = 0; e < 2; ++e, to += channel_bytes) {
        unsigned char* const staged = staging + buffer * p.buffer_bytes;
        unsigned char* const at = staged + misaligned[e];
        const float channel_bias = bias[8 * j + lane % 4 * 2 + e];
        stage(at, own, places.two, own_even[e], [&](int i) {
          const float v = sum[i / 2][4 * j + e + i % 2 * 2];
          return p.w.out_step == 1 || p.phase_w[0] == 0 ? Of::both(v, channel_bias)
                                                        : Of::both(channel_bias, v);
        });
        if (p.h.out_step == 2)
          stage(at, other, places.two, other_even[e],
                [&](int) { return Of::both(channel_bias, channel_bias); });
        ptx::fence_proxy_async();
        ptx::bulk_store_wait_read(p.buffers - 2);  // the next buffer is free
        ptx::named_barrier<128>(1 + warpgroup);
        if (8 * j + 2 * warp + e < here) send(parcel[e], staged + warp * p.staged_pitch * size, to);
        ptx::bulk_store_commit();
        buffer = buffer + 1 == p.buffers ? 0 : buffer + 1;
      }
  }

  /// Writes the bias to all runs of every fourth channel, from `to` and `bias` on.
  static __device__ __forceinline__ void fill(const Runs& runs, const float* bias, char* to,
                                              int64_t channel_bytes, int count) {
    const int lane = ptx::lane_here();
#pragma unroll 1
    for (int c = 0; c < count; ++c, bias += 4, to += 4 * channel_bytes) {
      const Two two = Of::both(*bias, *bias);
      const uint32_t word = Of::word(two);
      const uint4 whole = make_uint4(word, word, word, word);
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

  /// Writes a tile: the depth that has taps, and the others.
  __device__ __forceinline__ void write(const float (&sum)[tiles][sums], const Shared& shared,
                                        const Tile& tile, const Columns& columns, int, int warpgroup,
                                        Storage* __restrict__ output, const Plan& p) {
    const int position = tile.position + (p.depths == 2 ? 0 : warpgroup * tiles * 64);
    const int depth = (tile.depth + (p.depths == 2 ? warpgroup : 0)) * p.d.out_step;
    const Runs runs = runs_of<granule>(position, tiles * 64, p);
    const Places places = places_of(position, runs, p);
    const int channel0 = columns.channel_block * channels;
    const int here = min(channels, p.out_per_group - channel0);
    char* const to = reinterpret_cast<char*>(output + (int64_t{tile.image} * p.groups * p.out_per_group +
                                                       columns.group * p.out_per_group + channel0) *
                                                          p.out_channel);
    const int64_t plane_bytes = int64_t{p.h.out} * p.w.out * size;
    unsigned char* const staging = shared.staging + warpgroup * p.buffers * p.buffer_bytes;
    if (p.rows > 0 && depth + p.row[0].d < p.d.out)
      write_plane(sum, p.row[0].h, runs, places, shared.bias, staging, warpgroup,
                  to + (depth + p.row[0].d) * plane_bytes, here, p);
    const int warp = __shfl_sync(0xffffffff, threadIdx.x / 32 % 4, 0);
    const int64_t channel_bytes = int64_t{p.out_channel} * size;
    for (int i = 0; i < p.dead_depths; ++i)
      if (const int at = depth + p.dead_depth[i]; at < p.d.out)
        fill(runs, shared.bias + warp, to + at * plane_bytes + warp * channel_bytes, channel_bytes,
             (here - warp + 3) / 4);
  }

  int buffer = 0;  // the next to be staged into
};

}  // namespace vox::cuda::conv::strided
