#pragma once

// conv3d_weight_grad of 16-bit tensors on Hopper's tensor cores, from channels-last copies of both operands.
//
//   dweight[sc, (bc, k)] = sum over n, i of small[n, sc, i] * big[n, bc, i * stride - padding + k * dilation]
//
// It is a product of matrices for every tap k: rows are channels of big, columns are channels of small, and
// the coarse cells i are summed over. In a channels-last tensor a cell is a row of channels in memory, so both
// operands are contiguous along their channels ("MN-major"), which wgmma takes for 16-bit numbers. A box of 64
// coarse cells is one tensor copy (TMA) of small for each 64 channels, and one of big, whose start is moved by
// the tap and which skips cells by the stride. The copy engine writes zeros for cells outside.
//
// What a block owns: a tile of dweight (plan: some pairs of tap and 64 channels of big x channels of small),
// summed over a slab of boxes. Two warpgroups multiply, half of the row blocks each; one thread of a third
// starts the copies. Each block writes its own partial result; sum_slabs_kernel adds them in order. No
// atomics, and the bits never change.

#include <voxgrad/core/tensor.h>
#include <voxgrad/cuda/conv3d/call.h>
#include <voxgrad/cuda/conv3d/common/hopper.h>
#include <voxgrad/cuda/conv3d/common/integers.h>
#include <voxgrad/cuda/conv3d/common/recent.h>
#include <voxgrad/cuda/conv3d/dense/weight_grad_plan.h>
#include <voxgrad/cuda/ptx/tensor_map.h>
#include <voxgrad/cuda/runtime/launch.h>
#include <voxgrad/cuda/conv3d/common/operands.cuh>
#include <voxgrad/cuda/conv3d/common/ring.cuh>
#include <voxgrad/cuda/conv3d/dense/operands.cuh>
#include <voxgrad/cuda/ptx/copies.cuh>
#include <voxgrad/cuda/ptx/wgmma.cuh>

namespace vox::cuda::conv::dense {

// ---- What a block owns ------------------------------------------------------------------------------------

constexpr int wg_consumers = 2, wg_block_threads = (wg_consumers + 1) * 128;
constexpr int chunk_bytes = box_cells * chunk_channels * 2;  // 64 cells x 64 channels

/// Where a box of coarse cells begins: w, h, d, image.
struct BoxAt {
  int at[4];
};
__device__ __forceinline__ BoxAt box_at(const WeightGradPlan& p, int64_t step) {
  BoxAt box;
#pragma unroll
  for (int axis = 0; axis < 4; ++axis) {
    box.at[axis] = static_cast<int>(step % p.boxes[axis]) * p.box[axis];
    step /= p.boxes[axis];
  }
  return box;
}

/// 64 channels of big at a tap. Beyond the last one it is the last one again, whose result is dropped.
struct RowBlock {
  int first_channel, tap, shift[3];  // the shift of the tap along w, h, d
};
__device__ __forceinline__ RowBlock row_block(const WeightGradPlan& p, int index) {
  index = min(index, p.row_blocks - 1);
  const int tap = index / p.chunks;
  const int k[3]{tap / (p.kernel[1] * p.kernel[2]), tap / p.kernel[2] % p.kernel[1], tap % p.kernel[2]};
  RowBlock r{index % p.chunks * chunk_channels, tap, {}};
#pragma unroll
  for (int axis = 0; axis < 3; ++axis)
    r.shift[2 - axis] = k[axis] * p.dilation[axis] - p.padding[axis];
  return r;
}

// ---- The kernel -------------------------------------------------------------------------------------------

#ifdef __CUDA_ARCH_FEAT_SM90_ALL

/// Starts the copies of all steps, in order.
template <WeightGradTile tile>
__device__ __forceinline__ void produce(const WeightGradPlan& p, const CUtensorMap& big,
                                        const CUtensorMap& small, unsigned char* stages, Barriers& barriers,
                                        const RowBlock* row, int first_column, int64_t begin, int64_t end) {
  Ring ring{tile.stages()};
  for (int64_t step = begin; step < end; ++step, ring.advance()) {
    const BoxAt box = box_at(p, step);
    unsigned char* to = stages + ring.slot * tile.stage_bytes();
    ptx::Mbarrier& full = barriers.full[ring.slot];
    ring.wait_empty(barriers);
    ptx::mbarrier_arrive_expecting(full, tile.stage_bytes());
#pragma unroll
    for (int r = 0; r < tile.row_blocks; ++r, to += chunk_bytes)
      ptx::tensor_copy(to, big, row[r].first_channel, box.at[0] * p.stride[2] + row[r].shift[0],
                       box.at[1] * p.stride[1] + row[r].shift[1], box.at[2] * p.stride[0] + row[r].shift[2],
                       box.at[3], full);
#pragma unroll
    for (int c = 0; c < tile.columns; c += chunk_channels, to += chunk_bytes)
      ptx::tensor_copy(to, small, first_column + c, box.at[0], box.at[1], box.at[2], box.at[3], full);
  }
}

/// The products of one warpgroup: half of the row blocks, from number `first` of the tile on, of which `exist`
/// exist.
template <WeightGradTile tile, ptx::Operand operand>
__device__ __forceinline__ void consume(const WeightGradPlan& p, const unsigned char* stages,
                                        Barriers& barriers, const RowBlock* row, int first, int exist,
                                        int first_column, int64_t steps, float* partial) {
  constexpr int count = tile.row_blocks / wg_consumers, sums = tile.columns / 2;
  constexpr uint32_t k_bytes = 16 * chunk_channels * 2;  // of 16 cells, the k of an instruction
  float sum[count][sums];
  Ring ring{tile.stages()};
  Released released{barriers};
  for (int64_t step = 0; step < steps; ++step, ring.advance()) {
    const unsigned char* const stage = stages + ring.slot * tile.stage_bytes();
    const uint64_t a = ptx::swizzled_matrix(stage + first * chunk_bytes, chunk_bytes);
    const uint64_t b = ptx::swizzled_matrix(stage + tile.row_blocks * chunk_bytes, chunk_bytes);
    ring.wait_full(barriers);
    ptx::wgmma_fence();
#pragma unroll
    for (int k = 0; k < box_cells / 16; ++k)
#pragma unroll
      for (int r = 0; r < count; ++r)
        ptx::wgmma_mn_major<operand, tile.columns>(sum[r], ptx::moved(a, r * chunk_bytes + k * k_bytes),
                                                   ptx::moved(b, k * k_bytes), step > 0 || k > 0);
    ptx::wgmma_commit();
    ptx::wgmma_wait<1>();
    released.now();
    released.later(ring.slot);
  }
  ptx::wgmma_wait<0>();

  const int thread = threadIdx.x % 128, lane = thread % 32;
  const int channel = thread / 32 * 16 + lane / 4, column = first_column + lane % 4 * 2;
#pragma unroll
  for (int r = 0; r < count; ++r) {
    if (r >= exist) return;
    float* const to = partial + int64_t{row[r].tap} * p.small_channels * p.big_channels;
#pragma unroll
    for (int i = 0; i < sums; ++i) {
      const int bc = row[r].first_channel + channel + i / 2 % 2 * 8, sc = column + i / 4 * 8 + i % 2;
      if (bc < p.big_channels && sc < p.small_channels) to[sc * p.big_channels + bc] = sum[r][i];
    }
  }
}

#endif

/// partials: [slab][tap][channel of small][channel of big].
template <WeightGradTile tile, ptx::Operand operand>
__global__ void __launch_bounds__(wg_block_threads, 1)
    weight_grad_kernel(const __grid_constant__ CUtensorMap big, const __grid_constant__ CUtensorMap small,
                       float* partials, const __grid_constant__ WeightGradPlan p) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
  extern __shared__ __align__(1024) unsigned char stages[];
  __shared__ Barriers barriers;
  __shared__ RowBlock rows[tile.row_blocks];
  const int tiles = p.row_tiles * p.column_tiles, index = static_cast<int>(blockIdx.x) % tiles;
  const int slab = static_cast<int>(blockIdx.x) / tiles;
  const int first_row_block = index % p.row_tiles * tile.row_blocks;
  const int first_column = index / p.row_tiles * tile.columns;
  if (threadIdx.x < tile.row_blocks)
    rows[threadIdx.x] = row_block(p, first_row_block + static_cast<int>(threadIdx.x));
  if (threadIdx.x == 0) {
    for (int slot = 0; slot < tile.stages(); ++slot) {
      ptx::mbarrier_init(barriers.full[slot], 1);
      ptx::mbarrier_init(barriers.empty[slot], wg_consumers * 128);
    }
    ptx::mbarrier_init_done();
  }
  __syncthreads();

  const int64_t length = (p.steps + p.slabs - 1) / p.slabs, begin = slab * length;
  const int64_t end = min(begin + length, p.steps);

  const int warpgroup = threadIdx.x / 128;
  if (warpgroup == wg_consumers) {
    ptx::shrink_registers_to<40>();
    if (threadIdx.x % 128 == 0)
      produce<tile>(p, big, small, stages, barriers, rows, first_column, begin, end);
  } else {
    ptx::grow_registers_to<232>();
    const int first = warpgroup * (tile.row_blocks / wg_consumers);
    consume<tile, operand>(p, stages, barriers, rows + first, first, p.row_blocks - first_row_block - first,
                           first_column, end - begin, partials + slab * p.elements());
  }
#endif
}

// ---- The sum of the slabs ---------------------------------------------------------------------------------

constexpr int sum_channels = 64, sum_threads = 256;

/// A block writes dweight of one channel of small and up to 64 of big: reads are contiguous along channels of
/// big, writes along taps, and in between they are in shared memory.
template <class T>
__global__ void __launch_bounds__(sum_threads)
    sum_slabs_kernel(const float* partials, T* dweight, const __grid_constant__ WeightGradPlan p) {
  extern __shared__ float result[];  // [channel of big][tap]
  const int first = static_cast<int>(blockIdx.x) * sum_channels;
  const int channels = min(sum_channels, p.big_channels - first);
  const int64_t plane = int64_t{p.small_channels} * p.big_channels, slab = p.elements();
  for (int sc = static_cast<int>(blockIdx.y); sc < p.small_channels; sc += static_cast<int>(gridDim.y)) {
    const float* const from = partials + int64_t{sc} * p.big_channels + first;
    for (int i = static_cast<int>(threadIdx.x); i < p.taps * sum_channels; i += sum_threads) {
      const int channel = i % sum_channels, tap = i / sum_channels;
      if (channel >= channels) continue;
      float sum = 0;
#pragma unroll 4
      for (int s = 0; s < p.slabs; ++s) sum += from[s * slab + tap * plane + channel];
      result[channel * p.taps + tap] = sum;
    }
    __syncthreads();
    T* const to = dweight + (int64_t{sc} * p.big_channels + first) * p.taps;
    for (int i = static_cast<int>(threadIdx.x); i < channels * p.taps; i += sum_threads)
      to[i] = static_cast<T>(result[i]);
    __syncthreads();
  }
}

// ---- The launch -------------------------------------------------------------------------------------------

template <class Operand>
void run_weight_grad(const WeightGradCall& call) {
  using Element = typename Operand::Element;
  const auto& [big, small, dweight, g, only_if, failed] = call;
  const Launch launch("conv3d_weight_grad", dweight, {&big, &small});
  const WeightGradPlan p = *recall<make_weight_grad_plan>(g, multiprocessors(launch));
  const ChannelsLast<Element> big_cells(launch, big), small_cells(launch, small);
  const Workspace partials(launch, p.slabs * p.elements() * int64_t{sizeof(float)});
  const CUtensorMap big_map =
      big_cells.map(launch, {p.box[0], p.box[1], p.box[2], p.box[3]}, {p.stride[2], p.stride[1], p.stride[0]});
  const CUtensorMap small_map = small_cells.map(launch, {p.box[0], p.box[1], p.box[2], p.box[3]}, {1, 1, 1});

  const auto blocks = static_cast<unsigned>(p.row_tiles * p.column_tiles * p.slabs);
  const auto launch_if = [&]<int index>(std::integral_constant<int, index>) {
    constexpr WeightGradTile tile = weight_grad_tiles[index];
    if (p.tile != tile) return;
    constexpr auto* kernel = weight_grad_kernel<tile, Operand::operand>;
    constexpr int shared = tile.stages() * tile.stage_bytes();
    launch.allow_shared_memory<kernel>(shared);
    kernel<<<blocks, wg_block_threads, shared, launch.stream()>>>(big_map, small_map, partials.as<float>(), p);
  };
  launch_if(std::integral_constant<int, 0>{});
  launch_if(std::integral_constant<int, 1>{});
  launch_if(std::integral_constant<int, 2>{});
  launch_if(std::integral_constant<int, 3>{});
  launch.check();

  const int shared = sum_channels * p.taps * static_cast<int>(sizeof(float));
  launch.allow_shared_memory<sum_slabs_kernel<Element>>(shared);
  const dim3 grid(static_cast<unsigned>(ceil_div(p.big_channels, sum_channels)),
                  static_cast<unsigned>(std::min(p.small_channels, 65535)));
  sum_slabs_kernel<<<grid, sum_threads, static_cast<size_t>(shared), launch.stream()>>>(
      partials.as<float>(), vox::detail::mutable_ptr<Element>(dweight), p);
  launch.check();
}

}  // namespace vox::cuda::conv::dense
