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
// f32 numbers are sums of bf16 numbers (`Parts`), of whose products those count that are not far below the
// first. A lane splits them when it multiplies.
//
// Values that are not finite: zeros stand for rows that do not exist, in both operands. So an Inf or NaN of
// one side never meets a zero of the other, except in sums that are dropped. Parts of an Inf or NaN make
// results that are not finite, for which the kernel sets `failed` (Note [Redo] in call.h).

#include <voxgrad/core/half.h>
#include <voxgrad/cuda/conv3d/patches/plan.h>
#include <voxgrad/cuda/ptx/mma.cuh>
#include <voxgrad/cuda/ptx/registers.cuh>

#include <type_traits>

namespace vox::cuda::conv::patches {

// ---- Numbers ----------------------------------------------------------------------------------------------

/// 16-bit numbers, which are multiplied as they are stored.
template <class T>
struct Whole {
  using Storage = T;
  static constexpr int parts = 1;
  static constexpr ptx::Operand operand =
      std::is_same_v<T, bfloat16> ? ptx::Operand::bf16 : ptx::Operand::f16;
};
/// f32 numbers as sums of bf16 numbers: 2 of them have 16 bits, more than TF32, and 3 have 24.
template <int count>
struct Parts {
  using Storage = float;
  static constexpr int parts = count;
  static constexpr ptx::Operand operand = ptx::Operand::bf16;
};

/// Two 16-bit numbers of two words: the lower ones, or the upper ones.
template <int upper>
__device__ __forceinline__ uint32_t pair(uint32_t low, uint32_t high) {
  return __byte_perm(low, high, upper ? 0x7632 : 0x5410);
}

/// x and y as words of an operand, one for each part.
template <int parts>
__device__ __forceinline__ void split(float x, float y, uint32_t (&words)[parts]) {
#pragma unroll
  for (int i = 0; i < parts; ++i) {
    words[i] = ptx::packed<ptx::Operand::bf16>(x, y);
    x -= __uint_as_float(words[i] << 16), y -= __uint_as_float(words[i] & 0xffff0000);
  }
}

/// Number i of row a and number k of row b, of those that a lane loaded, as words of an operand.
template <int parts, int n>
__device__ __forceinline__ void pair_of(uint32_t (&words)[parts], const uint32_t (&a)[n], int i,
                                        const uint32_t (&b)[n], int k) {
  if constexpr (parts > 1)
    split(__uint_as_float(a[i]), __uint_as_float(b[k]), words);
  else if (&a == &b && i % 2 == 0 && k == i + 1)
    words[0] = a[i / 2];
  else
    words[0] = i % 2 ? pair<1>(a[i / 2], b[k / 2]) : pair<0>(a[i / 2], b[k / 2]);
}

/// sum += a * b, of those products of parts that count; a[i] are the words of part i. Small ones first. With
/// 3 parts, in a sum of their own: Note [Truncating sums] in operands.cuh.
template <class N>
__device__ __forceinline__ void multiply(float (&sum)[4], const uint32_t (&a)[N::parts][4],
                                         const uint32_t (&b)[2][N::parts]) {
  const auto add_products = [&](float(&to)[4]) {
#pragma unroll
    for (int both = N::parts - 1; both >= 0; --both)
#pragma unroll
      for (int i = 0; i <= both; ++i) ptx::mma_m16n8k16<N::operand>(to, a[i], b[0][both - i], b[1][both - i]);
  };
  if constexpr (N::parts < 3) {
    add_products(sum);
  } else {
    float products[4] = {};
    add_products(products);
#pragma unroll
    for (int i = 0; i < 4; ++i) sum[i] += products[i];
  }
}

/// `count` words (2, or a multiple of 4), or zeros unless they `exist`. The address is aligned.
template <int count>
__device__ __forceinline__ void load(uint32_t (&words)[count], const void* from, bool exist) {
  using Vector = std::conditional_t<count % 4 == 0, uint4, uint2>;
  constexpr int each = sizeof(Vector) / 4;
#pragma unroll
  for (int i = 0; i < count / each; ++i) {
    Vector v{};
    if (exist) v = __ldg(static_cast<const Vector*>(from) + i);
    words[i * each] = v.x, words[i * each + 1] = v.y;
    if constexpr (each == 4) words[i * each + 2] = v.z, words[i * each + 3] = v.w;
  }
}

__device__ __forceinline__ uint4 bits_of(float a, float b, float c, float d) {
  return make_uint4(__float_as_uint(a), __float_as_uint(b), __float_as_uint(c), __float_as_uint(d));
}

// ---- Weights ----------------------------------------------------------------------------------------------

/// A lane's operand of one instruction: 16 rows of the output, and one step of the sum. One for each part.
template <class N, int in_w, int out_w>
__device__ __forceinline__ void weights_of(uint4 (&operand)[N::parts], const typename N::Storage* weight,
                                           const Plan& p, int m_tile, int step, int lane) {
  constexpr int taps = in_w * out_w, words = N::parts > 1 ? taps : 1;
  const int g = lane / 4, t = lane % 4;
  struct Number {  // of each tap along w
    uint32_t of[words];
  };
  const auto at = [&](int out, int in) {  // zeros if a row does not exist
    Number number{};
    if (out >= p.out_rows || in >= p.in_rows) return number;
    const auto* const from = weight + in * p.weight_in + out * p.weight_out;
    if constexpr (N::parts == 1 && taps == 1) {
      number.of[0] = __ldg(reinterpret_cast<const uint16_t*>(from));
    } else {
#pragma unroll
      for (int i = 0; i < words; ++i) number.of[i] = __ldg(reinterpret_cast<const uint32_t*>(from) + i);
    }
    return number;
  };
  uint32_t pairs[4][N::parts];
  const auto two = [&](int i, const Number& a, int tap_a, const Number& b, int tap_b) {
    pair_of(pairs[i], a.of, tap_a, b.of, tap_b);
  };
  if constexpr (in_w == 2) {
    const int out = m_tile * 16 + g, in = step * 8 + t;
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const Number both = at(out + i % 2 * 8, in + i / 2 * 4);
      two(i, both, 0, both, 1);
    }
  } else if constexpr (out_w == 2) {
    const int out = m_tile * 8 + g, in = step * 16 + 2 * t;
#pragma unroll
    for (int i = 0; i < 4; i += 2) {
      const Number a = at(out, in + 4 * i), b = at(out, in + 4 * i + 1);
      two(i, a, 0, b, 0), two(i + 1, a, 1, b, 1);
    }
  } else {
    const int out = m_tile * 16 + g, in = step * 16 + 2 * t;
#pragma unroll
    for (int i = 0; i < 4; ++i)
      two(i, at(out + i % 2 * 8, in + i / 2 * 8), 0, at(out + i % 2 * 8, in + i / 2 * 8 + 1), 0);
  }
#pragma unroll
  for (int i = 0; i < N::parts; ++i)
    operand[i] = make_uint4(pairs[0][i], pairs[1][i], pairs[2][i], pairs[3][i]);
}

// ---- The kernel -------------------------------------------------------------------------------------------

/// `N`: Whole or Parts. `in_w` and `out_w`: kernel.w on the side of the input and of the output; the other
/// one is 1.
template <class N, int in_w, int out_w, int m_step, int ahead, bool resident, class T = typename N::Storage>
__global__ void __launch_bounds__(32 * most_warps(m_step, ahead, N::parts))
    product_kernel(const T* __restrict__ in, const T* __restrict__ weight, const T* __restrict__ bias,
                   T* __restrict__ out, int64_t* failed, const __grid_constant__ Plan p) {
  constexpr int parts = N::parts;
  constexpr int run = in_w * out_w == 2 ? 4 : 8;          // cells, and instructions
  constexpr int words = run * in_w * int{sizeof(T)} / 4;  // of a row of the input
  constexpr int step_rows = in_w == 2 ? 8 : 16, lane_rows = step_rows / 4, tile_rows = out_w == 2 ? 8 : 16;
  constexpr int chunks = run * 8 / chunk;      // of a warp
  constexpr bool two_runs = run * out_w == 4;  // in a store
  extern __shared__ __align__(16) uint4 memory[];
  uint4* const weights = memory;  // [group of m_step tiles][step][tile][part][lane]
  int64_t* const in_row =
      reinterpret_cast<int64_t*>(weights + p.m_tiles * p.k_steps * parts * 32);  // -1: none
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
      load(raw[i], from + offset, offset >= 0);
    }
  };
  // The operand of instruction j.
  const auto make_operand = [&](uint32_t(&operand)[2][parts], const uint32_t(&raw)[lane_rows][words], int j) {
#pragma unroll
    for (int half = 0; half < 2; ++half)
      if constexpr (in_w == 2)
        pair_of(operand[half], raw[half], 2 * j, raw[half], 2 * j + 1);
      else
        pair_of(operand[half], raw[2 * half], j, raw[2 * half + 1], j);
  };

  const int slots = threads / 32 / p.parts, part = warp / slots;
  const int stride = static_cast<int>(gridDim.x) / p.m_blocks * slots;
  int tile = static_cast<int>(blockIdx.x) / p.m_blocks * slots + warp % slots;

  uint32_t raw[ahead][lane_rows][words], operands[ahead][run][2][parts];
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
    uint4 operand[parts];
    weights_of<N, in_w, out_w>(operand, weight, p, m_tile, step, i % 32);
#pragma unroll
    for (int part = 0; part < parts; ++part) weights[(i / 32 * parts + part) * 32 + i % 32] = operand[part];
  }
  __syncthreads();

#pragma unroll 1
  for (; tile < p.tiles; tile += stride) {
    if constexpr (resident) {
      from = input_at(tile);
#pragma unroll
      for (int i = 0; i < ahead; ++i) load_step(raw[i], from, i);
#pragma unroll
      for (int i = 0; i < ahead; ++i)
#pragma unroll
        for (int j = 0; j < run; ++j) make_operand(operands[i][j], raw[i], j);
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
      const uint4* of_steps = weights + group * m_step * p.k_steps * parts * 32 + lane;
#pragma unroll 1
      for (int first = 0; first < p.k_steps; first += ahead, of_steps += ahead * m_step * parts * 32) {
        // After the last steps come the first ones of the next cells.
        const bool last = first + ahead >= p.k_steps;
        const int later = last ? 0 : first + ahead;
        if (!resident && last) from = input_at(tile + stride);
#pragma unroll
        for (int i = 0; i < ahead; ++i) {
          if constexpr (!resident) {
#pragma unroll
            for (int j = 0; j < run; ++j) make_operand(operands[i][j], raw[i], j);
          }
#pragma unroll
          for (int m = 0; m < m_step; ++m) {
            uint32_t a[parts][4];
#pragma unroll
            for (int part = 0; part < parts; ++part) {
              const uint4 w = of_steps[((i * m_step + m) * parts + part) * 32];
              a[part][0] = w.x, a[part][1] = w.y, a[part][2] = w.z, a[part][3] = w.w;
            }
#pragma unroll
            for (int j = 0; j < run; ++j) multiply<N>(sum[m][j], a, operands[i][j]);
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
            float result[8];
#pragma unroll
            for (int i = 0; i < 8; ++i)
              if constexpr (out_w == 2)
                result[i] = sum[m][i / 2][i % 2 * 2 + e] + b;
              else if constexpr (two_runs)
                result[i] = sum[m][i % 4][2 * h + i / 4] + b;
              else
                result[i] = sum[m][i][2 * h + e] + b;
            if (!to[e]) continue;
            auto* const stored = reinterpret_cast<uint4*>(to[e] + offset);
            if constexpr (parts > 1) {
              bool finite = true;
#pragma unroll
              for (int i = 0; i < 8; ++i) finite = finite && isfinite(result[i]);
              if (!finite) *failed = 1;
              stored[0] = bits_of(result[0], result[1], result[2], result[3]);
              stored[1] = bits_of(result[4], result[5], result[6], result[7]);
            } else {
              uint32_t packed[4];
#pragma unroll
              for (int i = 0; i < 4; ++i)
                packed[i] = ptx::packed<N::operand>(result[2 * i], result[2 * i + 1]);
              stored[0] = make_uint4(packed[0], packed[1], packed[2], packed[3]);
            }
          }
        }
      }
    }
  }
}

}  // namespace vox::cuda::conv::patches
