#pragma once

// The results of strided_wgmma.cuh: from registers to rows of the output, through shared memory, so that a
// warp writes 64 cells of a channel at once; straight away where that would be few channels for each warp, or
// where both phases along w are in one product; or as runs, by the copy engine, where most of the output is
// the bias.

#include <voxgrad/cuda/conv3d/strided_wgmma_rows16.cuh>
#include <voxgrad/cuda/conv3d/strided_wgmma_rows32.cuh>
#include <voxgrad/cuda/conv3d/strided_wgmma_rows_direct.cuh>
#include <voxgrad/cuda/conv3d/strided_wgmma_rows_runs.cuh>
#include <voxgrad/cuda/conv3d/strided_wgmma_rows_wide.cuh>
#include <voxgrad/cuda/ptx/barrier.cuh>

#include <type_traits>
#include <utility>

namespace vox::cuda::strided {

template <class Block>
struct StagedRows {
  using Storage = typename Block::Storage;
  using Rows = std::conditional_t<sizeof(Storage) == 4, Rows32<Block>, Rows16<Block>>;
  static constexpr int channels = Block::channels, slots = Block::slots, tiles = Block::tiles;
  static constexpr int rows = Block::rows, sums = Block::sums, pitch = Block::pitch;
  static constexpr int staging_bytes = channels * pitch * 4;

  /// Stages sums of pair `number` % rows of phases and of tile `number` / rows.
  template <int... numbers>
  static __device__ __forceinline__ void stage(const float (&sum)[tiles][slots * sums],
                                               unsigned char* staging, const float* bias, int number,
                                               const StridedPlan& p, std::integer_sequence<int, numbers...>) {
    ((number == numbers ? Rows::template stage_row<numbers % rows>(sum[numbers / rows], staging, bias, p)
                        : void()),
     ...);
  }

  static __device__ __forceinline__ void write(const float (&sum)[tiles][slots * sums], const Shared& shared,
                                               const Tile& tile, const Columns& columns, int row_block,
                                               int warpgroup, Storage* __restrict__ output,
                                               const StridedPlan& p) {
    constexpr int element = sizeof(Storage);
    const int warp = __shfl_sync(0xffffffff, threadIdx.x / 32 % 4, 0);
    unsigned char* const staging = shared.staging + warpgroup * staging_bytes;
    const int64_t channel_bytes = int64_t{p.out_channel} * 4 * element;  // to the next one of the warp
    const int channel0 = columns.channel_block * channels;
    const int count = (min(channels, p.out_per_group - channel0) - warp + 3) / 4;
    Storage* const to = output + (int64_t{tile.image} * p.groups * p.out_per_group +
                                  columns.group * p.out_per_group + channel0 + warp) *
                                     p.out_channel;
    const int first_row = row_block * rows, alive_rows = min(rows, p.rows - first_row);
    Place place = place_of(tile.position + (p.depths == 2 ? 0 : warpgroup * tiles * 64), p);
#pragma unroll 1
    for (int t = 0; t < tiles; ++t) {
      const int depth = p.depths == 2 ? warpgroup : 0;
      if (place.column >= p.pitch) {  // after the first span
        const Place next = place_of(place.column, p);
        place = {place.row + next.row, next.column};
      }
      const typename Rows::Span span = Rows::span_of(tile.depth + depth, place, p);
      place.column += 64;
      const auto copy_row = [&]<bool alive>(std::bool_constant<alive>, const PhasePair& row) {
        char* const channel = reinterpret_cast<char*>(to + (int64_t{row.d} * p.h.out + row.h) * p.w.out);
        Rows::template copy_row<alive>(staging + warp * pitch * 4, shared.bias + warp, span,
                                       2 * row.d + row.h, channel, channel_bytes, count, p);
      };
      // Pairs of phases: those of this block that are alive, and its share of the others.
#pragma unroll 1
      for (int r = 0; r < alive_rows; ++r) {
        ptx::named_barrier<128>(1 + warpgroup);  // what was staged before has been read
        stage(sum, staging, shared.bias, t * rows + r, p, std::make_integer_sequence<int, tiles * rows>{});
        ptx::named_barrier<128>(1 + warpgroup);
        copy_row(std::true_type{}, p.row[first_row + r]);
      }
#pragma unroll 1
      for (int r = row_block; r < p.dead_rows; r += p.row_blocks)
        copy_row(std::false_type{}, p.row[p.rows + r]);
    }
  }
};

template <class Block>
struct ResultsOf {
  using Type =
      std::conditional_t<stages_sums(Block::channels, Block::slots), StagedRows<Block>, DirectRows<Block>>;
};
template <class Block>
requires(Block::form == StridedForm::runs) struct ResultsOf<Block> {
  using Type = RunRows<Block>;
};
template <class Block>
requires Block::wide struct ResultsOf<Block> {
  using Type = WideRows<Block>;
};
template <class Block>
using Results = typename ResultsOf<Block>::Type;

}  // namespace vox::cuda::strided
