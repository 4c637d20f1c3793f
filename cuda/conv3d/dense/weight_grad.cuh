#pragma once

// conv3d_weight_grad of 16-bit tensors on Hopper's tensor cores, from channels-last copies of both operands.
//
//   dweight[sc, (bc, k)] = sum over n, i of small[n, sc, i] * big[n, bc, i * stride - padding + k * dilation]
//
// It is a product of matrices for every tap k: rows are channels of small, columns are channels of big, and
// the coarse cells i are summed over. In a channels-last tensor a cell is a row of channels in memory, so
// both operands are contiguous along their channels ("MN-major"), which wgmma takes for 16-bit numbers. A box
// of 64 coarse cells is one tensor copy (TMA) of small for each 64 channels, and one of big, whose start is
// moved by the tap and which skips cells by the stride. TMA writes zeros for cells outside.
//
// What a block owns: a share of the steps, in one tile of dweight or in several. A warpgroup computes several
// parts (plan) by one instruction, in which each part of big is 64 columns: the columns of the next tap along
// w are the same rows of shared memory one cell further on. One thread of the last warpgroup starts the
// copies, of the next tile too while sums are stored. Each block stores its split of a tile, and
// sum_splits_kernel adds the splits in order. No atomics, and the bits never change.
//
// The three kernels overlap: the second and the third may begin when all blocks of the one before have begun,
// and wait for its end before they touch memory (runtime/dependent.cuh).

#include <voxgrad/core/tensor.h>
#include <voxgrad/cuda/conv3d/call.h>
#include <voxgrad/cuda/conv3d/common/hopper.h>
#include <voxgrad/cuda/conv3d/common/integers.h>
#include <voxgrad/cuda/conv3d/common/recent.h>
#include <voxgrad/cuda/conv3d/dense/weight_grad_plan.h>
#include <voxgrad/cuda/ptx/tensor_map.h>
#include <voxgrad/cuda/runtime/launch.h>
#include <voxgrad/cuda/conv3d/common/channels_last.cuh>
#include <voxgrad/cuda/conv3d/common/operands.cuh>
#include <voxgrad/cuda/conv3d/common/ring.cuh>
#include <voxgrad/cuda/ptx/tensor_copy.cuh>
#include <voxgrad/cuda/ptx/wgmma.cuh>
#include <voxgrad/cuda/runtime/dependent.cuh>

#include <type_traits>
#include <utility>

namespace vox::cuda::conv::dense {

// ---- What a block owns ------------------------------------------------------------------------------------

constexpr int cell_bytes = chunk_channels * 2,
              chunk_bytes = box_cells * cell_bytes;  // 64 cells x 64 channels

/// Threads of a block: the warpgroups that multiply, and the one that loads.
constexpr int threads_of(const WeightGradTile& tile) { return (tile.warpgroups() + 1) * 128; }

/// Where the box of a step begins in small. Only the first one is computed by divisions, whose latency a
/// single thread could not hide.
struct BoxOfStep {
  int index[4];  // w, h, d, batch

  __device__ __forceinline__ BoxOfStep(const WeightGradPlan& p, int64_t step) {
    const auto [n, d, h, w] = digits(step, {p.boxes[2], p.boxes[1], p.boxes[0]});
    index[0] = w, index[1] = h, index[2] = d, index[3] = n;
  }
  __device__ __forceinline__ void advance(const WeightGradPlan& p) {
#pragma unroll
    for (int axis = 0; axis < 4; ++axis) {
      if (++index[axis] < p.boxes[axis]) return;
      index[axis] = 0;
    }
  }
  __device__ __forceinline__ ptx::BoxAt at(const WeightGradPlan& p) const {
    return {0, index[0] * p.box[0], index[1] * p.box[1], index[2] * p.box[2], index[3] * p.box[3]};
  }
};

// ---- The kernel -------------------------------------------------------------------------------------------

#ifdef __CUDA_ARCH_FEAT_SM90_ALL

/// Of a window in shared memory; constant for a single tap, whose window is a box.
template <WeightGradTile tile>
__device__ __forceinline__ int window_bytes(const WeightGradPlan& p) {
  return tile.group_taps() == 1 ? chunk_bytes : p.window_bytes;
}

/// Calls f(tile, begin, end) for each tile of the block's share, with the steps of the tile in it.
template <class F>
__device__ __forceinline__ void visit_tiles(const WeightGradPlan& p, const F& f) {
  const auto block = static_cast<int>(blockIdx.x);
  const int64_t end = p.begin_of(block + 1);
  for (int64_t step = p.begin_of(block); step < end;) {
    const int64_t first = step / p.steps * p.steps, next = min(first + p.steps, end);
    f(static_cast<int>(step / p.steps), step - first, next - first);
    step = next;
  }
}

/// Starts the copies of all steps, in order. All lanes of a warp call it.
template <WeightGradTile tile>
__device__ __forceinline__ void produce(const WeightGradPlan& p, const CUtensorMap& big,
                                        const CUtensorMap& small, unsigned char* stages, Barriers& barriers,
                                        Window* window) {
  const int lane = threadIdx.x % 32;
  const int window_cells = p.window[0] * p.window[1] * p.box[2] * p.box[3];
  const uint32_t bytes = tile.windows * window_cells * cell_bytes + tile.rows * chunk_bytes;
  Ring ring{p.stages};
  ptx::wait_for_previous_kernel();
  visit_tiles(p, [&](int index, int64_t begin, int64_t end) {
    const int first_window = index % p.window_tiles * tile.windows;
    const int first_channel = index / p.window_tiles * tile.rows * chunk_channels;
    __syncwarp();
    if (lane < tile.windows) window[lane] = window_at(p, first_window + lane);
    __syncwarp();
    if (lane > 0) return;
    BoxOfStep box_of_step(p, begin);
    for (int64_t step = begin; step < end; ++step, ring.advance(), box_of_step.advance(p)) {
      const ptx::BoxAt box = box_of_step.at(p);
      const int w = box.w * p.stride[2], h = box.h * p.stride[1], d = box.d * p.stride[0];
      unsigned char* to = stages + ring.slot * p.stage_bytes;
      ptx::Mbarrier& full = barriers.full[ring.slot];
      ring.wait_empty(barriers);
      ptx::mbarrier_arrive_expecting(full, bytes);
#pragma unroll
      for (int v = 0; v < tile.windows; ++v, to += window_bytes<tile>(p))
        ptx::tensor_copy(to, big,
                         {window[v].first_channel, w + window[v].w, h + window[v].h, d + window[v].d, box.n},
                         full);
#pragma unroll
      for (int row = 0; row < tile.rows; ++row, to += chunk_bytes)
        ptx::tensor_copy(to, small, {first_channel + row * chunk_channels, box.w, box.h, box.d, box.n}, full);
    }
  });
}

/// The parts of one warpgroup, over all steps.
template <WeightGradTile tile, ptx::Operand operand>
__device__ __forceinline__ void consume(const WeightGradPlan& p, const unsigned char* stages,
                                        Barriers& barriers, int warpgroup, float* partials) {
  constexpr int parts = tile.parts_at_once(), columns = parts * chunk_channels;
  const int first = warpgroup * parts;  // in the order row, window, h, w
  const int in_group = first / tile.group_w % tile.group_h, window = first / tile.group_taps() % tile.windows,
            row = first / tile.group_taps() / tile.windows;
  const int small_at = tile.windows * window_bytes<tile>(p) + row * chunk_bytes;
  const int big_at = window * window_bytes<tile>(p) + in_group * p.tap_cell[1] * cell_bytes;
  const int apart = tile.group_w > 1 ? p.tap_cell[0] * cell_bytes : window_bytes<tile>(p);  // parts
  int slice[box_cells / 16];  // where they begin, in bytes
#pragma unroll
  for (int k = 0; k < box_cells / 16; ++k)
    slice[k] = cell_bytes * (tile.group_taps() == 1 ? 16 * k : p.slice_cell[k]);

  float sum[columns / 2];
  Ring ring{p.stages};
  Released released{barriers};
  visit_tiles(p, [&](int index, int64_t begin, int64_t end) {
    for (int64_t step = begin; step < end; ++step, ring.advance()) {
      const unsigned char* const stage = stages + ring.slot * p.stage_bytes;
      const uint64_t a = ptx::swizzled_mn_major_matrix(stage + small_at, chunk_bytes),
                     b = ptx::swizzled_mn_major_matrix(stage + big_at, apart);
      ring.wait_full(barriers);
      ptx::wgmma_fence();
#pragma unroll
      for (int k = 0; k < box_cells / 16; ++k)
        ptx::wgmma_mn_major<operand, columns>(sum, ptx::moved(a, k * 16 * cell_bytes),
                                              ptx::moved(b, slice[k]), step > begin || k > 0);
      ptx::wgmma_commit();
      ptx::wgmma_wait<1>();
      released.now();
      released.later(ring.slot);
    }
    ptx::wgmma_wait<0>();
    released.now();

    const int thread = threadIdx.x % 128, lane = thread % 32;
    const int channel = (index / p.window_tiles * tile.rows + row) * chunk_channels + thread / 32 * 16 +
                        lane / 4;  // of small
    float* const partial = partials + (static_cast<int>(blockIdx.x) - p.first_block(index)) * p.elements();
#pragma unroll
    for (int part = 0; part < parts; ++part) {
      const int v = index % p.window_tiles * tile.windows + window + (tile.group_w > 1 ? 0 : part);
      const Window from = window_at(p, v);
      const int k_h = from.k_h + in_group, k_w = from.k_w + (tile.group_w > 1 ? part : 0);
      if (v >= p.windows() || k_h >= p.kernel[1] || k_w >= p.kernel[2]) continue;
      const int tap = (from.k_d * p.kernel[1] + k_h) * p.kernel[2] + k_w;
      float* const to = partial + int64_t{tap} * p.small_channels * p.big_channels;
#pragma unroll
      for (int i = 0; i < chunk_channels / 2; i += 2) {
        const int bc = from.first_channel + i / 4 * 8 + lane % 4 * 2, sc = channel + i / 2 % 2 * 8;
        if (bc >= p.big_channels || sc >= p.small_channels) continue;
        const float x = sum[part * (chunk_channels / 2) + i], y = sum[part * (chunk_channels / 2) + i + 1];
        float* const at = to + sc * p.big_channels + bc;
        if (p.big_channels % 2 == 0) {
          *reinterpret_cast<float2*>(at) = make_float2(x, y);
        } else {
          at[0] = x;
          if (bc + 1 < p.big_channels) at[1] = y;
        }
      }
    }
  });
}

#endif

/// partials: [split][tap][channel of small][channel of big].
template <int rows, int windows, int group_h, int group_w, ptx::Operand operand>
__global__ void __launch_bounds__(threads_of(WeightGradTile{rows, windows, group_h, group_w}), 1)
    weight_grad_kernel(const __grid_constant__ CUtensorMap big, const __grid_constant__ CUtensorMap small,
                       float* partials, const __grid_constant__ WeightGradPlan p) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
  constexpr WeightGradTile tile{rows, windows, group_h, group_w};
  constexpr int consumers = tile.warpgroups(), producer_registers = 40;
  extern __shared__ unsigned char unaligned[];
  unsigned char* const stages = unaligned + (1024 - ptx::shared_address_of(unaligned) % 1024) % 1024;
  __shared__ Barriers barriers;
  __shared__ Window window[tile.windows];
  if (threadIdx.x == 0) {
    barriers.init(p.stages, 1, consumers * 128);
    ptx::mbarrier_init_done();
  }
  __syncthreads();
  ptx::let_next_kernel_start();

  const int warpgroup = threadIdx.x / 128;
  if (warpgroup == consumers) {
    ptx::shrink_registers_to<producer_registers>();
    if (threadIdx.x % 128 < 32) produce<tile>(p, big, small, stages, barriers, window);
  } else {
    ptx::grow_registers_to<(512 - producer_registers) / consumers / 8 * 8>();
    consume<tile, operand>(p, stages, barriers, warpgroup, partials);
  }
#endif
}

// ---- The sum of the splits
// ---------------------------------------------------------------------------------

constexpr int sum_channels = 64, sum_threads = 256;
static_assert(sum_channels == chunk_channels);  // so that a block's numbers of a tap are of one window

/// The tile of dweight that holds a tap of a chunk of big and a channel of small.
__device__ __forceinline__ int tile_of(const WeightGradPlan& p, int tap, int chunk, int channel) {
  const int k_w = tap % p.kernel[2], k_h = tap / p.kernel[2] % p.kernel[1],
            k_d = tap / p.kernel[2] / p.kernel[1];
  const int group = (k_d * p.groups[1] + k_h / p.tile.group_h) * p.groups[2] + k_w / p.tile.group_w;
  return channel / (p.tile.rows * chunk_channels) * p.window_tiles +
         (group * p.chunks + chunk) / p.tile.windows;
}

/// A block writes some taps of dweight of one channel of small and up to 64 of big: reads are contiguous
/// along channels of big, writes along taps, and in between they are in shared memory. Sums of some 100
/// splits in f32 are more exact than the operands, which have 11 bits.
template <class Operand, class T>
__global__ void __launch_bounds__(sum_threads)
    sum_splits_kernel(const float* partials, const float* largest_of_big, const float* largest_of_small,
                      T* dweight, int taps_of_block, const __grid_constant__ WeightGradPlan p) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
  extern __shared__ float result[];  // [channel of big][tap], and then the number of splits of each tap
  int* const splits = reinterpret_cast<int*>(result + sum_channels * taps_of_block);
  const auto chunk = static_cast<int>(blockIdx.x);
  const int first = chunk * sum_channels, channels = min(sum_channels, p.big_channels - first);
  const int first_tap = static_cast<int>(blockIdx.z) * taps_of_block,
            taps = min(taps_of_block, p.taps - first_tap);
  const int64_t plane = int64_t{p.small_channels} * p.big_channels, split = p.elements();
  const bool quads = p.big_channels % 4 == 0;
  ptx::wait_for_previous_kernel();
  for (int sc = static_cast<int>(blockIdx.y); sc < p.small_channels; sc += static_cast<int>(gridDim.y)) {
    const float* const from = partials + int64_t{sc} * p.big_channels + first;
    for (int tap = static_cast<int>(threadIdx.x); tap < taps; tap += sum_threads)
      splits[tap] = p.splits_of(tile_of(p, first_tap + tap, chunk, sc));
    __syncthreads();
    for (int i = static_cast<int>(threadIdx.x); i < taps * sum_channels / 4; i += sum_threads) {
      const int channel = i % (sum_channels / 4) * 4, tap = i / (sum_channels / 4);
      if (channel >= channels) continue;
      const float* at = from + (first_tap + tap) * plane + channel;
      const int splits_of_tap = splits[tap], here = min(channels - channel, 4);
      float sum[4]{};
      if (quads) {
#pragma unroll 4
        for (int s = 0; s < splits_of_tap; ++s, at += split) {
          const float4 x = *reinterpret_cast<const float4*>(at);
          sum[0] += x.x, sum[1] += x.y, sum[2] += x.z, sum[3] += x.w;
        }
      } else {
        for (int s = 0; s < splits_of_tap; ++s, at += split)
          for (int c = 0; c < 4; ++c)
            if (c < here) sum[c] += at[c];
      }
#pragma unroll
      for (int c = 0; c < 4; ++c) {
        if (c >= here) continue;
        if constexpr (std::is_same_v<Operand, ScaledF16>) {
          const double scale = double{ScaledF16::scale_for(largest_of_big[first + channel + c])} *
                               double{ScaledF16::scale_for(largest_of_small[sc])};
          sum[c] = static_cast<float>(sum[c] / scale);
        }
        result[(channel + c) * taps + tap] = sum[c];
      }
    }
    __syncthreads();
    T* const to = dweight + (int64_t{sc} * p.big_channels + first) * p.taps + first_tap;
    for (int i = static_cast<int>(threadIdx.x); i < channels * taps; i += sum_threads)
      to[i / taps * p.taps + i % taps] = static_cast<T>(result[i]);
    __syncthreads();
  }
#endif
}

// ---- The launch -------------------------------------------------------------------------------------------

/// A copy as boxes of 64 channels and so many cells (w, h, d, batch), `step` cells apart (d, h, w).
template <class Operand>
CUtensorMap boxes_of(const ChannelsLastCopy<Operand>& copy, const Tensor& x, const int (&box)[4],
                     const Triple& step) {
  return ptx::tensor_map(
      "conv3d_weight_grad", copy.template as<void>(), dtype_of<typename Operand::Element>(),
      {.extents = {padded_channels<Operand>(x.size(1)), x.size(4), x.size(3), x.size(2), x.size(0)},
       .box = {chunk_channels, box[0], box[1], box[2], box[3]},
       .step = {1, step.w, step.h, step.d, 1}});
}

template <class Operand>
void run_weight_grad(const WeightGradCall& call) {
  using Copy = ChannelsLastCopy<Operand>;
  using Storage = typename Copy::Storage;
  const auto& [big, small, dweight, g, only_if, failed] = call;
  const Launch launch("conv3d_weight_grad", dweight, {&big, &small});
  const WeightGradPlan p = *recall<make_weight_grad_plan>(g, machine_of(launch));
  const Copy big_cells(launch, big), small_cells(launch, small);
  Copy::make(launch, big_cells, small_cells);
  const CUtensorMap big_map =
                        boxes_of(big_cells, big, {p.window[0], p.window[1], p.box[2], p.box[3]}, g.stride),
                    small_map = boxes_of(small_cells, small, {p.box[0], p.box[1], p.box[2], p.box[3]}, 1);
  const Workspace partials(launch, p.splits * p.elements() * int64_t{sizeof(float)});

  const auto launch_if = [&]<size_t index>(std::integral_constant<size_t, index>) {
    constexpr WeightGradTile tile = weight_grad_tiles[index];
    if (p.tile != tile) return;
    constexpr auto* kernel =
        weight_grad_kernel<tile.rows, tile.windows, tile.group_h, tile.group_w, Operand::operand>;
    const int shared = p.stages * p.stage_bytes + 1024;
    launch.allow_shared_memory<kernel>(shared);
    launch_dependent(launch, {static_cast<unsigned>(p.blocks), threads_of(tile), shared}, kernel, big_map,
                     small_map, partials.as<float>(), p);
  };
  [&]<size_t... i>(std::index_sequence<i...>) { (launch_if(std::integral_constant<size_t, i>{}), ...); }
  (std::make_index_sequence<std::size(weight_grad_tiles)>{});

  constexpr int fill = 16 * h200.multiprocessors;  // blocks
  const int chunks = ceil_div(p.big_channels, sum_channels), rows = std::min(p.small_channels, 65535);
  const int taps_of_block = ceil_div(
      p.taps, std::clamp(fill / (chunks * rows), 1, ceil_div(p.taps, 4 * sum_threads / sum_channels)));
  const int shared = (sum_channels + 1) * taps_of_block * static_cast<int>(sizeof(float));
  launch.allow_shared_memory<sum_splits_kernel<Operand, Storage>>(shared);
  const dim3 blocks(static_cast<unsigned>(chunks), static_cast<unsigned>(rows),
                    static_cast<unsigned>(ceil_div(p.taps, taps_of_block)));
  launch_dependent(launch, {blocks, sum_threads, shared}, sum_splits_kernel<Operand, Storage>,
                   partials.as<float>(), big_cells.largest(), small_cells.largest(),
                   vox::detail::mutable_ptr<Storage>(dweight), taps_of_block, p);
}

}  // namespace vox::cuda::conv::dense
