#pragma once

// What a block of kernel.cuh has: a tile of the product, shared memory, and tables in it. The functions that
// fill the tables are those of plan.h, which a test evaluates on the CPU.

#include <voxgrad/cuda/conv3d/mma/plan.h>
#include <voxgrad/cuda/conv3d/common/pack.cuh>

namespace vox::cuda::conv::mma {

/// `Storage` is the type of the output's elements.
template <class Storage_, class Operand_, int m_tiles_, int n_tiles_>
struct Block {
  using Storage = Storage_;
  using Operand = Operand_;
  static constexpr int m_tiles = m_tiles_, n_tiles = n_tiles_, parts = Operand::weight_parts;
  static constexpr TileShape shape{m_tiles, n_tiles};
  static constexpr int part_bytes = shape.columns() * 16, item_bytes = parts * part_bytes;

  static constexpr bool banded = scales_columns<Operand>;

  using Sums = float[m_tiles][n_tiles][4];
};

/// The block's shared memory; sizes are those of set_memory in plan.cpp.
struct Shared {
  unsigned char* memory;
  CellRange* ranges;  ///< of each class's window, for a job
  CellEntry* cells;   ///< of a window
  Item* items;        ///< of each class
  Row* rows;          ///< of the product
  int* counts;        ///< of each class: its items
  const Plan& p;

  __device__ __forceinline__ Shared(unsigned char* all, int tile_rows, const Plan& plan)
      : memory(all),
        ranges(reinterpret_cast<CellRange*>(all + plan.tables_at)),
        cells(reinterpret_cast<CellEntry*>(ranges + plan.classes)),
        items(reinterpret_cast<Item*>(cells + plan.window_cells)),
        rows(reinterpret_cast<Row*>(items + plan.classes * plan.items)),
        counts(reinterpret_cast<int*>(rows + tile_rows)),
        p(plan) {}
  __device__ __forceinline__ unsigned char* window(int slice) const {
    return memory + slice % 2 * p.window_bytes;
  }
  __device__ __forceinline__ unsigned char* stage(int step) const {
    return memory + 2 * p.window_bytes + step % 2 * p.stage_bytes;
  }

  /// Fills the tables of all jobs.
  __device__ __forceinline__ void set_cells(int tile_rows) const {
#pragma unroll 1
    for (int i = threadIdx.x; i < tile_rows; i += TileShape::threads) rows[i] = row_at(p, i);
#pragma unroll 1
    for (int i = threadIdx.x; i < p.window_cells; i += TileShape::threads) cells[i] = window_cell(p, i);
  }
  /// Those of the jobs of some phases.
  __device__ __forceinline__ void set_items(const Phases& phases) const {
#pragma unroll 1
    for (int number = 0; number < p.classes; ++number) {
      const ClassTaps taps = taps_of(p, phases, number);
      const int count = items_of(p, taps);
      if (threadIdx.x == 0) counts[number] = count;
#pragma unroll 1
      for (int i = threadIdx.x; i < count; i += TileShape::threads)
        items[number * p.items + i] = item_at(p, phases, taps, i);
    }
  }
  /// Those of a job.
  __device__ __forceinline__ void set_ranges(const Job& job, const Phases& phases) const {
#pragma unroll 1
    for (int i = threadIdx.x; i < p.classes; i += TileShape::threads)
      ranges[i] = inputs_of(p, job, phases, taps_of(p, phases, i));
  }
};

}  // namespace vox::cuda::conv::mma
