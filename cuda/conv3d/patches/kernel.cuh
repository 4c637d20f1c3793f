#pragma once

// conv3d and conv_transpose3d of patches: the kernel equals the stride, so that every fine cell has one tap.
// A product for each image, on the tensor cores of any GPU since sm_80 (mma.sync):
//
//   conv3d            small[cs, i] = sum over (cb, k) of weight[cs, cb, k] * big[cb, i * kernel + k]
//   conv_transpose3d  big[cb, i * kernel + k] = sum over cs of weight[cs, cb, k] * small[cs, i]
//
// There is so little to multiply that moving the bytes should take all the time. Cells go from global memory
// to the operands of the instruction and back, 16 bytes (or 8) at a time, and never through shared memory:
// the instruction does not care which cell is which of its 8 columns. A *run* is what a lane loads of a row,
// 4 or 8 cells. Cell j of the runs of 8 lanes are the columns of instruction j. Then the sums that a lane
// has are whole runs too.
//
//   kernel.w  pass              loads         a word of the operand          stores
//   2         conv3d            16 B of big   the two taps of a cell         16 B, two runs of 4 cells
//   2         conv_transpose3d   8 B of small a cell of two channels         16 B, one run with both taps
//   1         both              16 B          a cell of two rows             16 B, one run of 8 cells
//
// For conv_transpose3d with kernel.w = 2, rows r and r + 8 of an instruction are the two taps of one row of
// big. Their sums are in one thread, which packs them into a word.
//
// What a block owns: `m_tiles` x 16 rows of the product, and runs of cells, in turn. It loads its weights to
// shared memory once, in the order of the instruction's registers. What a warp owns: 32 or 64 cells, of all
// rows of the block (`resident`) or `m_step` x 16 of them. It loads the input of `ahead` steps of the
// sum before it multiplies. Either this is the whole input, which then stays in registers for all rows, or
// each step is replaced by the one `ahead` steps later as soon as it was multiplied, which
// continues with the warp's next cells.
//
// Values that are not finite: zeros stand for rows that do not exist, in both operands. So an Inf or NaN of
// one side never meets a zero of the other, except in sums that are dropped.

#include <voxgrad/core/half.h>
#include <voxgrad/cuda/conv3d/patches/plan.h>
#include <voxgrad/cuda/ptx/mma.cuh>
#include <voxgrad/cuda/ptx/registers.cuh>

#include <type_traits>

namespace vox::cuda::conv::patches {

// ---- Helpers ----------------------------------------------------------------------------------------------

template <class T>
constexpr ptx::Operand operand_of = std::is_same_v<T, bfloat16> ? ptx::Operand::bf16 : ptx::Operand::f16;

/// Two 16-bit numbers of two words: the lower ones, or the upper ones.
template <int upper>
__device__ __forceinline__ uint32_t pair(uint32_t low, uint32_t high) {
  return __byte_perm(low, high, upper ? 0x7632 : 0x5410);
}

/// `bytes` (8 or 16) as words, or zeros unless `exist`. The address is aligned.
template <int bytes>
__device__ __forceinline__ void load(uint32_t (&words)[bytes / 4], const void* from, bool exist) {
  using Vector = std::conditional_t<bytes == 16, uint4, uint2>;
  Vector v{};
  if (exist) v = __ldg(static_cast<const Vector*>(from));
  words[0] = v.x, words[1] = v.y;
  if constexpr (bytes == 16) words[2] = v.z, words[3] = v.w;
}

// ---- Weights ----------------------------------------------------------------------------------------------

/// A lane's operand of one instruction: 16 rows of the output, and one step of the sum.
template <int in_w, int out_w, class T>
__device__ __forceinline__ uint4 weights_of(const T* weight, const Plan& p, int m_tile, int step, int lane) {
  const int g = lane / 4, t = lane % 4;
  // The weight's bits, 16 or (with both taps along w) 32; 0 if a row does not exist.
  const auto at = [&](int out, int in) -> uint32_t {
    if (out >= p.out_rows || in >= p.in_rows) return 0;
    const T* const from = weight + in * p.weight_in + out * p.weight_out;
    if constexpr (in_w * out_w == 2)
      return __ldg(reinterpret_cast<const uint32_t*>(from));
    else
      return __ldg(reinterpret_cast<const uint16_t*>(from));
  };
  if constexpr (in_w == 2) {
    const int out = m_tile * 16 + g, in = step * 8 + t;
    return make_uint4(at(out, in), at(out + 8, in), at(out, in + 4), at(out + 8, in + 4));
  } else if constexpr (out_w == 2) {
    const int out = m_tile * 8 + g, in = step * 16 + 2 * t;
    const uint32_t a = at(out, in), b = at(out, in + 1), c = at(out, in + 8), d = at(out, in + 9);
    return make_uint4(pair<0>(a, b), pair<1>(a, b), pair<0>(c, d), pair<1>(c, d));
  } else {
    const int out = m_tile * 16 + g, in = step * 16 + 2 * t;
    const auto two = [&](int o, int i) { return pair<0>(at(o, i), at(o, i + 1)); };
    return make_uint4(two(out, in), two(out + 8, in), two(out, in + 8), two(out + 8, in + 8));
  }
}

// ---- The kernel -------------------------------------------------------------------------------------------

/// `in_w` and `out_w`: kernel.w on the side of the input and of the output; the other one is 1.
template <class T, int in_w, int out_w, int m_step, int ahead, bool resident>
__global__ void __launch_bounds__(32 * most_warps(m_step, ahead))
    product_kernel(const T* __restrict__ in, const T* __restrict__ weight, const T* __restrict__ bias,
                   T* __restrict__ out, const __grid_constant__ Plan p) {
  constexpr int run = in_w * out_w == 2 ? 4 : 8;                    // cells, and instructions
  constexpr int run_bytes = 2 * run * in_w, words = run_bytes / 4;  // of a row of the input
  constexpr int step_rows = in_w == 2 ? 8 : 16, lane_rows = step_rows / 4, tile_rows = out_w == 2 ? 8 : 16;
  constexpr int chunks = run * 8 / chunk;      // of a warp
  constexpr bool two_runs = run * out_w == 4;  // in a store
  extern __shared__ __align__(16) uint4 memory[];
  uint4* const weights = memory;  // [group of m_step tiles][step][tile][lane]
  int64_t* const in_row = reinterpret_cast<int64_t*>(weights + p.m_tiles * p.k_steps * 32);  // -1: none
  int64_t* const out_row = in_row + p.k_steps * step_rows;
  float* const bias_of = reinterpret_cast<float*>(out_row + p.m_tiles * tile_rows);

  const bool transposed = in_w == 1 && (out_w == 2 || p.transposed);
  const int thread = static_cast<int>(threadIdx.x), threads = static_cast<int>(blockDim.x);
  const int lane = thread % 32, warp = thread / 32, g = lane / 4, t = lane % 4;
  const int m_block = static_cast<int>(blockIdx.x) % p.m_blocks;
  for (int i = thread; i < p.k_steps * step_rows; i += threads)
    in_row[i] = i >= p.in_rows ? -1 : transposed ? i * p.grids.small_cells : p.grids.big_row(i);
  for (int i = thread; i < p.m_tiles * tile_rows; i += threads) {
    const int row = m_block * p.m_tiles * tile_rows + i;
    out_row[i] = row >= p.out_rows ? -1 : transposed ? p.grids.big_row(row) : row * p.grids.small_cells;
    const int channel = transposed ? row / (p.grids.kernel_d * p.grids.kernel_h) : row;
    bias_of[i] = bias && row < p.out_rows ? static_cast<float>(bias[channel]) : 0.0f;
  }
  __syncthreads();

  // The first element that a lane loads: run `g` of the warp, or, where a lane stores its two columns apart,
  // the run that makes the lanes of a store neighbours. Beyond the last cell, cells whose sums are dropped.
  const auto input_at = [&](int tile) {
    const int number = two_runs ? g : g / 2 + g % 2 * 4;
    const Place place = place_of(p.grids, tile * chunks + number * run / chunk);
    return in + (transposed ? place.small : place.big) + number * run % chunk * in_w;
  };
  const auto load_step = [&](uint32_t(&raw)[lane_rows][words], const T* from, int step) {
#pragma unroll
    for (int i = 0; i < lane_rows; ++i) {
      const int row = step * step_rows + (in_w == 2 ? t + 4 * i : 2 * t + i % 2 + i / 2 * 8);
      const int64_t offset = in_row[row];
      load<run_bytes>(raw[i], from + offset, offset >= 0);
    }
  };
  // The operand of instruction j.
  const auto operand = [&](const uint32_t(&raw)[lane_rows][words], int j, int half) {
    if constexpr (in_w == 2) {
      return raw[half][j];
    } else {
      const uint32_t a = raw[2 * half][j / 2], b = raw[2 * half + 1][j / 2];
      return j % 2 ? pair<1>(a, b) : pair<0>(a, b);
    }
  };

  const int slots = threads / 32 / p.parts, part = warp / slots;
  const int stride = static_cast<int>(gridDim.x) / p.m_blocks * slots;
  int tile = static_cast<int>(blockIdx.x) / p.m_blocks * slots + warp % slots;

  uint32_t raw[ahead][lane_rows][words];
  const T* from;
  if constexpr (!resident) {
    from = input_at(tile);
#pragma unroll
    for (int i = 0; i < ahead; ++i) load_step(raw[i], from, i);
  }
#pragma unroll 4
  for (int i = thread; i < p.m_tiles * p.k_steps * 32; i += threads) {
    const int at = i / 32 / m_step, group = at / p.k_steps, step = at - group * p.k_steps;
    const int m_tile = m_block * p.m_tiles + group * m_step + i / 32 % m_step;
    weights[i] = weights_of<in_w, out_w>(weight, p, m_tile, step, i % 32);
  }
  __syncthreads();

#pragma unroll 1
  for (; tile < p.tiles; tile += stride) {
    if constexpr (resident) {
      from = input_at(tile);
#pragma unroll
      for (int i = 0; i < ahead; ++i) load_step(raw[i], from, i);
#pragma unroll
      for (int i = 0; i < ahead; ++i) {
        uint32_t operands[2 * run];
#pragma unroll
        for (int j = 0; j < 2 * run; ++j) operands[j] = operand(raw[i], j / 2, j % 2);
#pragma unroll
        for (int j = 0; j < 2 * run; ++j) raw[i][j / words][j % words] = operands[j];
      }
    }
    // A lane has columns 2 t and 2 t + 1 of rows g and g + 8. They are neighbouring runs of 4 cells, one
    // store; or runs that begin 4 apart in the order of the lanes, two stores.
    constexpr int stores = two_runs ? 1 : 2;
    T* to[stores];
    const auto find_output = [&] {
#pragma unroll
      for (int e = 0; e < stores; ++e) {
        const int number = two_runs ? 2 * t : t + 4 * e;
        const Place place = place_of(p.grids, tile * chunks + number * run / chunk);
        to[e] = out + (transposed ? place.big : place.small) + number * run % chunk * out_w;
        if (!place.exists) to[e] = nullptr;
      }
    };
    if constexpr (resident) find_output();

#pragma unroll 1
    for (int group = part; group < (resident ? p.m_tiles / m_step : part + 1); ++group) {
      __syncwarp();  // lanes whose rows do not exist skipped the stores
      float sum[m_step][run][4] = {};
      const uint4* of_steps = weights + group * m_step * p.k_steps * 32 + lane;
#pragma unroll 1
      for (int first = 0; first < p.k_steps; first += ahead, of_steps += ahead * m_step * 32) {
        // After the last steps come the first ones of the next cells.
        const bool last = first + ahead >= p.k_steps;
        const int later = last ? 0 : first + ahead;
        if (!resident && last) from = input_at(tile + stride);
#pragma unroll
        for (int i = 0; i < ahead; ++i) {
          uint32_t pairs[run][2];
#pragma unroll
          for (int j = 0; j < 2 * run; ++j)
            pairs[j / 2][j % 2] = resident ? raw[i][j / words][j % words] : operand(raw[i], j / 2, j % 2);
#pragma unroll
          for (int m = 0; m < m_step; ++m) {
            const uint4 w = of_steps[(i * m_step + m) * 32];
            const uint32_t a[4]{w.x, w.y, w.z, w.w};
#pragma unroll
            for (int j = 0; j < run; ++j)
              ptx::mma_m16n8k16<operand_of<T>>(sum[m][j], a, pairs[j][0], pairs[j][1]);
          }
          if constexpr (!resident) load_step(raw[i], from, later + i);
        }
      }
      if constexpr (!resident) find_output();
#pragma unroll
      for (int m = 0; m < m_step; ++m) {
#pragma unroll
        for (int h = 0; h < 2 / out_w; ++h) {
          const int row = (group * m_step + m) * tile_rows + g + 8 * h;
          const int64_t offset = out_row[row];
          const float b = bias_of[row];
          if (offset < 0) continue;
#pragma unroll
          for (int e = 0; e < stores; ++e) {
            uint32_t packed[4];
#pragma unroll
            for (int i = 0; i < 4; ++i) {
              float low, high;
              if constexpr (out_w == 2)
                low = sum[m][i][e], high = sum[m][i][2 + e];
              else if constexpr (two_runs)
                low = sum[m][i % 2 * 2][2 * h + i / 2], high = sum[m][i % 2 * 2 + 1][2 * h + i / 2];
              else
                low = sum[m][2 * i][2 * h + e], high = sum[m][2 * i + 1][2 * h + e];
              packed[i] = ptx::packed<operand_of<T>>(low + b, high + b);
            }
            if (to[e])
              *reinterpret_cast<uint4*>(to[e] + offset) =
                  make_uint4(packed[0], packed[1], packed[2], packed[3]);
          }
        }
      }
    }
  }
}

}  // namespace vox::cuda::conv::patches
