#pragma once

// conv3d and conv_transpose3d on the tensor cores of every GPU since sm_80, for every stride and dilation.
//
// Both are one matrix product whose matrix is never in memory ("implicit GEMM"):
//
//   output[m, n] = bias[n] + sum over k of input[m, k] * weight[k, n]
//   m: an image and an output cell     n: an output channel of the group     k: an input channel and a tap
//
// The idea: `ldmatrix` takes an address for every row of an operand, 16 bytes that may lie anywhere in shared
// memory. With the channels last, a row is a granule (8 channels of 16 bits, or 4 of TF32) of any cell. So a
// window of the input is copied to shared memory once, and multiplied as it lies for all taps: a tap is a
// shift of all eight addresses. The input was copied with its channels last before
// (common/channels_last.cuh); this also rounded it.
//
// What a block owns: a box of cells of one phase (Note [One rule for every stride and dilation] in plan.h),
// times up to 64 output channels, in registers; each of its 4 warps has a quarter of the cells. k runs in
// slices: a few granules of channels, and the taps that share a window (Note [Windows] in plan.h). The
// weights come in stages of some of a slice's items (pairs of a tap and a granule). Windows and stages have
// two buffers each, which `cp.async` fills:
//
//   wait for this step's weights, and its window            <- one barrier a step
//   start the next step's weights; at the first step of a slice, the next window
//   multiply: two items are the k of an instruction, 8 or 16 channels of one tap, or of two taps
//
// Tables in shared memory say where a window's cells lie in the input, which items there are, and where the
// rows of the product are stored. So the inner loop knows neither axes nor strides.
//
// Blocks share no results. Where there are few, several share the sum of one box ("split-K"): each stores
// partial sums, which are added in order afterwards. There are no atomics, and the bits never change.
//
// Split operands (F16Pair): x = high + low, three products, in the scale of a band (Note [Bands] in
// common/bands.cuh). A window of f32 is split where it lies, as soon as it is there; each band of the input
// has slices of its own, which are skipped if the window has no number in it. Weights come in parts, scaled
// for each output channel. Sums move to f32 registers after a few instructions (Note [Truncating sums] in
// common/operands.cuh). A value that cannot be split makes its results Inf or NaN, which sets `failed` (Note
// [Redo] in call.h); so do weights out of range (common/pack.cuh). Unsplit: Note [Values that are not finite]
// in common/operands.cuh.
//
// What limits it: the rate of mma.sync, which is two thirds of wgmma's on Hopper and all there is elsewhere;
// and shared memory, from which a warp reads its operands again for every tap.

#include <voxgrad/cuda/conv3d/mma/plan.h>
#include <voxgrad/cuda/conv3d/common/bands.cuh>
#include <voxgrad/cuda/conv3d/common/operands.cuh>
#include <voxgrad/cuda/packet.cuh>
#include <voxgrad/cuda/ptx/copies.cuh>
#include <voxgrad/cuda/ptx/mma.cuh>
#include <voxgrad/cuda/ptx/shared.cuh>

#include <cstdint>
#include <type_traits>

namespace vox::cuda::conv::mma {

// ---- What a block owns ------------------------------------------------------------------------------------

template <class Operand>
constexpr bool is_split = Operand::weight_parts > 1;

/// `Storage` is the type of the output's elements.
template <class Storage_, class Operand_, int m_tiles_, int n_tiles_>
struct Block {
  using Storage = Storage_;
  using Operand = Operand_;
  static constexpr int m_tiles = m_tiles_, n_tiles = n_tiles_, parts = Operand::weight_parts;
  static constexpr TileShape shape{m_tiles, n_tiles};
  static constexpr int part_bytes = shape.columns() * 16, item_bytes = parts * part_bytes;

  static constexpr bool split = is_split<Operand>;

  using Sums = float[m_tiles][n_tiles][4];
};

struct Operands {
  const uint4* input;            ///< granules, channels last
  const unsigned char* weights;  ///< packed (launch.cuh)
  // Split only.
  const float* unscale;    ///< 1 / scale of each column of the weights
  const SizeRange* range;  ///< of the input
};

/// The block's shared memory; sizes are those of set_memory in plan.cpp.
struct Shared {
  unsigned char* memory;
  RowPlace* rows;  ///< of the product
  Item* items;     ///< of each class
  int* counts;     ///< of each class: its items
  int* input;      ///< of each class's window: the granules of the first k-block; -1: zeros
  const Plan& p;

  __device__ __forceinline__ Shared(unsigned char* all, int tile_rows, const Plan& plan)
      : memory(all),
        rows(reinterpret_cast<RowPlace*>(all + plan.tables_at)),
        items(reinterpret_cast<Item*>(rows + tile_rows)),
        counts(reinterpret_cast<int*>(items + plan.classes * plan.items)),
        input(counts + plan.classes),
        p(plan) {}
  __device__ __forceinline__ unsigned char* window(int slice) const {
    return memory + slice % 2 * p.window_bytes;
  }
  __device__ __forceinline__ unsigned char* stage(int step) const {
    return memory + 2 * p.window_bytes + step % 2 * p.stage_bytes;
  }
};

/// Fills the tables for a job.
template <class Block>
__device__ __forceinline__ void set_tables(const Shared& shared, const Job& job, const Phases& phases) {
  constexpr int rows = Block::shape.rows(), threads = TileShape::threads;
  const Plan& p = shared.p;
  const int thread = threadIdx.x;
#pragma unroll 1
  for (int row = thread; row < rows; row += threads) shared.rows[row] = row_at(p, job, phases, row);
#pragma unroll 1
  for (int number = 0; number < p.classes; ++number) {
    const ClassTaps taps = taps_of(p, phases, number);
    const int items = items_of(p, taps);
    if (thread == 0) shared.counts[number] = items;
#pragma unroll 1
    for (int i = thread; i < items; i += threads)
      shared.items[number * p.items + i] = item_at(p, phases, taps, i);
  }
#pragma unroll 2
  for (int i = thread; i < p.classes * p.window_cells; i += threads)
    shared.input[i] = input_at(p, job, phases, i);
}

// ---- Loads ------------------------------------------------------------------------------------------------

/// A part of the sum: a k-block, and a class of taps; of a band.
struct Slice {
  int number, band, k_block, class_of_taps;

  __device__ __forceinline__ Slice(int i, const Plan& p)
      : number(i),
        band(i < p.slices ? 0 : i / p.slices),
        k_block(p.of_slice.quotient(i - band * p.slices)),
        class_of_taps(i - band * p.slices - k_block * p.classes) {}
};

__device__ __forceinline__ void load_window(const Shared& shared, const uint4* input, const Slice& slice) {
  const Plan& p = shared.p;
  const uint32_t window = ptx::shared_address_of(shared.window(slice.number));
  const int* const from_table = shared.input + slice.class_of_taps * p.window_cells;
  const int first = slice.k_block * p.k_granules, here = p.granules - first;  // granules of a cell
  for (int i = threadIdx.x; i < p.window_cells * p.k_granules; i += TileShape::threads) {
    const int position = p.of_k_block.quotient(i), granule = i - position * p.k_granules;
    const int from = from_table[position];
    const bool exists = from >= 0 && granule < here;
    ptx::cp_async_16_or_zeros(window + place_of(p, position, granule),
                              input + (exists ? from + first + granule : 0), exists);
  }
}

/// Splits the numbers of a window that are in the band, where they lie; others become zeros. Whether there
/// are any; a barrier. The largest of 8 channels decides for all of them.
__device__ __forceinline__ bool split_window(unsigned char* window, const Bands& bands, int band,
                                             const Plan& p) {
  const float scale = bands.scale(band);
  bool any = false;
  for (int i = 2 * threadIdx.x; i < p.window_cells * p.k_granules; i += 2 * TileShape::threads) {
    const int position = p.of_k_block.quotient(i), granule = i - position * p.k_granules;
    uint4& first = *reinterpret_cast<uint4*>(window + place_of(p, position, granule));
    uint4& second = *reinterpret_cast<uint4*>(window + place_of(p, position, granule + 1));
    float x[8];
    load_eight(x, first, second);
    unsigned most = 0;
#pragma unroll
    for (const float value : x) most = max(most, size_bits(value));
    const bool in_band = most > 0 && bands.of(most) == band;
    any |= in_band;
#pragma unroll
    for (float& value : x) value = in_band ? value * scale : 0.0f;
    store_parts(x, first, second);
  }
  return __syncthreads_or(any);
}

/// Loads the weights of some items. Those of their k-block begin at `from`.
template <class Block>
__device__ __forceinline__ void load_weights(uint32_t to, const unsigned char* from, const Item* items,
                                             int count) {
  constexpr int pieces = Block::item_bytes / 16;
  for (int i = threadIdx.x; i < count * pieces; i += TileShape::threads) {
    const int item = items[i / pieces].weights, piece = i % pieces;
    ptx::cp_async_16_or_zeros(to + i * 16, from + (int64_t{max(item, 0)} * pieces + piece) * 16, item >= 0);
  }
}

// ---- Products ---------------------------------------------------------------------------------------------

template <class Operand>
__device__ __forceinline__ void multiply_tile(float (&sum)[4], const uint32_t (&a)[4], uint32_t b0,
                                              uint32_t b1) {
  if constexpr (sizeof(typename Operand::Element) == 4) {
    const uint32_t b[2]{b0, b1};
    ptx::mma_m16n8k8_tf32(sum, a, b);
  } else {
    ptx::mma_m16n8k16<Operand::operand>(sum, a, b0, b1);
  }
}

/// sum += the products of `pairs` pairs of items; split, low_sum += those with a low part, times 2^11. Lanes
/// 0 to 15 address the first granule of 16 rows, the others the second; for weights lanes 0 to 7 and 16 to 23
/// address the first item, the others the second.
template <class Block>
__device__ __forceinline__ void multiply(typename Block::Sums& sum, typename Block::Sums& low_sum,
                                         const int (&position)[Block::m_tiles], uint32_t window,
                                         uint32_t weights, const Item* items, int pairs, const Plan& p) {
  using Operand = typename Block::Operand;
  const int lane = threadIdx.x % 32;
  weights += lane / 8 % 2 * Block::item_bytes + (lane % 8 + lane / 16 * 8) * 16;
  items += lane / 16;
  constexpr int at_once = Block::split ? 1 : 2;
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
      const uint32_t at = window + place_of(p, position[t] + (item >> 3), item & 7);
      ptx::load_matrices(a, at);
      const auto multiply_by = [&](auto& to, const uint32_t(&by)[Block::n_tiles / 2][4]) {
#pragma unroll
        for (int n = 0; n < Block::n_tiles; ++n)
          multiply_tile<Operand>(to[t][n], a, by[n / 2][n % 2 * 2], by[n / 2][n % 2 * 2 + 1]);
      };
      multiply_by(sum, b[0]);
      if constexpr (Block::split) {
        multiply_by(low_sum, b[1]);
        ptx::load_matrices(a, at ^ 16);  // the next granule, of low parts: see place_of
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

constexpr int part_pairs = 4;  // split: instructions whose sum stays in the tensor core

/// The same for a step; split, for a few pairs at a time, whose sums are multiplied by `unscale`. The sums of
/// products with a low part are so small that their truncation does not matter.
template <class Block>
__device__ __forceinline__ void multiply_step(typename Block::Sums& sum, typename Block::Sums& low_sum,
                                              const int (&position)[Block::m_tiles], uint32_t window,
                                              uint32_t weights, const Item* items, int pairs, float unscale,
                                              const Plan& p) {
  if constexpr (!Block::split) {
    multiply<Block>(sum, low_sum, position, window, weights, items, pairs, p);
  } else {
    for (int done = 0; done < pairs; done += part_pairs) {
      typename Block::Sums part = {};
      multiply<Block>(part, low_sum, position, window, weights + done * 2 * Block::item_bytes,
                      items + done * 2, min(pairs - done, part_pairs), p);
      add<Block>(sum, part, unscale);
    }
  }
}

// ---- The store --------------------------------------------------------------------------------------------

/// Where sums go.
template <class Storage>
struct Output {
  const Storage* bias;
  Storage* output;
  int64_t* failed;  ///< split operands only

  /// Stores neighbours of a channel, times `scale`.
  template <int count>
  __device__ __forceinline__ void store(int64_t element, int channel, const Packet<float, count>& sums,
                                        float scale) const {
    Packet<Storage, count> rounded;
    const float first = bias ? static_cast<float>(bias[channel]) : 0.0f;
#pragma unroll
    for (int i = 0; i < count; ++i) {
      const float value = fmaf(sums.lane[i], scale, first);
      if (failed && !(fabsf(value) < __uint_as_float(0x7f800000))) *failed = 1;
      rounded.lane[i] = Storage(value);
    }
    *reinterpret_cast<Packet<Storage, count>*>(output + element) = rounded;
  }
};

/// Stores a warp's sums. Eight channels at a time pass through shared memory, [channel][row], so that lanes
/// store neighbouring rows: a row each, or four where four are always neighbours in memory.
template <class Block, class Storage>
__device__ __forceinline__ void store_sums(const typename Block::Sums& sum, const Shared& shared,
                                           const Job& job, const float* unscale,
                                           const Output<Storage>& output) {
  constexpr int rows = Block::m_tiles * 16, pitch = rows + 4;
  const Plan& p = shared.p;
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  float* const staged = reinterpret_cast<float*>(shared.memory) + warp * 8 * pitch;
  const RowPlace* const places = shared.rows + warp * rows;
  const int64_t out_cells = int64_t{p.axis[0].out} * p.axis[1].out * p.axis[2].out;
  const auto store = [&]<int count>(int first_channel) {
    for (int i = lane * count; i < 8 * rows; i += 32 * count) {
      const int row = i % rows, channel = first_channel + i / rows;
      const int64_t to = places[row].output;
      if (to >= 0 && channel < p.out_per_group)
        output.template store<count>(
            to + channel * out_cells, job.group * p.out_per_group + channel,
            *reinterpret_cast<const Packet<float, count>*>(staged + i / rows * pitch + row),
            Block::split ? unscale[job.group * p.column_blocks * p.columns + channel] : 1);
    }
  };
#pragma unroll
  for (int n = 0; n < Block::n_tiles; ++n) {
#pragma unroll
    for (int t = 0; t < Block::m_tiles; ++t)
#pragma unroll
      for (int e = 0; e < 4; ++e)
        staged[(lane % 4 * 2 + e % 2) * pitch + t * 16 + e / 2 * 8 + lane / 4] = sum[t][n][e];
    __syncwarp();
    const int first_channel = job.column_block * Block::shape.columns() + n * 8;
    p.quads ? store.template operator()<4>(first_channel) : store.template operator()<1>(first_channel);
    __syncwarp();
  }
}

// ---- The kernel -------------------------------------------------------------------------------------------

template <class Block>
__device__ __forceinline__ void compute(const Shared& shared, const Operands& operands, const Job& job,
                                        const Phases& phases, const Output<typename Block::Storage>& output,
                                        float* partials, int64_t outputs) {
  const Plan& p = shared.p;
  set_tables<Block>(shared, job, phases);
  __syncthreads();
  int position[Block::m_tiles];  // of the lane's row of each tile, in the window
#pragma unroll
  for (int t = 0; t < Block::m_tiles; ++t)
    position[t] = shared.rows[(threadIdx.x / 32 * Block::m_tiles + t) * 16 + threadIdx.x % 16].position;

  const Bands bands(Block::split ? operands.range->largest : 0);
  const Steps steps = steps_of(p, job, phases, Block::split ? bands.of(~operands.range->not_least) + 1 : 1);
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
  const auto load = [&](int step) {
    const Slice slice(step / steps.of_slice, p);
    const int stage = step - slice.number * steps.of_slice;
    load_weights<Block>(ptx::shared_address_of(shared.stage(step)), weights + slice.k_block * k_block_bytes,
                        items_at(slice, stage), count_at(slice, stage));
  };

  bool in_band = true;  // the window has numbers to multiply
  int band = 0;
  const auto unscale = [&] { return F16x3::inverse(bands.scale(band)); };
  typename Block::Sums sum = {}, low_sum = {};
  if (steps.begin < steps.end) {
    load_window(shared, operands.input, Slice(steps.begin / steps.of_slice, p));
    load(steps.begin);
  }
  for (int step = steps.begin; step < steps.end; ++step) {
    ptx::cp_async_wait_all();
    __syncthreads();
    if (step + 1 < steps.end) load(step + 1);
    const Slice slice(step / steps.of_slice, p);
    const int stage = step - slice.number * steps.of_slice;
    const bool first = step == steps.begin || stage == 0;
    if (first && (slice.number + 1) * steps.of_slice < steps.end)
      load_window(shared, operands.input, Slice(slice.number + 1, p));
    if constexpr (Block::split) {
      if (first) in_band = split_window(shared.window(slice.number), bands, slice.band, p);
      if (slice.band != band) {
        add<Block>(sum, low_sum, unscale() * 0x1p-11f);
        std::memset(low_sum, 0, sizeof(low_sum)), band = slice.band;
      }
    }
    if (in_band)
      multiply_step<Block>(sum, low_sum, position, ptx::shared_address_of(shared.window(slice.number)),
                           ptx::shared_address_of(shared.stage(step)), items_at(slice, stage),
                           count_at(slice, stage) / 2, unscale(), p);
  }

  if constexpr (Block::split) add<Block>(sum, low_sum, unscale() * 0x1p-11f);
  __syncthreads();  // all products are done: the sums take the place of the operands
  if (p.splits == 1)
    store_sums<Block>(sum, shared, job, operands.unscale, output);
  else
    store_sums<Block>(sum, shared, job, operands.unscale,
                      Output<float>{nullptr, partials + job.split * outputs, nullptr});
}

/// With splits, sums go to `partials`, of `outputs` each.
template <class Block>
__global__ void __launch_bounds__(TileShape::threads, Block::shape.most_resident(Block::split))
    product_kernel(const Operands operands, const Output<typename Block::Storage> output, float* partials,
                   int64_t outputs, const __grid_constant__ Plan p, const int64_t* only_if) {
  if (only_if && *only_if == 0) return;
  if constexpr (Block::split)
    if (!Bands::hold(operands.range->largest)) *output.failed = 1;
  extern __shared__ __align__(128) unsigned char memory[];
  const Shared shared(memory, Block::shape.rows(), p);
  __shared__ Phases phases;
  for (int block = static_cast<int>(blockIdx.x); block < p.blocks; block += static_cast<int>(gridDim.x)) {
    const Job job = job_of(p, block);
    __syncthreads();  // the tables of the previous job have been read
#pragma unroll
    for (int i = 0; i < 3; ++i)
      if (threadIdx.x == i) phases[i] = phase_of(p.axis[i], p.transposed, job.number[i]);
    __syncthreads();
    // The largest phase may have more tiles than this one.
    bool exists = true;
#pragma unroll
    for (int i = 0; i < 3; ++i) exists &= job.q[i] < phases[i].cells;
    if (exists) compute<Block>(shared, operands, job, phases, output, partials, outputs);
  }
}

}  // namespace vox::cuda::conv::mma
