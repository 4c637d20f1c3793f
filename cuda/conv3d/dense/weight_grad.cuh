#pragma once

// conv3d_weight_grad of 16-bit tensors on Hopper's tensor cores, from channels-last copies of both operands.
//
//   dweight[sc, (bc, k)] = sum over n, i of small[n, sc, i] * big[n, bc, i * stride - padding + k * dilation]
//
// It is a product of matrices for every tap k: rows are channels of big, columns are channels of small, and
// the coarse cells i are summed over. In a channels-last tensor a cell is a row of channels in memory, so
// both operands are contiguous along their channels ("MN-major"), which wgmma takes for 16-bit numbers. A box
// of 64 coarse cells is one tensor copy (TMA) of small for each 64 channels, and one of big, whose start is
// moved by the tap and which skips cells by the stride. The copy engine writes zeros for cells outside.
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
#include <voxgrad/cuda/conv3d/dense/dense.h>
#include <voxgrad/cuda/conv3d/dense/weight_grad_plan.h>
#include <voxgrad/cuda/ptx/tensor_map.h>
#include <voxgrad/cuda/runtime/launch.h>
#include <voxgrad/cuda/conv3d/common/operands.cuh>
#include <voxgrad/cuda/conv3d/common/ring.cuh>
#include <voxgrad/cuda/conv3d/dense/operands.cuh>
#include <voxgrad/cuda/conv3d/dense/scale.cuh>
#include <voxgrad/cuda/ptx/tensor_copy.cuh>
#include <voxgrad/cuda/ptx/wgmma.cuh>

#include <optional>
#include <type_traits>

namespace vox::cuda::conv::dense {

// ---- What a block owns ------------------------------------------------------------------------------------

constexpr int wg_consumers = 2, wg_block_threads = (wg_consumers + 1) * 128;
constexpr int cell_bytes = chunk_channels * 2,
              chunk_bytes = box_cells * cell_bytes;  // 64 cells x 64 channels

/// Where the box of a step begins in small.
__device__ __forceinline__ ptx::BoxAt box_at(const WeightGradPlan& p, int64_t step) {
  int at[4];
#pragma unroll
  for (int axis = 0; axis < 4; ++axis) {
    at[axis] = static_cast<int>(step % p.boxes[axis]) * p.box[axis];
    step /= p.boxes[axis];
  }
  return {0, at[0], at[1], at[2], at[3]};
}

/// What a window holds: 64 channels of big, and the first tap of its group. Beyond the last window it is the
/// last one again, whose result is dropped.
struct Window {
  int first_channel, k_d, k_h, k_w;
  int w, h, d;  // where it begins, for the box at the origin
};
__device__ __forceinline__ Window window_at(const WeightGradPlan& p, int index) {
  index = min(index, p.windows() - 1);
  Window v;
  v.first_channel = index % p.chunks * chunk_channels, index /= p.chunks;
  v.k_w = index % p.groups[2] * p.tile.group_w, index /= p.groups[2];
  v.k_h = index % p.groups[1] * p.tile.group_h, v.k_d = index / p.groups[1];
  v.w = v.k_w * p.dilation[2] - p.padding[2];
  v.h = v.k_h * p.dilation[1] - p.padding[1];
  v.d = v.k_d * p.dilation[0] - p.padding[0];
  return v;
}

// ---- The kernel -------------------------------------------------------------------------------------------

#ifdef __CUDA_ARCH_FEAT_SM90_ALL

/// Of a window in shared memory; constant for a single tap, whose window is a box.
template <WeightGradTile tile>
__device__ __forceinline__ int window_bytes(const WeightGradPlan& p) {
  return tile.group_taps() == 1 ? chunk_bytes : p.window_bytes;
}

/// Starts the copies of all steps, in order.
template <WeightGradTile tile>
__device__ __forceinline__ void produce(const WeightGradPlan& p, const CUtensorMap& big,
                                        const CUtensorMap& small, unsigned char* stages, Barriers& barriers,
                                        const Window* window, int first_column, int64_t begin, int64_t end) {
  const int window_cells = p.window[0] * p.window[1] * p.box[2] * p.box[3];
  const uint32_t bytes =
      tile.windows * window_cells * cell_bytes + tile.columns / chunk_channels * chunk_bytes;
  Ring ring{p.stages};
  for (int64_t step = begin; step < end; ++step, ring.advance()) {
    const ptx::BoxAt box = box_at(p, step);
    const int w = box.w * p.stride[2], h = box.h * p.stride[1], d = box.d * p.stride[0];
    unsigned char* to = stages + ring.slot * p.stage_bytes;
    ptx::Mbarrier& full = barriers.full[ring.slot];
    ring.wait_empty(barriers);
    ptx::mbarrier_arrive_expecting(full, bytes);
#pragma unroll
    for (int v = 0; v < tile.windows; ++v, to += window_bytes<tile>(p))
      ptx::tensor_copy(
          to, big, {window[v].first_channel, w + window[v].w, h + window[v].h, d + window[v].d, box.n}, full);
#pragma unroll
    for (int c = 0; c < tile.columns; c += chunk_channels, to += chunk_bytes)
      ptx::tensor_copy(to, small, {first_column + c, box.w, box.h, box.d, box.n}, full);
  }
}

/// `count` products of one warpgroup, from number `first` of the tile on, over all steps.
template <WeightGradTile tile, ptx::Operand operand, int first, int count>
__device__ __forceinline__ void consume(const WeightGradPlan& p, const unsigned char* stages,
                                        Barriers& barriers, const Window* window, int first_window,
                                        int first_column, int64_t steps, float* partial) {
  constexpr int sums = tile.columns / 2;
  float sum[count][sums];
  uint32_t slice[box_cells / 16], product[count];  // where they begin, in bytes
#pragma unroll
  for (int k = 0; k < box_cells / 16; ++k)
    slice[k] = cell_bytes * (tile.group_taps() == 1 ? 16 * k : p.slice_cell[k]);
#pragma unroll
  for (int r = 0; r < count; ++r) {
    const int v = (first + r) / tile.group_taps(), tap = (first + r) % tile.group_taps();
    product[r] = v * window_bytes<tile>(p) +
                 cell_bytes * (tap / tile.group_w * p.tap_cell[1] + tap % tile.group_w * p.tap_cell[0]);
  }
  Ring ring{p.stages};
  Released released{barriers};
  for (int64_t step = 0; step < steps; ++step, ring.advance()) {
    const unsigned char* const stage = stages + ring.slot * p.stage_bytes;
    const uint64_t a = ptx::swizzled_mn_major_matrix(stage, chunk_bytes);
    const uint64_t b =
        ptx::swizzled_mn_major_matrix(stage + tile.windows * window_bytes<tile>(p), chunk_bytes);
    ring.wait_full(barriers);
    ptx::wgmma_fence();
#pragma unroll
    for (int k = 0; k < box_cells / 16; ++k)
#pragma unroll
      for (int r = 0; r < count; ++r) {
        ptx::wgmma_mn_major<operand, tile.columns>(sum[r], ptx::moved(a, slice[k] + product[r]),
                                                   ptx::moved(b, k * 16 * cell_bytes), step > 0 || k > 0);
      }
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
    const int v = (first + r) / tile.group_taps(), in_group = (first + r) % tile.group_taps();
    const int k_h = window[v].k_h + in_group / tile.group_w, k_w = window[v].k_w + in_group % tile.group_w;
    if (first_window + v >= p.windows() || k_h >= p.kernel[1] || k_w >= p.kernel[2]) continue;
    const int tap = (window[v].k_d * p.kernel[1] + k_h) * p.kernel[2] + k_w;
    float* const to = partial + int64_t{tap} * p.small_channels * p.big_channels;
#pragma unroll
    for (int i = 0; i < sums; ++i) {
      const int bc = window[v].first_channel + channel + i / 2 % 2 * 8, sc = column + i / 4 * 8 + i % 2;
      if (bc < p.big_channels && sc < p.small_channels) to[sc * p.big_channels + bc] = sum[r][i];
    }
  }
}

#endif

/// partials: [slab][tap][channel of small][channel of big].
template <int windows, int group_h, int group_w, int columns, ptx::Operand operand>
__global__ void __launch_bounds__(wg_block_threads, 1)
    weight_grad_kernel(const __grid_constant__ CUtensorMap big, const __grid_constant__ CUtensorMap small,
                       float* partials, const __grid_constant__ WeightGradPlan p) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
  constexpr WeightGradTile tile{windows, group_h, group_w, columns};
  extern __shared__ unsigned char unaligned[];
  unsigned char* const stages = unaligned + (1024 - ptx::shared_address_of(unaligned) % 1024) % 1024;
  __shared__ Barriers barriers;
  __shared__ Window window[tile.windows];
  const int tiles = p.row_tiles * p.column_tiles, index = static_cast<int>(blockIdx.x) % tiles;
  const int slab = static_cast<int>(blockIdx.x) / tiles;
  const int first_window = index % p.row_tiles * tile.windows;
  const int first_column = index / p.row_tiles * tile.columns;
  if (threadIdx.x < tile.windows)
    window[threadIdx.x] = window_at(p, first_window + static_cast<int>(threadIdx.x));
  if (threadIdx.x == 0) {
    for (int slot = 0; slot < p.stages; ++slot) {
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
      produce<tile>(p, big, small, stages, barriers, window, first_column, begin, end);
  } else {
    ptx::grow_registers_to<232>();
    constexpr int half = (tile.products() + 1) / 2;
    float* const partial = partials + slab * p.elements();
    if (warpgroup == 0)
      consume<tile, operand, 0, half>(p, stages, barriers, window, first_window, first_column, end - begin,
                                      partial);
    else
      consume<tile, operand, half, tile.products() - half>(p, stages, barriers, window, first_window,
                                                           first_column, end - begin, partial);
  }
#endif
}

// ---- The sum of the slabs ---------------------------------------------------------------------------------

constexpr int sum_channels = 64, sum_threads = 256;

/// A block writes dweight of one channel of small and up to 64 of big: reads are contiguous along channels of
/// big, writes along taps, and in between they are in shared memory.
template <class Operand, class T>
__global__ void __launch_bounds__(sum_threads)
    sum_slabs_kernel(const float* partials, const float* largest_of_big, const float* largest_of_small,
                     T* dweight, const __grid_constant__ WeightGradPlan p) {
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
      if constexpr (std::is_same_v<Operand, ScaledF16>) {
        const double scale = double{ScaledF16::scale_for(largest_of_big[first + channel])} *
                             double{ScaledF16::scale_for(largest_of_small[sc])};
        sum = static_cast<float>(sum / scale);
      }
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

/// A channels-last copy of an operand, in memory of the launch.
template <class Operand>
class ChannelsLastCopy {
 public:
  using Element = typename Operand::Element;
  using Storage = std::conditional_t<std::is_same_v<Operand, ScaledF16>, float, Element>;

  ChannelsLastCopy(const Launch& launch, const Tensor& x)
      : shape_(x.shape()), memory_(launch, channels_last_bytes<Operand>(x.size(0), x.size(1), cells())) {
    if constexpr (std::is_same_v<Operand, ScaledF16>) largest_.emplace(launch, x);
    to_channels_last<Storage, Operand>(launch, vox::detail::ptr<Storage>(x), x.size(0), x.size(1), cells(),
                                       memory_.template as<Element>(), largest());
  }
  /// Boxes of 64 channels and so many cells (w, h, d, batch), `step` cells apart (d, h, w).
  CUtensorMap boxes(const int (&box)[4], const Triple& step) const {
    return ptx::tensor_map(
        "conv3d_weight_grad", memory_.template as<void>(), dtype_of<Element>(),
        {.extents = {padded_channels<Operand>(shape_[1]), shape_[4], shape_[3], shape_[2], shape_[0]},
         .box = {chunk_channels, box[0], box[1], box[2], box[3]},
         .step = {1, step.w, step.h, step.d, 1}});
  }
  const float* largest() const { return largest_ ? largest_->get() : nullptr; }

 private:
  int64_t cells() const { return shape_[2] * shape_[3] * shape_[4]; }

  Shape shape_;
  Workspace memory_;
  std::optional<Largest> largest_;
};

template <class Operand>
void run_weight_grad(const WeightGradCall& call) {
  using Storage = typename ChannelsLastCopy<Operand>::Storage;
  const auto& [big, small, dweight, g, only_if, failed] = call;
  const Launch launch("conv3d_weight_grad", dweight, {&big, &small});
  const WeightGradPlan p = *recall<make_weight_grad_plan>(g, multiprocessors(launch));
  const ChannelsLastCopy<Operand> big_cells(launch, big), small_cells(launch, small);
  const CUtensorMap big_map = big_cells.boxes({p.window[0], p.window[1], p.box[2], p.box[3]}, g.stride),
                    small_map = small_cells.boxes({p.box[0], p.box[1], p.box[2], p.box[3]}, 1);
  const Workspace partials(launch, p.slabs * p.elements() * int64_t{sizeof(float)});

  const auto blocks = static_cast<unsigned>(p.row_tiles * p.column_tiles * p.slabs);
  const auto launch_if = [&]<int index>(std::integral_constant<int, index>) {
    constexpr WeightGradTile tile = weight_grad_tiles[index];
    if (p.tile != tile) return;
    constexpr auto* kernel =
        weight_grad_kernel<tile.windows, tile.group_h, tile.group_w, tile.columns, Operand::operand>;
    const int shared = p.stages * p.stage_bytes + 1024;
    launch.allow_shared_memory<kernel>(shared);
    kernel<<<blocks, wg_block_threads, static_cast<size_t>(shared), launch.stream()>>>(
        big_map, small_map, partials.as<float>(), p);
  };
  launch_if(std::integral_constant<int, 0>{});
  launch_if(std::integral_constant<int, 1>{});
  launch_if(std::integral_constant<int, 2>{});
  launch_if(std::integral_constant<int, 3>{});
  launch_if(std::integral_constant<int, 4>{});
  launch_if(std::integral_constant<int, 5>{});
  launch.check();

  const int shared = sum_channels * p.taps * static_cast<int>(sizeof(float));
  launch.allow_shared_memory<sum_slabs_kernel<Operand, Storage>>(shared);
  const dim3 grid(static_cast<unsigned>(ceil_div(p.big_channels, sum_channels)),
                  static_cast<unsigned>(std::min(p.small_channels, 65535)));
  sum_slabs_kernel<Operand><<<grid, sum_threads, static_cast<size_t>(shared), launch.stream()>>>(
      partials.as<float>(), big_cells.largest(), small_cells.largest(),
      vox::detail::mutable_ptr<Storage>(dweight), p);
  launch.check();
}

}  // namespace vox::cuda::conv::dense
