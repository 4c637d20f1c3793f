#pragma once

// Results of the strided kernel where both phases along w of a channel are rows of one instruction and cells
// its columns (Form::wide): from registers to the output, 16 bytes at a time.
//
// Of every 8 cells a thread has two neighbours of one channel at both phases. These four elements, a *piece*,
// are adjacent in the output; the pieces of four lanes are 16 adjacent elements. Rows of the output begin at
// any address, so a thread stores the four elements from the next aligned address on, the last of which come
// from the next lane. What is left at the ends of rows and tiles is stored as single elements.

#include <voxgrad/cuda/conv3d/common/pack.cuh>
#include <voxgrad/cuda/conv3d/strided/block.cuh>
#include <voxgrad/cuda/ptx/registers.cuh>

#include <type_traits>

namespace vox::cuda::conv::strided {

// ---- Results that are not finite --------------------------------------------------------------------------

// An item may have a tap for only one of its two phases along w; the other phase is multiplied by zeros. An
// Inf or NaN of the input must only reach what it touches, so results that are not finite are recomputed by
// the definition.

/// The index of the input that tap k reads for an output, or -1.
__device__ __forceinline__ int read_by(int out, int k, const Axis& axis) {
  const int fine = out + axis.padding - k * axis.dilation;
  return fine >= 0 && fine % axis.stride == 0 && fine / axis.stride < axis.in ? fine / axis.stride : -1;
}

/// The element (d, h, w) of output channel `out` of a group. `input` begins at that group of the image.
template <class Block>
__device__ __forceinline__ float by_definition(const typename Block::Storage* input, int group, int out,
                                               int d, int h, int w, float bias, const Operands<Block>& from,
                                               const Plan& p) {
  const int all_taps = p.d.kernel * p.h.kernel * p.w.kernel;
  float sum = bias;
#pragma unroll 1
  for (int tap = 0; tap < all_taps; ++tap) {
    const int in_d = read_by(d, tap / (p.h.kernel * p.w.kernel), p.d),
              in_h = read_by(h, tap / p.w.kernel % p.h.kernel, p.h), in_w = read_by(w, tap % p.w.kernel, p.w);
    if (in_d < 0 || in_h < 0 || in_w < 0) continue;
    const auto* cell = input + (int64_t{in_d} * p.h.in + in_h) * p.w.in + in_w;
#pragma unroll 1
    for (int c = 0; c < p.in_per_group; ++c, cell += p.in_channel)
      sum = fmaf(static_cast<float>(*cell),
                 static_cast<float>(from.weight[weight_row(p, true, group, c, out) * all_taps + tap]), sum);
  }
  return sum;
}

/// Recomputes what a warp has written that is not finite, for cells from `position` on.
template <class Block>
__device__ __forceinline__ void recompute_non_finite(int position, int depth, int image,
                                                     const Columns& columns, int row_block, const float* bias,
                                                     const Operands<Block>& from,
                                                     typename Block::Storage* output, const Plan& p) {
  using Storage = typename Block::Storage;
  using Bits = std::conditional_t<sizeof(Storage) == 4, uint32_t, uint16_t>;
  // All exponent bits set: Inf or NaN.
  constexpr Bits not_finite = static_cast<Bits>(sizeof(Storage) == 4                ? 0x7f800000
                                                : std::is_same_v<Storage, bfloat16> ? 0x7f80
                                                                                    : 0x7c00);
  constexpr int elements = 2 * Block::columns;  // of a channel, in one pair of phases
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32 % 4;
  const int image_group = image * p.groups + columns.group;
  __syncwarp();  // other lanes' stores
#pragma unroll 1
  for (int number = row_block * Block::rows; number < min((row_block + 1) * Block::rows, p.rows); ++number) {
    const int d = depth + p.row[number].d;
#pragma unroll 1
    for (int i = lane; i < 8 * elements; i += 32) {
      const int in_block = wide_channel(2 * warp, i / elements),
                out = columns.channel_block * Block::channels + in_block;
      const Place at = place_of(position + i % elements / 2, p);
      const int h = at.row * p.h.out_step + p.row[number].h, w = 2 * at.column - p.origin_w + i % 2;
      if (out >= p.out_per_group || d >= p.d.out || h >= p.h.out || w < 0 || w >= p.w.out) continue;
      Storage* const to = output + (int64_t{image_group} * p.out_per_group + out) * p.out_channel +
                          (int64_t{d} * p.h.out + h) * p.w.out + w;
      if ((*reinterpret_cast<volatile Bits*>(to) & not_finite) != not_finite) continue;
      *to = Storage(by_definition<Block>(from.input + int64_t{image_group} * p.in_per_group * p.in_channel,
                                         columns.group, out, d, h, w, bias[in_block], from, p));
    }
  }
}

// ---- The store --------------------------------------------------------------------------------------------

template <class Block>
struct WideRows {
  using Storage = typename Block::Storage;
  static constexpr int channels = Block::channels, pairs = Block::slots, sums = Block::sums;
  static constexpr int pieces = sums / 4, cells = 8 * pieces;
  static constexpr int size = sizeof(Storage), words = size;  // of a piece

  struct Piece {
    uint32_t word[words];
  };
  /// Opaque to the compiler, which otherwise turns the sums into integers and moves them back and forth
  /// between products.
  static __device__ __forceinline__ uint32_t bits_of(float x) { return __float_as_uint(ptx::opaque(x)); }
  /// Piece `j` of a pair of phases along d and h.
  static __device__ __forceinline__ Piece piece_of(const float* sum, int j) {
    const float* const of = sum + 4 * j;
    if constexpr (size == 4)
      return {{bits_of(of[0]), bits_of(of[2]), bits_of(of[1]), bits_of(of[3])}};
    else
      return {{ptx::packed<Block::Operand::operand>(of[0], of[2]),
               ptx::packed<Block::Operand::operand>(of[1], of[3])}};
  }

  /// Four elements from number `skipped` of the lane's own piece on; the last come from the piece of the next
  /// lane.
  template <int skipped>
  static __device__ __forceinline__ Piece aligned(const Piece& own, const Piece& offered, int lane) {
    constexpr int first = skipped * size / 4;  // word
    constexpr bool straddles = skipped * size % 4 != 0;
    uint32_t all[words + 1];
#pragma unroll
    for (int i = 0; i < words + straddles; ++i)
      all[i] = first + i < words ? own.word[(first + i) % words]
                                 : __shfl_sync(0xffffffff, offered.word[(first + i) % words], lane + 1, 4);
    Piece piece;
#pragma unroll
    for (int i = 0; i < words; ++i) piece.word[i] = straddles ? ptx::straddling(all[i], all[i + 1]) : all[i];
    return piece;
  }
  /// The same where `skipped` differs between lanes.
  static __device__ __forceinline__ Piece aligned(const Piece& own, const Piece& offered, int skipped,
                                                  int lane) {
    constexpr int asked = size == 4 ? 3 : 2;
    uint32_t all[words + asked];
#pragma unroll
    for (int i = 0; i < words; ++i) all[i] = own.word[i];
#pragma unroll
    for (int i = 0; i < asked; ++i) all[words + i] = __shfl_sync(0xffffffff, offered.word[i], lane + 1, 4);
    constexpr int two = words / 2;  // elements
#pragma unroll
    for (int i = 0; i < words + asked - two; ++i) all[i] = skipped & 2 ? all[i + two] : all[i];
    Piece piece;
#pragma unroll
    for (int i = 0; i < words; ++i)
      if constexpr (size == 4)
        piece.word[i] = skipped & 1 ? all[i + 1] : all[i];
      else
        piece.word[i] = __funnelshift_r(all[i], all[i + 1], skipped % 2 * 16);
    return piece;
  }
  static __device__ __forceinline__ Piece either(bool first, const Piece& a, const Piece& b) {
    Piece piece;
#pragma unroll
    for (int i = 0; i < words; ++i) piece.word[i] = first ? a.word[i] : b.word[i];
    return piece;
  }
  /// The number of elements before the next address that is a multiple of `elements` of them, a power of two.
  static __device__ __forceinline__ int skipped_at(const char* to, int elements) {
    return -static_cast<int>(reinterpret_cast<uintptr_t>(to) / size) & (elements - 1);
  }

  static __device__ __forceinline__ void store_if(bool condition, char* to, const Piece& piece) {
    if constexpr (size == 4)
      ptx::store_if_greater(condition, 0, to,
                            make_uint4(piece.word[0], piece.word[1], piece.word[2], piece.word[3]));
    else
      ptx::store_if_greater(condition, 0, to, make_uint2(piece.word[0], piece.word[1]));
  }
  /// Stores those elements i of a piece for which bit i is set.
  static __device__ __forceinline__ void store_elements(int bits, char* to, const Piece& piece) {
#pragma unroll
    for (int i = 0; i < 4; ++i)
      if constexpr (size == 4)
        ptx::store_if_greater(bits & 1 << i, 0, to + 4 * i, piece.word[i]);
      else
        ptx::store_if_greater(bits & 1 << i, 0, to + 2 * i,
                              static_cast<uint16_t>(piece.word[i / 2] >> i % 2 * 16));
  }

  /// A row of the output. It ends where a tile's cells end, one element earlier, or later.
  struct Row {
    char* first;    // where the thread's first piece goes
    bool exists;    // the thread's channel exists
    bool absent;    // the row begins with the piece's second element
    int left;       // elements of the row from the tile's first cell on
    bool follows;   // the previous pair's row, all in this tile, ends where this row begins
    bool followed;  // the next pair's row begins where this row ends
  };

  /// A lane's part of the last 16 elements of a row; `here` elements of the last piece exist.
  static __device__ __forceinline__ Piece end_of(const float* sum, int here, int lane) {
    const Piece last = piece_of(sum, pieces - 1);
    const uint32_t earlier = piece_of(sum, pieces - 2).word[words - 1];
    const uint32_t carried =
        __shfl_sync(0xffffffff, lane % 4 == 3 ? earlier : last.word[words - 1], lane + 3, 4);
    Piece moved;
    if constexpr (size == 4)
      moved = {{carried, last.word[0], last.word[1], last.word[2]}};
    else
      moved = {{ptx::straddling(carried, last.word[0]), ptx::straddling(last.word[0], last.word[1])}};
    return either(here == 4, last, moved);
  }

  /// Writes cells that lie in one row. The piece begins `skipped` elements before an aligned address. If the
  /// next pair's row follows in memory, the last 16 elements are stored with the first of that row, because
  /// partial writes of a 32-byte sector are slow.
  template <int skipped>
  static __device__ __forceinline__ void write_straight(const float* sum, const float* sum_before,
                                                        const Row& row) {
    const int lane = ptx::lane_here(), place = lane % 4;
    // Four lanes together store 16 elements from a multiple of 16 on. The lanes with `later` set begin with
    // their second piece, and store the first one before all others.
    const int all_skipped = skipped_at(row.first - place * 4 * size, 16);
    const bool later = place < all_skipped / 4, next_later = place <= all_skipped / 4;
    const int here = min(row.left - 2 * cells + 4, 4);
    const bool begins = place == 0 && row.absent && skipped == 0,
               ends = place == 3 && (skipped > 0 || here < 4);
    const bool handed_on = row.followed && skipped_at(row.first + (row.left - place * 4) * size, 16) != 0;
    char* const to = row.first + (skipped + (later ? 16 : 0)) * size;
    const Piece head = piece_of(sum, 0);
    Piece own = either(row.follows, end_of(sum_before, here, lane), head);
#pragma unroll
    for (int j = -1; j < pieces; ++j) {
      const Piece behind = piece_of(sum, min(j + 1, pieces - 1));
      const bool wanted = j < 0             ? (row.follows ? all_skipped > 0 : later && !begins)
                          : j == 0          ? later || !begins
                          : j == pieces - 1 ? !later && !ends && !handed_on
                                            : true;
      store_if(row.exists && wanted, to + 16 * j * size,
               aligned<skipped>(either(later, behind, own), either(next_later, behind, own), lane));
      own = behind;
    }
    constexpr int before = (1 << skipped) - 1;
    int bits = 0;
    if (place == 0 && !row.follows) bits = (begins ? 15 : before) & ~static_cast<int>(row.absent);
    if (ends && !row.followed) bits = ((1 << here) - 1) & ~before;
    store_elements(row.exists ? bits : 0, place == 0 ? row.first : row.first + 16 * (pieces - 1) * size,
                   either(place == 0, head, own));
  }

  /// Writes cells that span several rows. `plane` is that of the thread's channel, if the channel exists.
  static __device__ __forceinline__ void write_bent(const float* sum, char* plane, const Place& first,
                                                    int phase_h, bool exists, const Plan& p) {
    const int lane = ptx::lane_here(), place = lane % 4;
    Piece own = piece_of(sum, 0);
#pragma unroll
    for (int j = 0; j < pieces; ++j) {
      const Piece behind = piece_of(sum, min(j + 1, pieces - 1));
      const int along = first.column + 8 * j + 2 * place, further = rows_in(along, p);
      const int column = along - further * p.pitch, w = 2 * column - p.origin_w;
      const int h = (first.row + further) * p.h.out_step + phase_h;
      const int left = exists && h < p.h.out ? p.w.out - w : 0;
      char* const to = plane + (int64_t{h} * p.w.out + w) * size;
      const int skipped = skipped_at(to, 4), absent = w < 0;
      // Whether this lane stores from the next aligned address on, and whether the previous lane stores up to
      // there.
      const bool whole =
          left >= 4 + skipped && absent <= skipped && (skipped == 0 || j + 1 < pieces || place < 3);
      const bool covered = left >= skipped && column > 0 && (j > 0 || place > 0);
      store_if(whole, to + skipped * size, aligned(own, either(place == 0, behind, own), skipped, lane));
      const int before = (1 << skipped) - 1;
      int bits = ((1 << min(max(left, 0), 4)) - 1) & ~absent;
      if (covered) bits &= ~before;
      if (whole) bits &= before;
      store_elements(bits, to, own);
      own = behind;
    }
  }

  /// Writes a tile.
  static __device__ __forceinline__ void write(const float (&sum)[pairs * sums], const Shared& shared,
                                               const Tile& tile, const Columns& columns, int row_block,
                                               int warpgroup, const Operands<Block>& from,
                                               Storage* __restrict__ output, const Plan& p) {
    const int position = tile.position + (p.depths == 2 ? 0 : warpgroup * cells);
    const int depth = (tile.depth + (p.depths == 2 ? warpgroup : 0)) * p.d.out_step;
    const Place first = place_of(position, p);
    const int channel0 = columns.channel_block * channels, here = min(channels, p.out_per_group - channel0);
    const int w = 2 * first.column - p.origin_w, left = p.w.out - w;
    const bool straight = first.column + cells <= p.pitch && left >= 2 * cells - 1;
    const int channel = wide_channel(threadIdx.x % 128 / 16, threadIdx.x % 32 / 4);
    char* const to = reinterpret_cast<char*>(output + (int64_t{tile.image} * p.groups * p.out_per_group +
                                                       columns.group * p.out_per_group + channel0 + channel) *
                                                          p.out_channel);
    // Whether the row of pair i, which lies within this tile, is followed in memory by that of the next pair.
    const auto is_followed = [&](int i) {
      const int of = row_block * pairs + i;
      return w == 0 && left <= 2 * cells && of + 1 < p.rows && p.row[of + 1].d == p.row[of].d &&
             p.row[of + 1].h == p.row[of].h + 1 && first.row * p.h.out_step + p.row[of + 1].h < p.h.out;
    };
#pragma unroll
    for (int r = 0; r < pairs; ++r) {
      const int number = row_block * pairs + r;
      const int d = depth + p.row[number].d, h = first.row * p.h.out_step + p.row[number].h;
      if (number >= p.rows || d >= p.d.out) continue;
      char* const plane = to + int64_t{d} * p.h.out * p.w.out * size;
      const float* const of = sum + r * sums;
      if (!straight) {
        write_bent(of, plane, first, p.row[number].h, channel < here, p);
      } else if (h < p.h.out) {
        const bool absent = w < 0;
        const Row row{
            .first = plane + (int64_t{h} * p.w.out + w + static_cast<int>(threadIdx.x % 4 * 4)) * size,
            .exists = channel < here,
            .absent = absent,
            .left = left,
            .follows = r != 0 && is_followed(r - 1),
            .followed = r + 1 != pairs && is_followed(r)};
        const float* const sum_before = r > 0 ? of - sums : of;
        // Read from lane 0, so that the compiler knows that lanes do not diverge.
        const int skipped = __shfl_sync(0xffffffff, skipped_at(row.first, 4), 0);
        if (skipped == 0) write_straight<0>(of, sum_before, row);
        if (skipped == 1) write_straight<1>(of, sum_before, row);
        if (skipped == 2) write_straight<2>(of, sum_before, row);
        if (skipped == 3) write_straight<3>(of, sum_before, row);
      }
    }
    if (!p.half_items) return;
    float nothing[8] = {};  // 0, or NaN; eight of them, so that additions do not wait for each other
#pragma unroll
    for (int phase = 0; phase < 2; ++phase)
      if (p.half_items >> phase & 1)
#pragma unroll
        for (int i = 0; i < pairs * sums; i += 4)
#pragma unroll
          for (int e = 0; e < 2; ++e) {
            float& one = nothing[(i / 2 + e) % 8];
            one = fmaf(sum[i + 2 * phase + e], 0.0f, one);
          }
#pragma unroll
    for (int i = 1; i < 8; ++i) nothing[0] += nothing[i];
    if (__any_sync(0xffffffff, nothing[0] != 0))
      recompute_non_finite<Block>(position, depth, tile.image, columns, row_block, shared.bias, from, output,
                                  p);
  }
};

}  // namespace vox::cuda::conv::strided
