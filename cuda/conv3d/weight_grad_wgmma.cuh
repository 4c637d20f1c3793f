#pragma once

// conv3d_weight_grad of f32 with the warpgroup products of Hopper.
//
//   dweight[sc, (bc, k)] = sum over n, i of small[n, sc, i] * big[n, bc, i * stride - padding + k * dilation]
//
// Positions i are contiguous in both tensors, and they are k of the product: so both operands are k-major as
// they lie in memory, which is what wgmma wants of TF32. No transposition anywhere.
//
// A row of the product is a channel of big for a tap. Taps shift big by single positions, which no descriptor
// of shared memory can name, so these fragments are loaded into registers, from [channel][row][column], where
// a shift is an offset like any other: of a tap along any axis, of a residue class of the stride, of a ring's
// slot. In an instruction's 64 rows each half of a warp's 16 is an octet of its own: 8 channels for one tap.
// Columns are channels of small, whose tile lies as [position / 4][channel][4 positions], by descriptor.
//
// A block keeps a slice of dweight in registers (weight_grad_plan.h), sums it over a slab of positions, and
// writes a partial result of its own; a second kernel adds the partials in order. No atomics, and the bits
// never change. Its first two warpgroups multiply, the other two bring the tiles: a step is one depth of a
// tile of coarse rows, and the planes of big stay in a ring for the steps that share them.
//
// weight_grad_shared.cuh, weight_grad_produce.cuh and weight_grad_consume.cuh are its parts;
// weight_grad_wgmma.cu and weight_grad_wgmma_split.cu the two kernels that come of it.

#include <voxgrad/core/tensor.h>
#include <voxgrad/cuda/conv3d/channel_tiles.h>
#include <voxgrad/cuda/launch.h>
#include <voxgrad/cuda/conv3d/weight_grad_consume.cuh>
#include <voxgrad/cuda/conv3d/weight_grad_produce.cuh>

#include <algorithm>

namespace vox::cuda {

/// dweight = the partial results of p.slabs slabs, added in order.
void add_weight_grad_slabs(const Launch& launch, const float* partials, Tensor& dweight,
                           const WeightGradPlan& p);

/// Registers of a consumer's thread: accumulators, fragments and their addresses, and the rest. Producers,
/// with as many warpgroups, get the others (256 for both), and the more, the more loads are on their way.
constexpr int consumer_registers(int columns, int count, bool split) {
  const int sums = (count + split) * columns / 2, fragments = split ? 26 : count * 6;
  return std::clamp((sums + fragments + 44 + 7) / 8 * 8, 128, 208);  // 128 at the start
}
/// Elements of 8 channels that a producer's thread loads at once.
constexpr int loads_at_once(int columns, int count, bool split) {
  return std::clamp((256 - consumer_registers(columns, count, split) - 30) / 8, 2, 6);
}

#ifdef __CUDA_ARCH_FEAT_SM90_ALL
template <int columns, int count, bool split>
__device__ __forceinline__ void consume_by(const WeightGradPlan& p, const Shared& s, int first, int steps,
                                           float* to) {
  if constexpr (split)
    consume_split<columns, count>(p, s, first, steps, to);
  else
    consume<columns, count>(p, s, first, steps, to);
}
#endif

/// One slice and slab for a block; the first warpgroup makes `count` products, the second as many or one
/// fewer.
template <int columns, int count, bool split>
__global__ void __launch_bounds__(block_threads, 1)
    partial_kernel(const void* __restrict__ big, const void* __restrict__ small, Storage storage, bool quads,
                   float* partials, int64_t* not_split, const __grid_constant__ WeightGradPlan p) {
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

  // Slices fastest: blocks that read the same cells run at the same time.
  const int64_t slab = blockIdx.x / p.slices;
  const int64_t begin = slab * p.steps / p.slabs, end = (slab + 1) * p.steps / p.slabs;
  const int steps = static_cast<int>(end - begin);
  const int warpgroup = threadIdx.x / group_threads;
  constexpr int registers = consumer_registers(columns, count, split);
  if (warpgroup >= consumers) {
    ptx::shrink_registers_to<256 - registers>();
    const auto bring = [&](auto element) {
      using T = decltype(element);
      return produce<split, loads_at_once(columns, count, split)>(
          p, s, slice_of(p, blockIdx.x % p.slices), static_cast<const T*>(big), static_cast<const T*>(small),
          storage, quads, begin, steps);
    };
    if constexpr (split) {
      if (bring(float{})) *not_split = 1;
    } else if (storage == Storage::f32) {
      bring(float{});
    } else {
      bring(uint16_t{});
    }
  } else {
    ptx::grow_registers_to<registers>();
    float* const to = partials + blockIdx.x * p.slice_floats();
    if (warpgroup == 0)
      consume_by<columns, count, split>(p, s, 0, steps, to);
    else if (p.products == 2 * count)
      consume_by<columns, count, split>(p, s, count, steps, to);
    else if constexpr (count > 1)
      consume_by<columns, count - 1, split>(p, s, count, steps, to);
    else
      for (int step = 0; step < steps; ++step) {  // keeps pace
        ptx::mbarrier_wait(s.full[step % 2], step / 2 % 2);
        ptx::mbarrier_arrive(s.empty[step % 2]);
      }
  }
#endif
}

template <int columns, int count, bool split>
void launch_partial(const Launch& launch, const Tensor& big, const Tensor& small, float* partials,
                    int64_t* not_split, const WeightGradPlan& p) {
  const DType dtype = small.dtype();
  const Storage storage = dtype == bf16 ? Storage::bf16 : dtype == f16 ? Storage::f16 : Storage::f32;
  const void* const from = small.impl()->data();
  const auto alignment = static_cast<uintptr_t>(4 * size_of(dtype));
  const bool quads = p.axis[2].small % 4 == 0 && reinterpret_cast<uintptr_t>(from) % alignment == 0;
  constexpr auto* kernel = partial_kernel<columns, count, split>;
  launch.allow_shared_memory<kernel>(p.shared_bytes);
  kernel<<<static_cast<unsigned>(p.slices * p.slabs), block_threads, static_cast<size_t>(p.shared_bytes),
           launch.stream()>>>(big.impl()->data(), from, storage, quads, partials, not_split, p);
}

/// dweight by the plan, in two launches. With `split`, *not_split becomes 1 if a value has no split; dweight
/// is then of no use.
template <bool split>
void weight_grad_in_slices(const Launch& launch, const Tensor& big, const Tensor& small, Tensor& dweight,
                           int64_t* not_split, const WeightGradPlan& p) {
  const Workspace partials(launch, p.slabs * p.slices * p.slice_floats() * int64_t{sizeof(float)});
  visit_channel_tiles(p.small_per_group, [&](auto tiles) {
    constexpr int columns = 8 * tiles;
    const auto launch_if = [&](auto choice) {
      constexpr int count = warpgroup_products(columns, split).of[choice];
      if constexpr (count > 0)
        if (p.first_products == count)
          launch_partial<columns, count, split>(launch, big, small, partials.as<float>(), not_split, p);
    };
    launch_if(std::integral_constant<int, 0>{});
    launch_if(std::integral_constant<int, 1>{});
    launch_if(std::integral_constant<int, 2>{});
    launch_if(std::integral_constant<int, 3>{});
  });
  add_weight_grad_slabs(launch, partials.as<float>(), dweight, p);
  launch.check();
}

}  // namespace vox::cuda
