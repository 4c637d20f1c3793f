#pragma once

// conv3d_weight_grad on Hopper's tensor cores (wgmma).
//
//   dweight[sc, (bc, k)] = sum over n, i of small[n, sc, i] * big[n, bc, i * stride - padding + k * dilation]
//
// Positions i are contiguous in both tensors, and they are k of the product. wgmma requires TF32 operands to
// be contiguous in k. Both are so in memory, and nothing is transposed.
//
// A row of the product is a channel of big at a tap. Taps shift big by single positions, which descriptors of
// shared memory cannot express. So these fragments are loaded into registers, from [channel][row][column],
// where every shift is an offset: that of a tap along any axis, of a phase of the stride, of a ring's slot.
// A lane loads words. In 16 bits a word has two positions, so an odd shift is an offset into a copy of the
// row that begins with its second element.
// Of the 16 rows that a warp has in an instruction, each half is an octet: 8 channels at one tap. Columns are
// channels of small, whose tile lies as [granule][channel][4 or 8 positions] and is addressed by a
// descriptor.
//
// What a block owns: a slice of dweight in registers (plan.h). It sums the slice over a split of positions,
// and writes its own partial result; a second kernel adds the partial results in order. No atomics, and the
// bits never change. Its first two warpgroups multiply, the other two load the tiles (produce.cuh). A step
// is one depth of a tile of coarse rows; the planes of big stay in a ring for the steps that share them.
//
// Reading order: plan.h, block.cuh, produce.cuh, and this file.

#include <voxgrad/core/tensor.h>
#include <voxgrad/cuda/conv3d/call.h>
#include <voxgrad/cuda/conv3d/common/integers.h>
#include <voxgrad/cuda/conv3d/common/recent.h>
#include <voxgrad/cuda/runtime/launch.h>
#include <voxgrad/cuda/conv3d/common/operands.cuh>
#include <voxgrad/cuda/conv3d/common/splits.cuh>
#include <voxgrad/cuda/conv3d/weight_grad/block.cuh>
#include <voxgrad/cuda/conv3d/weight_grad/produce.cuh>
#include <voxgrad/cuda/packet.cuh>
#include <voxgrad/cuda/ptx/mma.cuh>
#include <voxgrad/cuda/ptx/shared.cuh>
#include <voxgrad/cuda/ptx/wgmma.cuh>

#include <algorithm>
#include <type_traits>
#include <utility>

namespace vox::cuda::conv::weight_grad {

// ---- The consumers ----------------------------------------------------------------------------------------

// A warpgroup's products of 64 rows, over all steps.

#ifdef __CUDA_ARCH_FEAT_SM90_ALL

/// A thread's part of 64 rows x 8 words: two octets of rows, words k and k + 4.
template <int offset>  // in bytes
__device__ __forceinline__ void load_fragment(uint32_t (&a)[4], const uint32_t (&octets)[2]) {
  a[0] = ptx::load_shared<offset>(octets[0]);
  a[1] = ptx::load_shared<offset>(octets[1]);
  a[2] = ptx::load_shared<offset + 16>(octets[0]);
  a[3] = ptx::load_shared<offset + 16>(octets[1]);
}

/// Zeros for positions from `tail` on, because what lies there belongs to another row. `word`: the thread's
/// first one.
template <int per_word = 1>
__device__ __forceinline__ void cut_fragment(uint32_t (&a)[4], int word, int tail) {
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const int position = (word + i / 2 * 4) * per_word;
    if (position >= tail) a[i] = 0;
    if (per_word == 2 && position + 1 == tail) a[i] &= 0xffff;
  }
}

/// The sums of `count` products, as one thread holds them.
template <int count, int sums>
__device__ __forceinline__ void clear(float (&sum)[count][sums]) {
#pragma unroll
  for (int m = 0; m < count; ++m)
#pragma unroll
    for (int i = 0; i < sums; ++i) sum[m][i] = 0;
}
template <int count, int sums>
__device__ __forceinline__ void store(const float (&sum)[count][sums], int first, int thread, float* to) {
#pragma unroll
  for (int m = 0; m < count; ++m)
#pragma unroll
    for (int i = 0; i < sums; ++i) to[((first + m) * sums + i) * group_threads + thread] = sum[m][i];
}

/// A warpgroup's `count` products of 64 rows, from number `first` of the block on, over all steps.
template <class Operand, int columns, int count>
__device__ __forceinline__ void consume(const Plan& p, const Shared& s, int first, int steps, float* to) {
  const int thread = threadIdx.x % group_threads, lane = thread % 32, warp = thread / 32;
  const int row = lane / 4, k = lane % 4;
  const uint32_t lane_at = ptx::shared_address_of(s.big) + 4 * (row * p.channel_pitch + k);
  const uint32_t plane_bytes = 4 * p.plane_words, row_bytes = 4 * p.axis[2].extent;
  constexpr int per_word = 4 / sizeof(Stored<Operand>);
  constexpr int chunk_bytes = 64 / per_word, chunk_planes = 4 / per_word;
  constexpr int instructions = 2 / per_word;  // of a chunk, for each product
  const int row_planes = p.axis[2].tile / (4 * per_word);

  // Fragments are loaded `ahead` products before they are used; a set of registers is reused after its
  // product.
  constexpr int sets = count, ahead = sets / 2;
  float sum[count][columns / 2];
  clear(sum);
  uint32_t a[sets][4];
  uint32_t at[count][2];

  // Multiplies a chunk and loads the first fragments of the following one, which lies `next` bytes on.
  const auto multiply = [&](auto masked, uint64_t b, uint32_t next, int tail) {
    constexpr int all = instructions * count;
#pragma unroll
    for (int i = 0; i < all; ++i) {
      const int load_i = i + ahead, m = load_i % count;
      if (load_i >= all) at[m][0] += next, at[m][1] += next;
      ptx::wgmma_wait<sets - ahead - 1>();
      if (load_i % all < count)
        load_fragment<0>(a[load_i % sets], at[m]);
      else
        load_fragment<32>(a[load_i % sets], at[m]);
      if constexpr (masked) cut_fragment<per_word>(a[i % sets], i / count * 8 + k, tail);
      ptx::wgmma_fence();
      ptx::wgmma<Operand::operand, columns>(sum[i % count], a[i % sets],
                                            ptx::moved(b, i / count * 2 * plane_bytes));
      ptx::wgmma_commit();
    }
#pragma unroll
    for (int m = ahead; m < count; ++m) at[m][0] += next, at[m][1] += next;
  };

  for (int step = 0; step < steps; ++step) {
    const int buffer = step % 2;
    ptx::mbarrier_wait(s.full[buffer], step / 2 % 2);
    const Extent extent = s.extents[buffer];
    const int* octet = s.octets + buffer * p.products * 8 + (first * 4 + warp) * 2;
#pragma unroll
    for (int m = 0; m < count; ++m) {
      at[m][0] = lane_at + 4 * octet[m * 8];
      at[m][1] = lane_at + 4 * octet[m * 8 + 1];
    }
#pragma unroll
    for (int m = 0; m < ahead; ++m) load_fragment<0>(a[m], at[m]);
    uint64_t b = ptx::shared_matrix(s.small + buffer * p.tile_words(), plane_bytes, 128);
    for (int r = 0; r < extent.rows; ++r) {
      for (int chunk = 0; chunk < extent.chunks; ++chunk) {
        const bool row_ends = chunk == extent.chunks - 1, all_ends = row_ends && r == extent.rows - 1;
        const uint32_t next = all_ends ? 0 : row_ends ? row_bytes - chunk * chunk_bytes : chunk_bytes;
        if (row_ends && extent.tail < 16)
          multiply(std::true_type{}, b, next, extent.tail);
        else
          multiply(std::false_type{}, b, next, 16);
        b = ptx::moved(b, (row_ends ? row_planes - chunk * chunk_planes : chunk_planes) * plane_bytes);
      }
    }
    ptx::wgmma_wait<0>();
    ptx::mbarrier_arrive(s.empty[buffer]);
  }

  store(sum, first, thread, to);
}

/// The same with both factors split into two TF32 numbers, x = high + low: three products; low * low is
/// smaller than f32's own rounding. Fragments are loaded whole and split in registers. The tensor core's sums
/// truncate, so they are added to f32 sums after 32 positions, and the small products go first. The products
/// of 64 rows are made one after the other.
template <int columns, int count>
__device__ __forceinline__ void consume_pairs(const Plan& p, const Shared& s, int first, int steps,
                                              float* to) {
  const int thread = threadIdx.x % group_threads, lane = thread % 32, warp = thread / 32;
  const int row = lane / 4, k = lane % 4;
  const uint32_t lane_at = ptx::shared_address_of(s.big) + 4 * (row * p.channel_pitch + k);
  const uint32_t plane_bytes = 4 * p.plane_words, row_bytes = 4 * p.axis[2].extent;
  const uint32_t low_bytes = 4 * p.tile_words();
  const int row_planes = p.axis[2].tile / 4;
  constexpr int chunks_in_part = 2;

  float sum[count][columns / 2], part[columns / 2];
  clear(sum);
  uint32_t whole[2][4], high[2][4], low[2][4];
  uint32_t at[2] = {};

  // While the tensor core works, the next fragments are loaded, and the other warpgroup splits its own.
  const auto multiply = [&](auto masked, uint64_t b, uint32_t next, int tail, bool more) {
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      if constexpr (masked) cut_fragment(whole[i], i * 8 + k, tail);
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        high[i][j] = tf32_high_of_finite(whole[i][j]);
        low[i][j] = __float_as_uint(__uint_as_float(whole[i][j]) - __uint_as_float(high[i][j]));
      }
    }
    at[0] += next, at[1] += next;
    ptx::wgmma_fence();
    const uint64_t b_next = ptx::moved(b, 2 * plane_bytes);
    ptx::wgmma<ptx::Operand::tf32, columns>(part, low[0], b, more);
    ptx::wgmma<ptx::Operand::tf32, columns>(part, low[1], b_next);
    ptx::wgmma<ptx::Operand::tf32, columns>(part, high[0], ptx::moved(b, low_bytes));
    ptx::wgmma<ptx::Operand::tf32, columns>(part, high[1], ptx::moved(b_next, low_bytes));
    ptx::wgmma<ptx::Operand::tf32, columns>(part, high[0], b);
    ptx::wgmma<ptx::Operand::tf32, columns>(part, high[1], b_next);
    ptx::wgmma_commit();
    load_fragment<0>(whole[0], at);
    load_fragment<32>(whole[1], at);
    ptx::wgmma_wait<0>();
  };

  for (int step = 0; step < steps; ++step) {
    const int buffer = step % 2;
    ptx::mbarrier_wait(s.full[buffer], step / 2 % 2);
    const Extent extent = s.extents[buffer];
    const int* octet = s.octets + buffer * p.products * 8 + (first * 4 + warp) * 2;
#pragma unroll
    for (int m = 0; m < count; ++m) {
      at[0] = lane_at + 4 * octet[m * 8];
      at[1] = lane_at + 4 * octet[m * 8 + 1];
      load_fragment<0>(whole[0], at);
      load_fragment<32>(whole[1], at);
      uint64_t b = ptx::shared_matrix(s.small + buffer * 2 * p.tile_words(), plane_bytes, 128);
      int chunk = 0;  // in its row
#pragma unroll 1
      for (int left = extent.rows * extent.chunks; left > 0; left -= chunks_in_part) {
#pragma unroll 1
        for (int i = 0; i < min(left, chunks_in_part); ++i) {
          const bool row_ends = chunk == extent.chunks - 1, all_ends = i == left - 1;
          const uint32_t next = all_ends ? 0 : row_ends ? row_bytes - chunk * 64 : 64;
          if (row_ends && extent.tail < 16)
            multiply(std::true_type{}, b, next, extent.tail, i > 0);
          else
            multiply(std::false_type{}, b, next, 16, i > 0);
          b = ptx::moved(b, (row_ends ? row_planes - chunk * 4 : 4) * plane_bytes);
          chunk = row_ends ? 0 : chunk + 1;
        }
#pragma unroll
        for (int i = 0; i < columns / 2; ++i) sum[m][i] += part[i];
      }
    }
    ptx::mbarrier_arrive(s.empty[buffer]);
  }

  store(sum, first, thread, to);
}

#endif

// ---- The kernel -------------------------------------------------------------------------------------------

/// Registers of a consumer thread: accumulators, fragments and their addresses, and others. Producers, of as
/// many warpgroups, get the remainder (256 for both); the more they have, the more loads are in flight.
constexpr int consumer_registers(int columns, int count, Factors factors) {
  const bool paired = factors == Factors::tf32x3;
  const int sums = (count + paired) * columns / 2, fragments = paired ? 26 : count * 6;
  const int others = factors == Factors::of_16_bits ? 36 : 44;
  return std::clamp((sums + fragments + others + 7) / 8 * 8, 128, 208);  // 128 at the start
}
/// Entries of 8 channels that a producer thread loads at once.
constexpr int loads_at_once(int columns, int count, Factors factors) {
  const int others = factors == Factors::of_16_bits ? 36 : 30;
  return std::clamp((256 - consumer_registers(columns, count, factors) - others) / 8, 2, 6);
}

#ifdef __CUDA_ARCH_FEAT_SM90_ALL
template <class Operand, int columns, int count>
__device__ __forceinline__ void consume_by(const Plan& p, const Shared& s, int first, int steps, float* to) {
  if constexpr (Operand::parts > 1)
    consume_pairs<columns, count>(p, s, first, steps, to);
  else
    consume<Operand, columns, count>(p, s, first, steps, to);
}
#endif

/// A block computes one slice for one split. The first warpgroup computes `count` products, the second as
/// many or one fewer.
template <class Operand, int columns, int count>
__global__ void __launch_bounds__(block_threads, 1)
    partial_kernel(const Stored<Operand>* __restrict__ big, const Stored<Operand>* __restrict__ small,
                   bool pairs, bool quads, float* partials, int64_t* failed, const __grid_constant__ Plan p) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
  extern __shared__ __align__(128) uint32_t memory[];
  const Shared s = shared_memory(p, memory);
  if (threadIdx.x == 0) {
    for (int i = 0; i < 2; ++i) {
      ptx::mbarrier_init(s.full[i], producing_threads);
      ptx::mbarrier_init(s.empty[i], consumers * group_threads);
    }
    ptx::mbarrier_init_done();
  }
  __syncthreads();

  // Slices run fastest: blocks that read the same cells run at the same time.
  const int64_t split = blockIdx.x / p.slices;
  const int64_t begin = split * p.steps / p.splits, end = (split + 1) * p.steps / p.splits;
  const int steps = static_cast<int>(end - begin);
  const int warpgroup = threadIdx.x / group_threads;
  constexpr bool paired = Operand::parts > 1;
  constexpr int registers = consumer_registers(columns, count, factors_of<Operand>);
  if (warpgroup >= consumers) {
    ptx::shrink_registers_to<256 - registers>();
    const bool fails = produce<Operand, loads_at_once(columns, count, factors_of<Operand>)>(
        p, s, slice_of(p, blockIdx.x % p.slices), big, small, pairs, quads, begin, steps);
    if (paired && fails) *failed = 1;
  } else {
    ptx::grow_registers_to<registers>();
    float* const to = partials + blockIdx.x * p.slice_floats();
    if (warpgroup == 0)
      consume_by<Operand, columns, count>(p, s, 0, steps, to);
    else if (p.products == 2 * count)
      consume_by<Operand, columns, count>(p, s, count, steps, to);
    else if constexpr (count > 1)
      consume_by<Operand, columns, count - 1>(p, s, count, steps, to);
    else
      for (int step = 0; step < steps; ++step) {  // waits for each step like the first warpgroup
        ptx::mbarrier_wait(s.full[step % 2], step / 2 % 2);
        ptx::mbarrier_arrive(s.empty[step % 2]);
      }
  }
#endif
}

/// Stores sums, which lie like the accumulators of the threads of partial_kernel.
template <class T>
struct StoreSum {
  Plan p;
  T* dweight;

  __device__ __forceinline__ void operator()(int64_t i, double sum) const {
    const int64_t each = p.slice_floats();
    const int at = static_cast<int>(i % each), thread = at % group_threads, lane = thread % 32;
    const int accumulator = at / group_threads % (p.columns / 2),
              product = at / group_threads / (p.columns / 2);
    const Slice slice = slice_of(p, i / each);
    const int octet = (product * 4 + thread / 32) * 2 + accumulator / 2 % 2;
    const int tap = slice.first_tap + octet % p.slice_taps;
    const int b = (slice.first_octet + octet / p.slice_taps) * 8 + lane / 4;
    const int column = slice.first_column + accumulator / 4 * 8 + lane % 4 * 2 + accumulator % 2;
    if (octet < p.octets_in_slice() && tap < p.taps && b < p.big_per_group && column < p.small_per_group)
      dweight[((int64_t{slice.group} * p.small_per_group + column) * p.big_per_group + b) * p.taps + tap] =
          static_cast<T>(sum);
  }
};

template <class Operand, int columns, int count>
void launch_partial(const Launch& launch, const Tensor& big, const Tensor& small, float* partials,
                    int64_t* failed, const Plan& p) {
  using T = Stored<Operand>;
  const T* const from_big = static_cast<const T*>(big.impl()->data());
  const T* const from_small = static_cast<const T*>(small.impl()->data());
  const PhasedAxis& w = p.axis[2];
  const bool pairs = p.per_word == 2 && w.stride == 1 && w.big % 2 == 0 && is_packet_aligned<T, 2>(from_big);
  const bool quads = w.small % 4 == 0 && is_packet_aligned<T, 4>(from_small);
  constexpr auto* kernel = partial_kernel<Operand, columns, count>;
  launch.allow_shared_memory<kernel>(p.shared_bytes);
  kernel<<<static_cast<unsigned>(p.slices * p.splits), block_threads, static_cast<size_t>(p.shared_bytes),
           launch.stream()>>>(from_big, from_small, pairs, quads, partials, failed, p);
}

/// dweight by the plan, in two launches.
template <class Operand>
void run(const WeightGradCall& call) {
  constexpr bool paired = Operand::parts > 1;
  using Weight = std::conditional_t<sizeof(Stored<Operand>) == 4, float, typename Operand::Element>;
  const auto& [big, small, dweight, g, only_if, failed_tensor] = call;
  const Launch launch("conv3d_weight_grad", dweight, {&big, &small, &failed_tensor});
  const Plan p = *recall<make_plan>(g, factors_of<Operand>);
  int64_t* const failed = paired ? vox::detail::mutable_ptr<int64_t>(failed_tensor) : nullptr;
  const Workspace partials(launch, p.splits * p.slices * p.slice_floats() * int64_t{sizeof(float)});
  const auto launch_if = [&]<int columns, int choice>() {
    constexpr int count = warpgroup_products(columns, paired).of[choice];
    if constexpr (count > 0)
      if (p.columns == columns && p.first_products == count)
        launch_partial<Operand, columns, count>(launch, big, small, partials.as<float>(), failed, p);
  };
  [&]<size_t... i>(std::index_sequence<i...>) {
    (launch_if.template operator()<column_counts[i / 4], i % 4>(), ...);
  }
  (std::make_index_sequence<4 * std::size(column_counts)>{});
  sum_splits(launch, partials.as<float>(), p.slices * p.slice_floats(), p.splits,
             StoreSum<Weight>{p, vox::detail::mutable_ptr<Weight>(dweight)});
  launch.check();
}

}  // namespace vox::cuda::conv::weight_grad
