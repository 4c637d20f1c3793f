#pragma once

// conv3d and conv_transpose3d of f32 on the tensor cores of sm_80 and later, in TF32: with operands rounded
// to it (tf32.cu), or split into two TF32 numbers each, as accurate as f32 arithmetic (tf32x3.cu).
//
// Both are one matrix product whose matrix is never in memory ("implicit GEMM"):
//
//   output[m, n] = bias[n] + sum over k of input[m, k] * weight[k, n]
//   m: an image and an output cell     n: an output channel of the group     k: an input channel and a tap
//
// The output is computed phase by phase (below).
//
// What a block owns: 128 cells of one phase times up to 64 channels. Each of its warps owns 32 of the cells,
// in registers. k runs in groups: 8 input channels, one (kd, kh), and a chunk of the taps along w. A group's
// input is one tile in shared memory, [channel][cell], of the block's cells and the `most_halo` after them:
// where in_step is 1, tap t of cell m lies (t * in_tap_step) cells further on. Rows of cells are padded where
// needed so that no tap reads the next row; results there are dropped. (Often no padding is needed: the zeros
// at the end of a row also begin the next.) Each thread loads one cell, so loads coalesce. A pitch of 8
// modulo 32 words lets fragments load from any shift without bank conflicts. Weights come packed in fragment
// order, rounded, by cp.async. A buffer holds two groups, and there are two buffers: the loads of the next
// one are in flight while the products of this one run. Blocks share no results: no atomics, and the bits
// never change.
//
// Split, x = high + low with both in TF32, three products are computed; low * low is smaller than f32's own
// rounding. The input's tile then holds x itself, and fragments are split in registers; weights come as
// pairs. Sums move to f32 registers after a few taps (Note [Truncating sums] in common/operands.cuh). A value
// that is not finite in TF32 sets the flag `failed` (Note [Redo] in call.h). Unsplit: Note [Values that are
// not finite] in common/operands.cuh.
//
// What limits it: each input element still passes through registers once per (kd, kh), and once per tap where
// conv3d has a stride along w. Ideas not tried here: a tile with its halo in all three axes, and wgmma.

#include <voxgrad/core/check.h>
#include <voxgrad/cuda/conv3d/call.h>
#include <voxgrad/cuda/conv3d/common/integers.h>
#include <voxgrad/cuda/conv3d/mma/plan.h>
#include <voxgrad/cuda/runtime/launch.h>
#include <voxgrad/cuda/conv3d/common/operands.cuh>
#include <voxgrad/cuda/conv3d/common/pack.cuh>
#include <voxgrad/cuda/ptx/copies.cuh>
#include <voxgrad/cuda/ptx/mma.cuh>

#include <algorithm>
#include <cstdint>
#include <limits>

namespace vox::cuda::conv::mma {

// ---- What a block owns ------------------------------------------------------------------------------------

constexpr int warps = 4;
constexpr int block_threads = 32 * warps;
static_assert(block_cells == block_threads);  // a thread loads one cell; a warp multiplies 32
constexpr int step_groups = 2;
constexpr int part_taps = 4;  // split: taps that are summed in the tensor core before the sum moves
constexpr int pitch = block_cells + most_halo;
static_assert(pitch % 32 == 8);
// One thread for each channel and each of the cells beyond the block's own, in a buffer.
static_assert(most_halo * step_groups * slice == block_threads);

/// The state of the loops over groups: chunks of taps along w run fastest, slices of channels slowest.
struct Position {
  int slice = 0, d = 0, h = 0, w = 0;

  __device__ __forceinline__ void advance(const Phase& p) {
    w += p.w.chunk;
    if (w < p.w.taps) return;
    w = 0;
    if (++h < p.h.taps) return;
    h = 0;
    if (++d < p.d.taps) return;
    d = 0;
    ++slice;
  }
};

/// What a thread loads of a tile: one cell of the grid, at any tap.
struct Cell {
  const float* image;  // of the group's first channel
  int d, h, w;         // of the input, at the taps' base
  bool exists;

  __device__ __forceinline__ bool inside(int dd, int dh, int dw, const Problem& p) const {
    return exists && static_cast<unsigned>(d + dd) < static_cast<unsigned>(p.axis[0].in_cells) &&
           static_cast<unsigned>(h + dh) < static_cast<unsigned>(p.axis[1].in_cells) &&
           static_cast<unsigned>(w + dw) < static_cast<unsigned>(p.axis[2].in_cells);
  }
  __device__ __forceinline__ const float* at(int dd, int dh, int dw, const Problem& p) const {
    return image + (int64_t{d + dd} * p.axis[1].in_cells + (h + dh)) * p.axis[2].in_cells + (w + dw);
  }
};

/// Cell m of a phase: its image, and its place in the grid.
struct Place {
  int64_t image;
  int d, h, w;
};
__device__ __forceinline__ Place place_of(int64_t m, const Phase& p) {
  const Division by_w = divide(m, p.w.pitch), by_h = divide(by_w.quotient, p.h.cells);
  const Division by_d = divide(by_h.quotient, p.d.cells);
  return {by_d.quotient, static_cast<int>(by_d.remainder), static_cast<int>(by_h.remainder),
          static_cast<int>(by_w.remainder)};
}

// ---- Kernels ----------------------------------------------------------------------------------------------

/// Weights in the order in which lanes read them: [group and block of channels][slice][tap][n / 8][lane][2];
/// split, [...][lane][high 2, low 2].
template <int n_tiles, bool split>
struct Layout {
  Problem p;

  static constexpr int channels = 2;
  int64_t granules() const { return p.groups * p.blocks_n * p.slices * p.taps * n_tiles * 32; }
  constexpr int channel(int c) const { return 4 * c; }
  constexpr int64_t next_part() const { return 8; }
  constexpr Granule at(auto number) const {
    const auto [group, block, at_slice, tap, tile, lane] = digits(
        number,
        {static_cast<int>(p.blocks_n), static_cast<int>(p.slices), static_cast<int>(p.taps), n_tiles, 32});
    return {.group = group,
            .in = at_slice * slice + lane % 4,
            .out = (block * n_tiles + tile) * 8 + lane / 4,
            .tap = tap,
            .to = int64_t{number} * (split ? 16 : 8)};
  }
};

/// A fragment of a warp's input: 32 cells x 8 channels from `from`, which is at the lane's row and column.
__device__ __forceinline__ void load_fragment(uint32_t (&a)[2][4], const uint32_t* from) {
#pragma unroll
  for (int r = 0; r < 2; ++r) {
#pragma unroll
    for (int q = 0; q < 4; ++q) a[r][q] = from[q / 2 * 4 * pitch + r * 16 + q % 2 * 8];
  }
}

/// sum += one tap of a slice: 32 cells x 8 channels x (8 * n_tiles) channels.
template <int n_tiles>
__device__ __forceinline__ void multiply(float (&sum)[2][n_tiles][4], const uint32_t* from,
                                         const float* weights) {
  uint32_t a[2][4];
  load_fragment(a, from);
#pragma unroll
  for (int n = 0; n < n_tiles; ++n) {
    const float2 pair = *reinterpret_cast<const float2*>(weights + n * 64);
    const uint32_t b[2]{__float_as_uint(pair.x), __float_as_uint(pair.y)};
#pragma unroll
    for (int r = 0; r < 2; ++r) ptx::mma_m16n8k8_tf32(sum[r][n], a[r], b);
  }
}

/// The same for split operands, small products first.
template <int n_tiles>
__device__ __forceinline__ void multiply_split(float (&sum)[2][n_tiles][4], const uint32_t* from,
                                               const float* weights) {
  uint32_t high[2][4], low[2][4];
  load_fragment(high, from);
#pragma unroll
  for (int r = 0; r < 2; ++r) {
#pragma unroll
    for (int q = 0; q < 4; ++q) {
      const float whole = __uint_as_float(high[r][q]);
      high[r][q] = tf32_high(whole);
      low[r][q] = tf32_low(whole, high[r][q]);
    }
  }
#pragma unroll
  for (int n = 0; n < n_tiles; ++n) {
    const float4 parts = *reinterpret_cast<const float4*>(weights + n * 128);
    const uint32_t b_high[2]{__float_as_uint(parts.x), __float_as_uint(parts.y)};
    const uint32_t b_low[2]{__float_as_uint(parts.z), __float_as_uint(parts.w)};
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      ptx::mma_m16n8k8_tf32(sum[r][n], low[r], b_high);
      ptx::mma_m16n8k8_tf32(sum[r][n], high[r], b_low);
      ptx::mma_m16n8k8_tf32(sum[r][n], high[r], b_high);
    }
  }
}

template <int n_tiles, bool split>
__global__ void __launch_bounds__(block_threads, split          ? 3
                                                 : n_tiles <= 6 ? 4
                                                                : 3)
    product_kernel(const float* __restrict__ input, const float* __restrict__ packed, const float* bias,
                   float* output, const __grid_constant__ Problem p, int64_t* failed,
                   const int64_t* only_if) {
  if (only_if && *only_if == 0) return;
  constexpr int tap_floats = n_tiles * (split ? 128 : 64);     // of a slice's weights
  __shared__ uint32_t in_tile[2][step_groups * slice][pitch];  // [channel][cell]
  extern __shared__ __align__(16) float w_tile[];              // [2][group][tap of the chunk][n / 8][lane][2]
  __shared__ int64_t out_offset[block_cells];
  __shared__ Phase phase_memory;

  const int thread = threadIdx.x, lane = thread % 32, warp = thread / 32;
  const int row = lane / 4, column = lane % 4;
  const int64_t jobs = p.tiles * p.groups * p.blocks_n * p.phases;
  bool fails = false;

  for (int64_t job = blockIdx.x; job < jobs; job += gridDim.x) {
    // Phases run fastest: those that write to the same lines run at the same time.
    const Division by_phase = divide(job, p.phases);
    const Division by_group = divide(by_phase.quotient, p.groups * p.blocks_n);
    const int64_t tile = by_group.quotient, block_n = by_group.remainder % p.blocks_n;
    const int64_t group = by_group.remainder / p.blocks_n;

    __syncthreads();  // the previous job has read its offsets and its phase
    if (thread < 3) {
      const Division by_w = divide(by_phase.remainder, p.axis[2].phases);
      const Division by_h = divide(by_w.quotient, p.axis[1].phases);
      const int64_t number = thread == 0 ? by_h.quotient : thread == 1 ? by_h.remainder : by_w.remainder;
      PhaseAxis& own = thread == 0 ? phase_memory.d : thread == 1 ? phase_memory.h : phase_memory.w;
      own = phase_axis(p.axis[thread], p.transposed, static_cast<int>(number));
    }
    __syncthreads();
    const Phase& phase = phase_memory;

    const int64_t cells = p.batch * phase.d.cells * phase.h.cells * phase.w.pitch;
    if (tile * block_cells >= cells) continue;  // the largest phase has more tiles

    const auto cell_at = [&](int64_t m) -> Cell {
      const Place j = place_of(m, phase);
      return {input + (j.image * p.groups + group) * p.in_per_group * p.in_cells,
              j.d * phase.d.in_step + phase.d.in_base, j.h * phase.h.in_step + phase.h.in_base,
              j.w * phase.w.in_step + phase.w.in_base, m < cells};
    };
    const Cell own = cell_at(tile * block_cells + thread);
    const Cell beyond = cell_at((tile + 1) * block_cells + thread % most_halo);
    const int beyond_group = thread / most_halo / slice, beyond_channel = thread / most_halo % slice;
    {
      const int64_t m = tile * block_cells + thread;
      const Place j = place_of(m, phase);
      const int64_t d = j.d * phase.d.out_step + phase.d.out_base,
                    h = j.h * phase.h.out_step + phase.h.out_base,
                    w = j.w * phase.w.out_step + phase.w.out_base;
      out_offset[thread] = m < cells && j.w < phase.w.cells
                               ? j.image * p.groups * p.out_per_group * p.out_cells +
                                     (d * p.axis[1].out_cells + h) * p.axis[2].out_cells + w
                               : -1;
    }
    const float* const block_weights =
        packed + (group * p.blocks_n + block_n) * p.slices * p.taps * tap_floats;

    const int chunks = (phase.w.taps + phase.w.chunk - 1) / phase.w.chunk;
    const int64_t groups = p.slices * phase.d.taps * phase.h.taps * chunks;
    const int64_t steps = (groups + step_groups - 1) / step_groups;

    float staged[step_groups][slice], staged_beyond = 0;
    const auto staged_bits = [&](float x) {
      if constexpr (!split) return ptx::to_tf32(x);
      fails |= beyond_tf32(x);
      return __float_as_uint(x);
    };
    Position loading, multiplying;
    const auto chunk_taps = [&](const Position& at) { return min(phase.w.chunk, phase.w.taps - at.w); };
    const auto weights_in = [&](int buffer, int i) {
      return w_tile + (buffer * step_groups + i) * p.chunk * tap_floats;
    };

    // Starts the loads of buffer contents number `s`, into registers and, for the weights, into shared
    // memory.
    const auto load = [&](int64_t s, int buffer) {
#pragma unroll
      for (int i = 0; i < step_groups; ++i) {
        if (s * step_groups + i >= groups) break;
        const Position at = loading;
        const int dd = at.d * phase.d.in_tap_step, dh = at.h * phase.h.in_tap_step,
                  dw = at.w * phase.w.in_tap_step;
        const int64_t channel = int64_t{at.slice} * slice;
        const int left = static_cast<int>(min(int64_t{slice}, p.in_per_group - channel));
        const bool inside = own.inside(dd, dh, dw, p);
        const float* from = own.at(dd, dh, dw, p) + channel * p.in_cells;
#pragma unroll
        for (int c = 0; c < slice; ++c) {
          staged[i][c] = inside && c < left ? *from : 0.0f;
          from += p.in_cells;
        }
        if (phase.w.chunk > 1 && i == beyond_group) {
          const bool only_if = beyond_channel < left && beyond.inside(dd, dh, dw, p);
          staged_beyond = only_if ? beyond.at(dd, dh, dw, p)[(channel + beyond_channel) * p.in_cells] : 0.0f;
        }

        const int taps = chunk_taps(at);
        const int row_of_taps = ((phase.d.first_tap + at.d * phase.d.tap_pace) * p.axis[1].kernel +
                                 phase.h.first_tap + at.h * phase.h.tap_pace) *
                                p.axis[2].kernel;
        const float* const slice_weights = block_weights + at.slice * p.taps * tap_floats;
        for (int t = 0; t < taps; ++t) {
          const int tap = row_of_taps + phase.w.first_tap + (at.w + t) * phase.w.tap_pace;
          const float* weights = slice_weights + int64_t{tap} * tap_floats;
#pragma unroll
          for (int q = 0; q < tap_floats / 4; q += block_threads)
            if (q + thread < tap_floats / 4)
              ptx::cp_async_16(weights_in(buffer, i) + t * tap_floats + 4 * (q + thread),
                               weights + 4 * (q + thread));
        }
        loading.advance(phase);
      }
    };
    const auto store = [&](int64_t s, int buffer) {
#pragma unroll
      for (int i = 0; i < step_groups; ++i) {
        if (s * step_groups + i >= groups) break;
#pragma unroll
        for (int c = 0; c < slice; ++c) in_tile[buffer][i * slice + c][thread] = staged_bits(staged[i][c]);
      }
      if (phase.w.chunk > 1)
        in_tile[buffer][thread / most_halo][block_cells + thread % most_halo] = staged_bits(staged_beyond);
      ptx::cp_async_wait_all();
    };

    float sum[2][n_tiles][4] = {};
    if (steps > 0) {
      load(0, 0);
      store(0, 0);
    }
    __syncthreads();
    for (int64_t s = 0; s < steps; ++s) {
      const int buffer = s % 2;
      const bool more = s + 1 < steps;
      if (more) load(s + 1, buffer ^ 1);
#pragma unroll
      for (int i = 0; i < step_groups; ++i) {
        if (s * step_groups + i >= groups) break;
        const int taps = chunk_taps(multiplying);
        const uint32_t* from = &in_tile[buffer][i * slice + column][warp * 32 + row];
        const float* weights = weights_in(buffer, i) + lane * (split ? 4 : 2);
        if constexpr (split) {
          for (int left = taps; left > 0; left -= part_taps) {
            float part[2][n_tiles][4] = {};
#pragma unroll 1
            for (int t = 0; t < min(left, part_taps); ++t) {
              multiply_split(part, from, weights);
              from += phase.w.in_tap_step;
              weights += tap_floats;
            }
#pragma unroll
            for (int r = 0; r < 2; ++r)
#pragma unroll
              for (int n = 0; n < n_tiles; ++n)
#pragma unroll
                for (int e = 0; e < 4; ++e) sum[r][n][e] += part[r][n][e];
          }
        } else {
#pragma unroll 2
          for (int t = 0; t < taps; ++t) {
            multiply(sum, from, weights);
            from += phase.w.in_tap_step;
            weights += tap_floats;
          }
        }
        multiplying.advance(phase);
      }
      if (more) store(s + 1, buffer ^ 1);
      __syncthreads();
    }

#pragma unroll
    for (int n = 0; n < n_tiles; ++n) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const int64_t in_group = (block_n * n_tiles + n) * 8 + column * 2 + half;
        if (in_group >= p.out_per_group) continue;
        const int64_t channel = group * p.out_per_group + in_group;
        const float first = bias ? bias[channel] : 0.0f;
#pragma unroll
        for (int r = 0; r < 4; ++r) {
          const int64_t offset = out_offset[warp * 32 + r * 8 + row];
          if (offset >= 0) output[offset + channel * p.out_cells] = sum[r / 2][n][r % 2 * 2 + half] + first;
        }
      }
    }
  }
  if constexpr (split)
    if (fails) *failed = 1;
}

// ---- Launchers --------------------------------------------------------------------------------------------

/// The product, in two launches: packing and the product itself.
template <class Operand>
void run(const Conv3dCall& call) {
  constexpr bool split = Operand::parts > 1;
  const auto& [transposed, input, weight, bias, output, g, if_tensor, failed_tensor] = call;
  const Launch launch(call.op(), output, {&input, &weight, &bias, &if_tensor, &failed_tensor});
  const int64_t* const only_if = vox::detail::ptr_or_null<int64_t>(if_tensor);
  int64_t* const failed = split ? vox::detail::mutable_ptr<int64_t>(failed_tensor) : nullptr;
  // Few blocks if the kernel may have nothing to do, because each must start to find that out.
  const int64_t most_blocks = only_if ? 2048 : std::numeric_limits<int64_t>::max();
  visit_channel_tiles<split ? 4 : 8>(transposed ? g.big_per_group() : g.small_per_group(), [&](auto tiles) {
    constexpr int n_tiles = tiles, tap_floats = n_tiles * (split ? 128 : 64);
    const Problem p = problem(g, transposed, n_tiles);
    const int64_t packed_numel =
        checked_numel(call.op(), {p.groups * p.blocks_n, p.slices, p.taps, tap_floats});
    const Workspace packed(launch, packed_numel * static_cast<int64_t>(sizeof(float)));
    pack_weights<Operand>(launch, vox::detail::ptr<float>(weight), packed.as<float>(),
                          weights_of(g, transposed), Layout<n_tiles, split>{p}, failed, only_if);
    const unsigned grid = grid_for(std::min(p.tiles * p.groups * p.blocks_n * p.phases, most_blocks), 1);
    const int shared = 2 * step_groups * p.chunk * tap_floats * static_cast<int>(sizeof(float));
    launch.allow_shared_memory<product_kernel<n_tiles, split>>(shared);
    product_kernel<n_tiles, split><<<grid, block_threads, shared, launch.stream()>>>(
        vox::detail::ptr<float>(input), packed.as<float>(), vox::detail::ptr_or_null<float>(bias),
        vox::detail::mutable_ptr<float>(output), p, failed, only_if);
    launch.check();
  });
}

}  // namespace vox::cuda::conv::mma
