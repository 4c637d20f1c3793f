#pragma once

// conv3d and conv_transpose3d on the tensor cores of every GPU since sm_80, for every stride and dilation.
//
// Both are one matrix product whose matrix is never in memory ("implicit GEMM"):
//
//   output[m, n] = bias[n] + sum over k of input[m, k] * weight[k, n]
//   m: an image and an output cell     n: an output channel of the group     k: an input channel and a tap
//
// The idea: `ldmatrix` takes an address for every row of an operand, 16 bytes that may lie anywhere in shared
// memory. A row is a granule, 8 channels of 16 bits, of any cell. So a window of the input is copied to
// shared memory once, and multiplied as it lies for all taps: a tap is a shift of all eight addresses. The
// input was copied in granules before (granules.cuh); this also rounded it.
//
// What a job is: a box of cells of one phase (Note [One rule for every stride and dilation] in plan.h),
// times up to 64 output channels, in registers; each of its 4 warps has a quarter of the cells. k runs in
// slices: a few granules of channels, and the taps that share a window (Note [Windows] in plan.h). The
// weights come in stages of some of a slice's items (pairs of a tap and a granule). Windows and stages have
// two buffers each, which `cp.async` fills:
//
//   wait for this step's weights, and its window            <- one barrier a step
//   start the next step's weights; at the first step of a slice, the next window
//   multiply: two items are the k of an instruction, 16 channels of one tap, or 8 of two taps
//
// Tables in shared memory say where a window's cells lie in the input, which items there are, and where the
// rows of the product are stored. So the inner loop knows neither axes nor strides. Cells and rows are the
// same for all jobs (cells.h), so a block, which computes many jobs, has them once.
//
// Jobs share no results. Where there are few, several share the sum of one box ("split-K"): each stores
// partial sums, which are added in order afterwards. There are no atomics, and the bits never change.
//
// f32 (F16OfF32, F16Pair) becomes f16, in the scale of a band (Note [Bands] in common/bands.cuh). Each band
// of the input has slices of its own, the smallest numbers first, which are skipped if the window has no
// number in it. Weights are scaled for each output channel.
//
// One part (F16OfF32): the copy has the first band; windows of others, which are rare, are made from the
// tensor itself. Inf and NaN: Note [Values that are not finite] in common/operands.cuh.
//
// Two parts (F16Pair): x = high + low; a window of f32 is split where it lies, as soon as it is there. Sums
// of the three products move to f32 registers after a few instructions (Note [Truncating sums] in
// common/operands.cuh). Tensors and weights out of range set `failed` (Note [Redo] in call.h); so do Inf and
// NaN, which have no parts, because their results are not finite.
//
// What limits it: the rate of mma.sync, which is two thirds of wgmma's on Hopper and all there is elsewhere;
// and shared memory, from which a warp reads its operands again for every tap.
//
// Reading order: plan.h, cells.h, granules.cuh, tables.cuh, this file, store.cuh.

#include <voxgrad/cuda/conv3d/common/bands.cuh>
#include <voxgrad/cuda/conv3d/common/operands.cuh>
#include <voxgrad/cuda/conv3d/mma/granules.cuh>
#include <voxgrad/cuda/conv3d/mma/store.cuh>
#include <voxgrad/cuda/conv3d/mma/tables.cuh>
#include <voxgrad/cuda/ptx/copies.cuh>
#include <voxgrad/cuda/ptx/mma.cuh>
#include <voxgrad/cuda/ptx/shared.cuh>

#include <cstdint>
#include <cstring>

namespace vox::cuda::conv::mma {

struct Operands {
  Granules input;
  const unsigned char* weights;  ///< packed (launch.cuh)
  // Banded only.
  const float* unscale;    ///< 1 / scale of each column of the weights
  const SizeRange* range;  ///< of the input
  const void* tensor;      ///< the input itself, not a copy
};

// ---- Loads ------------------------------------------------------------------------------------------------

/// A part of the sum: a k-block, and a class of taps; of a band.
struct Slice {
  int number, band, k_block, class_of_taps;

  __device__ __forceinline__ Slice(int i, int bands, const Plan& p) : number(i), band(bands - 1) {
    for (; i >= p.slices; i -= p.slices) --band;
    k_block = p.of_slice.quotient(i), class_of_taps = i - k_block * p.classes;
  }
};

/// Tables are read for so many copies before the first of them starts.
constexpr int loads_at_once = 4;

__device__ __forceinline__ void load_window(const Shared& shared, const Granules& input, const Slice& slice) {
  const Plan& p = shared.p;
  const uint32_t window = ptx::shared_address_of(shared.window(slice.number));
  const CellRange range = shared.ranges[slice.class_of_taps];
  for (int i = 0; i < p.k_granules; ++i) {
    const int granule = slice.k_block * p.k_granules + i;
    const uint4* const from = input.data + int64_t{granule} * input.cells + range.first;
    for (int first = threadIdx.x; first < p.window_cells; first += loads_at_once * TileShape::threads) {
      int position[loads_at_once];
      CellEntry cell[loads_at_once];
#pragma unroll
      for (int j = 0; j < loads_at_once; ++j) {
        position[j] = first + j * TileShape::threads;
        cell[j] = shared.cells[min(position[j], p.window_cells - 1)];
      }
#pragma unroll
      for (int j = 0; j < loads_at_once; ++j) {
        const bool exists = granule < p.granules && range.holds(cell[j]);
        ptx::cp_async_16_if(position[j] < p.window_cells, window + 16 * (i * p.window_cells + position[j]),
                            exists ? from + cell[j].offset : input.data, exists);
      }
    }
  }
}

/// Fills a window with the numbers of a band below the first, and zeros, from the tensor `x`. Whether there
/// are any; a barrier.
__device__ __forceinline__ bool load_lower_band(const Shared& shared, const float* x, const Job& job,
                                                const Slice& slice, const Bands& bands) {
  const Plan& p = shared.p;
  const CellRange range = shared.ranges[slice.class_of_taps];
  const int64_t in_cells = int64_t{p.axis[0].in} * p.axis[1].in * p.axis[2].in;
  uint4* const window = reinterpret_cast<uint4*>(shared.window(slice.number));
  bool any = false;
#pragma unroll 1
  for (int i = threadIdx.x; i < p.window_cells * p.k_granules; i += TileShape::threads) {
    const int of_block = i / p.window_cells, channel = (slice.k_block * p.k_granules + of_block) * 8;
    const CellEntry cell = shared.cells[i - of_block * p.window_cells];
    const int64_t sample = int64_t{job.n + Coordinates::image_of(cell.coordinates)} * p.groups + job.group;
    const int64_t place = range.first + cell.offset + (sample * (p.in_per_group - 1) + channel) * in_cells;
    float value[8];
    unsigned most = 0;
#pragma unroll
    for (int c = 0; c < 8; ++c) {
      value[c] = range.holds(cell) && channel + c < p.in_per_group ? x[place + c * in_cells] : 0;
      add_finite(most, value[c]);
    }
    const bool in_band = most > 0 && bands.of(most) == slice.band;
    alignas(16) float16 bits[8];
#pragma unroll
    for (int c = 0; c < 8; ++c) bits[c] = float16(in_band ? value[c] * bands.scale(slice.band) : 0);
    window[i] = *reinterpret_cast<const uint4*>(bits);
    any |= in_band;
  }
  return __syncthreads_or(any);
}

/// Splits the numbers of a window that are in the band, where they lie; others become zeros. Whether there
/// are any; a barrier. The largest of 8 channels decides for all of them.
__device__ __forceinline__ bool split_window(unsigned char* window, const Bands& bands, int band,
                                             bool one_band, const Plan& p) {
  const float scale = bands.scale(band);
  bool any = false;
  for (int pair = 0; pair < p.k_granules; pair += 2)
    for (int i = threadIdx.x; i < p.window_cells; i += TileShape::threads) {
      uint4* const first = reinterpret_cast<uint4*>(window) + pair * p.window_cells + i;
      uint4* const second = first + p.window_cells;
      float x[8];
      load_eight(x, *first, *second);
      bool in_band = one_band;
      if (!one_band) {
        unsigned most = 0;
#pragma unroll
        for (const float value : x) most = max(most, size_bits(value));
        in_band = most > 0 && bands.of(most) == band;
      }
      any |= in_band;
#pragma unroll
      for (float& value : x) value = in_band ? value * scale : 0.0f;
      store_parts(x, *first, *second);
    }
  return __syncthreads_or(any);
}

/// Loads the weights of some items. Those of their k-block begin at `from`.
template <class Block>
__device__ __forceinline__ void load_weights(uint32_t to, const unsigned char* from, const Item* items,
                                             int count) {
  constexpr int pieces = Block::item_bytes / 16;
  for (int first = threadIdx.x; first < count * pieces; first += loads_at_once * TileShape::threads) {
    int piece[loads_at_once], item[loads_at_once];
#pragma unroll
    for (int j = 0; j < loads_at_once; ++j) {
      piece[j] = first + j * TileShape::threads;
      item[j] = items[min(piece[j] / pieces, count - 1)].weights;
    }
#pragma unroll
    for (int j = 0; j < loads_at_once; ++j)
      ptx::cp_async_16_if(piece[j] < count * pieces, to + piece[j] * 16,
                          from + (int64_t{max(item[j], 0)} * pieces + piece[j] % pieces) * 16, item[j] >= 0);
  }
}

// ---- Products ---------------------------------------------------------------------------------------------

/// sum += the products of `pairs` pairs of items; of two parts, low_sum += those with a low part, times 2^11.
/// Lanes 0 to 15 address the first granule of 16 rows, the others the second; for weights lanes 0 to 7 and 16
/// to 23 address the first item, the others the second. `row`: the addresses of the lane's rows, at tap 0.
template <class Block>
__device__ __forceinline__ void multiply(typename Block::Sums& sum, typename Block::Sums& low_sum,
                                         const uint32_t (&row)[Block::m_tiles], uint32_t weights,
                                         const Item* items, int pairs, const Plan& p) {
  using Operand = typename Block::Operand;
  const int lane = threadIdx.x % 32;
  weights += lane / 8 % 2 * Block::item_bytes + (lane % 8 + lane / 16 * 8) * 16;
  items += lane / 16;
  constexpr int at_once = Block::parts == 1 ? 2 : 1;
#pragma unroll at_once
  for (int pair = 0; pair < pairs; ++pair, items += 2, weights += 2 * Block::item_bytes) {
    uint32_t b[Block::parts][Block::n_tiles / 2][4];
#pragma unroll
    for (int part = 0; part < Block::parts; ++part)
#pragma unroll
      for (int j = 0; j < Block::n_tiles / 2; ++j)
        ptx::load_matrices(b[part][j], weights + part * Block::part_bytes + j * 256);
    const int item = items->window;
#pragma unroll
    for (int t = 0; t < Block::m_tiles; ++t) {
      uint32_t a[4];
      const uint32_t at = row[t] + item;
      ptx::load_matrices(a, at);
      const auto multiply_by = [&](auto& to, const uint32_t(&by)[Block::n_tiles / 2][4]) {
#pragma unroll
        for (int n = 0; n < Block::n_tiles; ++n)
          ptx::mma_m16n8k16<Operand::operand>(to[t][n], a, by[n / 2][n % 2 * 2], by[n / 2][n % 2 * 2 + 1]);
      };
      multiply_by(sum, b[0]);
      if constexpr (Block::parts == 2) {
        multiply_by(low_sum, b[1]);
        ptx::load_matrices(a, at + 16 * p.window_cells);  // the next granule, of low parts
        multiply_by(low_sum, b[0]);
      }
    }
  }
}

/// sum += other * scale
template <class Block>
__device__ __forceinline__ void add(typename Block::Sums& sum, const typename Block::Sums& other,
                                    float scale) {
#pragma unroll
  for (int t = 0; t < Block::m_tiles; ++t)
#pragma unroll
    for (int n = 0; n < Block::n_tiles; ++n)
#pragma unroll
      for (int e = 0; e < 4; ++e) sum[t][n][e] = fmaf(other[t][n][e], scale, sum[t][n][e]);
}

/// sum *= scale
template <class Block>
__device__ __forceinline__ void multiply(typename Block::Sums& sum, float scale) {
#pragma unroll
  for (int t = 0; t < Block::m_tiles; ++t)
#pragma unroll
    for (int n = 0; n < Block::n_tiles; ++n)
#pragma unroll
      for (float& x : sum[t][n]) x *= scale;
}

constexpr int part_pairs = 4;  // of two parts: instructions whose sum stays in the tensor core

/// The same for a step; of two parts, for a few pairs at a time, whose sums are multiplied by `unscale`. The
/// sums of products with a low part are so small that their truncation does not matter.
template <class Block>
__device__ __forceinline__ void multiply_step(typename Block::Sums& sum, typename Block::Sums& low_sum,
                                              const int (&position)[Block::m_tiles], uint32_t window,
                                              uint32_t weights, const Item* items, int pairs, float unscale,
                                              const Plan& p) {
  uint32_t row[Block::m_tiles];
#pragma unroll
  for (int t = 0; t < Block::m_tiles; ++t) row[t] = window + 16 * position[t];
  if constexpr (Block::parts == 1) {
    multiply<Block>(sum, low_sum, row, weights, items, pairs, p);
  } else {
    for (int done = 0; done < pairs; done += part_pairs) {
      typename Block::Sums part = {};
      multiply<Block>(part, low_sum, row, weights + done * 2 * Block::item_bytes, items + done * 2,
                      min(pairs - done, part_pairs), p);
      add<Block>(sum, part, unscale);
    }
  }
}

// ---- The kernel -------------------------------------------------------------------------------------------

/// A job, whose tables are set.
template <class Block>
__device__ __forceinline__ void compute(const Shared& shared, const Operands& operands, const Job& job,
                                        const Phases& phases, const Output<typename Block::Storage>& output,
                                        float* partials, int64_t outputs) {
  const Plan& p = shared.p;
  int position[Block::m_tiles];  // of the lane's row of each tile, in the window
#pragma unroll
  for (int t = 0; t < Block::m_tiles; ++t)
    position[t] = shared.rows[(threadIdx.x / 32 * Block::m_tiles + t) * 16 + threadIdx.x % 16].position;

  const Bands bands(Block::banded ? operands.range->largest : 0);
  const int all_bands = Block::banded ? bands.count(*operands.range) : 1;
  const Steps steps = steps_of(p, job, shared.counts[0], all_bands);
  const int64_t k_block_bytes = int64_t{p.taps} * (p.k_granules / p.item_granules) * Block::item_bytes;
  const unsigned char* const weights =
      operands.weights +
      (int64_t{job.group} * p.column_blocks + job.column_block) * p.k_blocks * k_block_bytes;
  // The items of a step: those of a stage, or fewer at the end of a slice.
  const auto items_at = [&](const Slice& slice, int stage) {
    return shared.items + slice.class_of_taps * p.items + stage * p.stage_items;
  };
  const auto count_at = [&](const Slice& slice, int stage) {
    return max(min(shared.counts[slice.class_of_taps] - stage * p.stage_items, p.stage_items), 0);
  };
  const auto load_input = [&](const Slice& slice) {
    if (Block::parts == 2 || slice.band == 0) load_window(shared, operands.input, slice);
  };
  const auto load = [&](int step, const Slice& slice, int stage) {
    load_weights<Block>(ptx::shared_address_of(shared.stage(step)), weights + slice.k_block * k_block_bytes,
                        items_at(slice, stage), count_at(slice, stage));
  };

  bool in_band = true;  // the window has numbers to multiply
  Slice slice(steps.begin / max(steps.of_slice, 1), all_bands, p);
  int band = slice.band;
  const auto unscale = [&] { return F16x3::inverse(bands.scale(band)); };
  typename Block::Sums sum = {}, low_sum = {};  // of one part, in the scale of the band
  int stage = steps.begin - slice.number * steps.of_slice;
  if (steps.begin < steps.end) {
    load_input(slice);
    load(steps.begin, slice, stage);
  }
  for (int step = steps.begin; step < steps.end; ++step) {
    ptx::cp_async_wait_all();
    __syncthreads();
    const Slice next(slice.number + 1, all_bands, p);
    const bool first = step == steps.begin || stage == 0, last = stage + 1 == steps.of_slice;
    if (step + 1 < steps.end) load(step + 1, last ? next : slice, last ? 0 : stage + 1);
    if (first && next.number * steps.of_slice < steps.end) load_input(next);
    if constexpr (Block::banded) {
      if (first && Block::parts == 2)
        in_band = split_window(shared.window(slice.number), bands, slice.band, all_bands == 1, p);
      else if (first)
        in_band = slice.band == 0 ||
                  load_lower_band(shared, static_cast<const float*>(operands.tensor), job, slice, bands);
      if (slice.band != band) {
        if constexpr (Block::parts == 2) {
          add<Block>(sum, low_sum, unscale() * 0x1p-11f);
          std::memset(low_sum, 0, sizeof(low_sum));
        } else {
          multiply<Block>(sum, unscale() * bands.scale(slice.band));
        }
        band = slice.band;
      }
    }
    if (in_band)
      multiply_step<Block>(sum, low_sum, position, ptx::shared_address_of(shared.window(slice.number)),
                           ptx::shared_address_of(shared.stage(step)), items_at(slice, stage),
                           count_at(slice, stage) / 2, unscale(), p);
    if (last) slice = next;
    stage = last ? 0 : stage + 1;
  }

  if constexpr (Block::parts == 2) add<Block>(sum, low_sum, unscale() * 0x1p-11f);
  __syncthreads();  // all products are done: the sums take the place of the operands
  const auto store = [&](const auto& to) {
    p.quads ? store_sums<4, Block>(sum, shared, job, phases, unscale(), operands.unscale, to)
            : store_sums<1, Block>(sum, shared, job, phases, unscale(), operands.unscale, to);
  };
  if (p.splits == 1)
    store(output);
  else
    store(Output<float>{nullptr, partials + job.split * outputs, nullptr});
}

/// With splits, sums go to `partials`, of `outputs` each.
template <class Block>
__global__ void __launch_bounds__(TileShape::threads, Block::shape.most_resident(Block::parts))
    product_kernel(const Operands operands, const Output<typename Block::Storage> output, float* partials,
                   int64_t outputs, const __grid_constant__ Plan p, const int64_t* only_if) {
  if (only_if && *only_if == 0) return;
  if constexpr (Block::parts == 2)
    if (!Bands::hold(operands.range->largest)) *output.failed = 1;
  extern __shared__ __align__(128) unsigned char memory[];
  const Shared shared(memory, Block::shape.rows(), p);
  __shared__ Phases phases;
  shared.set_cells(Block::shape.rows());
  int of_phases[3]{-1, -1, -1};  // the numbers of those that items were set for
  for (int64_t i = blockIdx.x; i < p.jobs; i += gridDim.x) {
    const Job job = job_of(p, narrow(i));
    __syncthreads();  // the sums of the previous job have been stored
    bool same = true;
#pragma unroll
    for (int axis = 0; axis < 3; ++axis) {
      same &= job.number[axis] == of_phases[axis];
      of_phases[axis] = job.number[axis];
    }
    if (!same) {
#pragma unroll
      for (int axis = 0; axis < 3; ++axis)
        if (threadIdx.x == axis) phases[axis] = phase_of(p.axis[axis], p.transposed, job.number[axis]);
      __syncthreads();
      shared.set_items(phases);
    }
    // The largest phase may have more tiles than this one.
    bool exists = true;
#pragma unroll
    for (int axis = 0; axis < 3; ++axis) exists &= job.q[axis] < phases[axis].cells;
    if (!exists) continue;
    shared.set_ranges(job, phases);
    __syncthreads();
    compute<Block>(shared, operands, job, phases, output, partials, outputs);
  }
}

}  // namespace vox::cuda::conv::mma
