#pragma once

// kernel.cuh for f32 split into two f16 numbers, scaled by powers of two: as accurate as f32 arithmetic, at
// half the cost of two TF32 numbers.
//
//   x * 2^ex = high + low
//   w * 2^ew = high' + low'
//   x w * 2^(ex + ew) = high high' + high low' + low high'
//
// to within 2^-21. f16 has 11 bits but a narrow range. So ex is such that the largest value of a stage lies
// in [2^11, 2^15), and each output channel has an ew such that its largest weight lies in [2^14, 2^15). The
// low part of x is stored times 2^11, and multiplied by high' / 2^11. So scaled values down to 2^-14 have all
// their bits, and scaled weights down to 2^-3. high low' + low high' are one instruction for a tap, whose k
// is both parts; high high' is one for two taps, whose operands lie any distance apart.
//
// Guarantee. If the kernel does not fail,
//
//   |y - exact| <= (2^-21 + the f32 sum's own error) * sum |x||w|
//                  + 2^-47 * sum (M(x)|w|) + 2^-38 * sum (|x| M(w)),
//
// where M(x) is the largest value in the same window and the same 8 channels, and M(w) the largest weight of
// the output channel. The first line is the error of f32: a single product may reach 2^-21, and long sums
// stay far below it. The second line is smaller if one of the summed values has a normal size.
//
// The second line dominates where all 8 channels of a position are far below M(x), or all 8 weights of a tap
// far below M(w), and not all are 0: outputs may consist of such values alone. There the kernel fails: below
// 2^-25 M(x) at most (2^-29 mostly), and below 2^-17 M(w). It also fails on Inf, NaN, and stages whose
// largest value is beyond 2^96 or below 2^-80. Zeros are exact, so sparse data are computed here.
//
// Not guaranteed: a channel far smaller (as above) than another of its 8 at the same place is known only to
// 2^-47 of the larger one, which shows where the larger one meets weights that are 0 or much smaller. The
// same holds for a weight whose larger neighbours among the 8 channels meet zeros of the input.
//
// A stage is 8 channels of a window: [high | low][depth][position][16 bytes], as many bytes as TF32 takes,
// with one power of two, because every shift reads all of it. The weights of an item are [low' | high' / 2^11
// | high'][channel][16 bytes], with a power of two for each channel. The weights of a stage end with zeros,
// the partner of an odd last tap. A block first tries the scale of its previous stage. So the last bits of
// values far below the largest of their stage may depend on which tiles a block has, that is on the batch and
// the number of multiprocessors; they are the same in every run. Sums of a stage, in its scale, start over
// for each phase, and move to f32 totals before they hold too many taps (Note [Truncating sums] in
// common/operands.cuh).

#include <voxgrad/cuda/conv3d/common/bands.cuh>
#include <voxgrad/cuda/conv3d/strided/kernel.cuh>

namespace vox::cuda::conv::strided {

// ---- What a block owns ------------------------------------------------------------------------------------

/// Products of a stage are added up for one phase at a time, of all tiles, and then move to its totals. Where
/// totals take many registers, producers have fewer loads in flight.
template <int channels_, int slots_, int tiles_>
struct ScaledBlock : Block<float, F16x3, channels_, slots_, tiles_> {
  static constexpr int held = (slots_ + 1) * tiles_ * channels_ / 2;  // sums and totals of a thread
  static constexpr int consumer_registers = held > 144   ? 192
                                            : held > 128 ? 184
                                                         : 168,
                       producer_registers = 256 - consumer_registers;
  static constexpr int batch = producer_registers < 72 ? 3 : 4;
};

/// The largest value that each warp of a group of producers has seen, for two stages, because a warp may be a
/// stage ahead of those that still read.
struct LargestValues {
  uint4 of_warps[2];
};

struct ScaledShared : Shared {
  float *unscale, *column_unscale;  // of the stages' input, and of the block's channels
  LargestValues* largest;           // of each group of producers
};

// ---- The producers ----------------------------------------------------------------------------------------

/// Stores F16x3's parts of 8 channels: the high ones at `at`, the low ones `next` bytes further on.
__device__ __forceinline__ void store_parts(unsigned char* at, int next, const float (&v)[8], float scale) {
  float scaled[8];
#pragma unroll
  for (int c = 0; c < 8; ++c) scaled[c] = v[c] * scale;
  conv::store_parts(scaled, *reinterpret_cast<uint4*>(at), *reinterpret_cast<uint4*>(at + next));
}

/// Tries the scale of the previous stage, which nearly always fits. If it does not, the stage is loaded again
/// with another scale. (Keeping all values in the stage, or in registers, until the largest is known costs as
/// many instructions for every stage.)
template <class Block>
__device__ __forceinline__ void produce_scaled(const float* __restrict__ input,
                                               const unsigned char* __restrict__ packed,
                                               const Columns& columns, const ScaledShared& shared,
                                               int producer_group, const Plan& p, int64_t* failed) {
  using Operand = F16x3;
  constexpr int batch = Block::batch;
  const int thread = threadIdx.x % producers;
  LargestValues& largest = shared.largest[producer_group];
  int reduced = 0;
  float scale = 1;
  bool all_fit = true;
  produce<Block>(input, packed, columns, shared, producer_group, p, [&](const Filling& f, auto wait) {
    const int left = p.in_per_group - f.k_block * 8;
    const char* const from = f.image + f.k_block * 8 * f.channel_bytes;
    float least;  // of the largest values of each position that are not 0
    for (;;) {
      float most = 0;
      least = INFINITY;
      unsigned char* to = f.stage + f.own_position * 16;
#pragma unroll 1
      for (int first = thread; first < f.count; first += batch * producers) {
        float v[batch][8];
        load_entries(v, f.table, first, f.count, from, f.channel_bytes, left);
        wait();
#pragma unroll
        for (int u = 0; u < batch; ++u) {
          float here = 0;
#pragma unroll
          for (int c = 0; c < 8; ++c) here = larger_size(here, v[u][c]);
          most = larger_size(most, here);
          if (here != 0) least = fminf(least, here);
          if (first + u * producers < f.count)
            store_parts(to + u * f.step_bytes, f.granule_bytes, v[u], scale);
        }
        to += batch * f.step_bytes;
      }
      // Absolute values compare as integers do; NaN is the largest.
      const uint32_t of_warp = __reduce_max_sync(0xffffffff, __float_as_uint(most));
      if (thread % 32 == 0) (&largest.of_warps[reduced].x)[thread / 32] = of_warp;
      ptx::named_barrier<producers>(3 + producer_group);
      const uint4 all = largest.of_warps[reduced];
      reduced ^= 1;
      most = __uint_as_float(max(max(all.x, all.y), max(all.z, all.w)));
      const float right = Operand::scale_for(most, scale);
      if (right == scale) {
        all_fit &= Operand::range_holds(most);
        break;
      }
      scale = right;
    }
    all_fit &= least * scale >= Operand::full;
    wait();
    if (thread == 0) shared.unscale[f.slot] = Operand::inverse(scale);
  });
  if (!all_fit) *failed = 1;
}

// ---- The consumers ----------------------------------------------------------------------------------------

template <class Block>
struct ScaledProducts {
  static constexpr int channels = Block::channels, slots = Block::slots, tiles = Block::tiles;
  static constexpr int sums = Block::sums;

  /// The products of one stage, all of which are done when it returns. `unscale` is that of its input.
  static __device__ __forceinline__ void multiply(float (&total)[tiles][slots * sums],
                                                  const unsigned char* stage, const unsigned char* weights,
                                                  int first_position, float unscale, int k,
                                                  const MostInSum& most_in_sum, const Plan& p) {
    const Kind& kind = p.kind[k];
    const uint64_t a0 = ptx::shared_matrix(stage + first_position * 16, 0, cells_apart(tiles) * 16);
    const uint64_t b0 = ptx::shared_matrix(weights, 0, 128);
    const uint64_t a_high = a0 >> 32 << 32, b_high = b0 >> 32 << 32;
    const uint32_t a_low = static_cast<uint32_t>(a0), b_low = static_cast<uint32_t>(b0);
    float sum[tiles][sums];
#pragma unroll
    for (int slot = 0; slot < slots; ++slot) {
      const int last = kind.first[slot + 1];
      const int most = most_in_sum.of[k][slot];
#pragma unroll 1
      for (int first = kind.first[slot]; first < last; first += most) {
        const int end = min(first + most, last);
        ptx::wgmma_fence();
        Item item = p.item[first];
#pragma unroll 1
        for (int i = first; i < end;) {
          const bool accumulate = i > first;
          const uint32_t a = a_low + item.position, b = b_low + item.weights;
          item = p.item[++i];  // loaded early: a load takes as long as the instructions
#pragma unroll
          for (int t = 0; t < tiles; ++t)
            ptx::wgmma<ptx::Operand::f16, channels>(sum[t], a_high | (a + t * 8), b_high | b, accumulate);
        }
        ptx::wgmma_commit();
        ptx::wgmma_wait<0>();
#pragma unroll
        for (int t = 0; t < tiles; ++t)
#pragma unroll
          for (int s = 0; s < sums; ++s)
            total[t][slot * sums + s] = fmaf(sum[t][s], unscale, total[t][slot * sums + s]);
      }
    }
  }

  static __device__ __forceinline__ void consume(const Columns& columns, const ScaledShared& shared,
                                                 int warpgroup, const float* __restrict__ bias,
                                                 const float* __restrict__ column_unscale,
                                                 float* __restrict__ output, const MostInSum& most_in_sum,
                                                 const Plan& p) {
    load_bias<Block>(bias, columns, shared, p);
    for (int c = threadIdx.x; c < channels; c += consumer_threads)
      shared.column_unscale[c] =
          column_unscale[(columns.group * p.channel_blocks + columns.channel_block) * channels + c];
    consume_tiles<Block>(shared, warpgroup, p, [&](const Tile& tile, int row_block, auto for_each_stage) {
      float total[tiles][slots * sums] = {};
      for_each_stage(
          [&](const unsigned char* stage, const unsigned char* weights, int first_position, int k, int slot) {
            multiply(total, stage, weights, first_position, shared.unscale[slot], k, most_in_sum, p);
          });
      const int pair = threadIdx.x % 4 * 2;
#pragma unroll
      for (int j = 0; j < sums / 4; ++j)
#pragma unroll
        for (int e = 0; e < 2; ++e) {
          const float first = shared.bias[pair + j * 8 + e],
                      unscale = shared.column_unscale[pair + j * 8 + e];
#pragma unroll
          for (int t = 0; t < tiles; ++t)
#pragma unroll
            for (int slot = 0; slot < slots; ++slot)
#pragma unroll
              for (int row = 0; row < 2; ++row) {
                float& y = total[t][slot * sums + j * 4 + row * 2 + e];
                y = fmaf(y, unscale, first);
              }
        }
      Results<Block>::write(total, shared, tile, columns, row_block, warpgroup, output, p);
    });
  }
};

// ---- The kernel -------------------------------------------------------------------------------------------

/// The items of `p` are instructions here. An item's values are added to the lower halves of the two matrix
/// descriptors: the address and, from bit 16, the distance of the two granules of k, in units of 16 bytes.
template <class Block>
__global__ void __launch_bounds__(block_threads, 1)
    scaled_product_kernel(const float* __restrict__ input, const unsigned char* __restrict__ packed,
                          const float* __restrict__ column_unscale, const float* __restrict__ bias,
                          float* __restrict__ output, const __grid_constant__ Plan p,
                          const __grid_constant__ MostInSum most_in_sum, int64_t* failed) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
  __shared__ float unscale[most_stages];
  __shared__ LargestValues largest[2];
  ScaledShared shared{shared_of_block(p), unscale, nullptr, largest};
  shared.column_unscale = shared.bias + Block::channels + 8;
  __syncthreads();
  const Columns columns = columns_of_block(p);
  divide_roles<Block>(
      [&](int group) { produce_scaled<Block>(input, packed, columns, shared, group, p, failed); },
      [&](int warpgroup) {
        ScaledProducts<Block>::consume(columns, shared, warpgroup, bias, column_unscale, output, most_in_sum,
                                       p);
      });
#endif
}

}  // namespace vox::cuda::conv::strided
