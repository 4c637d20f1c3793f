#pragma once

// conv3d_weight_grad of groups with few channels, on the ordinary f32 units.
//
//   dweight[sc, bc, k] = sum over n, i of small[n, sc, i] * big[n, bc, i * stride - padding + k * dilation]
//
// Tiles of cells of small, and the window of big that their taps reach, come to shared memory as in
// forward.cuh. A thread takes `short_run` cells along h of some channels of small. For each of its rows (a
// channel of big, a tap along d and one along w) it reads a column, whose 7 + taps numbers are factors for
// all taps along h. Its sums, rows x taps x channels of small, stay in registers for all tiles of a split.
// Then a block adds them in a tree to the split's partial result (32 MiB at most for all), and a second
// kernel adds those of the splits. No atomics; the order depends on the sizes only.
//
// Values that are not finite: an Inf times a zero outside the grid is NaN. The second kernel computes a
// weight that is not finite again by the definition.

#include <voxgrad/cuda/conv3d/call.h>
#include <voxgrad/cuda/conv3d/common/integers.h>
#include <voxgrad/cuda/conv3d/common/recent.h>
#include <voxgrad/cuda/conv3d/few_channels/launch.h>
#include <voxgrad/cuda/runtime/launch.h>
#include <voxgrad/cuda/conv3d/few_channels/window.cuh>

namespace vox::cuda::conv::few_channels {

// ---- Helpers ----------------------------------------------------------------------------------------------

/// The channel of big (in the group) and the tap of one weight.
struct Row {
  int channel;
  Cell tap;
};

/// Row `number` of all taps, or of those with tap 0 along h.
__device__ __forceinline__ Row row_at(const WeightGradPlan& p, int number) {
  const int by_w = number / p.w.kernel, heights = p.taps_h > 1 ? 1 : p.h.kernel, by_h = by_w / heights,
            by_d = by_h / p.d.kernel;
  return {by_d, {by_h - by_d * p.d.kernel, by_w - by_h * heights, number - by_w * p.w.kernel}};
}

__device__ __forceinline__ float warp_sum(float x) {
#pragma unroll
  for (int half = 16; half > 0; half /= 2) x += __shfl_xor_sync(~0u, x, half);
  return x;
}

/// A lane's part of the sum of one weight, by the definition; lanes take rows along w in turn.
template <class T>
__device__ __noinline__ float by_definition(const T* big, const T* small, const WeightGradPlan& p,
                                            int64_t weight, int lane, int lanes) {
  const Division by_tap = divide(weight, p.taps), by_big = divide(by_tap.quotient, p.big_per_group);
  const Division by_small = divide(by_big.quotient, p.small_per_group);
  const int tap = static_cast<int>(by_tap.remainder), by_w = tap / p.w.kernel;
  const int from_d = by_w / p.h.kernel * p.d.dilation - p.d.padding,
            from_h = by_w % p.h.kernel * p.h.dilation - p.h.padding,
            from_w = tap % p.w.kernel * p.w.dilation - p.w.padding;
  const int64_t big_channels = p.groups * p.big_per_group, small_channels = p.groups * p.small_per_group;
  const int64_t rows = p.batch * p.d.out_cells * p.h.out_cells;
  float sum = 0;
  for (int64_t row = lane; row < rows; row += lanes) {
    const Division by_h = divide(row, p.h.out_cells), by_d = divide(by_h.quotient, p.d.out_cells);
    const int d = static_cast<int>(by_d.remainder) * p.d.stride + from_d,
              h = static_cast<int>(by_h.remainder) * p.h.stride + from_h;
    if (!within(d, p.d.in_cells) || !within(h, p.h.in_cells)) continue;
    const int64_t n = by_d.quotient, group = by_small.quotient;
    const T* const x = big + (n * big_channels + group * p.big_per_group + by_big.remainder) * p.big_cells +
                       (int64_t{d} * p.h.in_cells + h) * p.w.in_cells;
    const T* const y = small + (n * small_channels + by_big.quotient) * p.small_cells +
                       (by_d.remainder * p.h.out_cells + by_h.remainder) * p.w.out_cells;
    for (int w = 0; w < p.w.out_cells; ++w)
      if (const int at = w * p.w.stride + from_w; within(at, p.w.in_cells))
        sum = fmaf(static_cast<float>(x[at]), static_cast<float>(y[w]), sum);
  }
  return sum;
}

// ---- Kernels ----------------------------------------------------------------------------------------------

template <class T, int taps, int step, int outs>
__global__ void __launch_bounds__(most_threads, 2)
    split_kernel(const T* __restrict__ big, const T* __restrict__ small, float* __restrict__ partials,
                 const __grid_constant__ WeightGradPlan p) {
  constexpr int rows = most_rows(taps, outs);
  extern __shared__ float memory[];
  float* const big_window = memory;
  const int big_channel = p.big.channel(), small_channel = p.small.channel();
  float* const small_tile = memory + p.channels * big_channel;

  const int lane = static_cast<int>(threadIdx.x) % 32, warp = static_cast<int>(threadIdx.x) / 32;
  const int team = warp / p.row_blocks, row_block = warp - team * p.row_blocks;
  const int rows_of_channel = static_cast<int>(p.taps) / taps;
  const int step_h = step > 0 ? step : p.h.in_step;

  for (int64_t job = blockIdx.x; job < p.jobs; job += gridDim.x) {
    // Rows run fastest, then channels: blocks that read the same cells run at the same time.
    const Division by_rows = divide(job, p.row_jobs), by_outs = divide(by_rows.quotient, p.out_blocks);
    const Division by_split = divide(by_outs.quotient, p.splits);
    const int64_t group = by_split.quotient, split = by_split.remainder;
    const int first_out = static_cast<int>(by_outs.remainder) * outs;
    const int block_row = static_cast<int>(by_rows.remainder) * p.row_blocks * rows;
    const int first_row = block_row + row_block * rows, first_channel = block_row / rows_of_channel;
    int column[rows];  // where a row's first number lies
#pragma unroll
    for (int i = 0; i < rows; ++i) {
      const Row row = row_at(p, min(first_row + i, p.rows - 1));
      column[i] = (row.channel - first_channel) * big_channel + row.tap.d * p.d.dilation * p.big.plane() +
                  p.big.shift(row.tap.w * p.w.dilation) + row.tap.h * p.h.dilation;
    }
    float sum[rows][taps][outs] = {};

    const int64_t length = ceil_div(p.tiles, p.splits), end = min(p.tiles, (split + 1) * length);
    for (int64_t number = split * length; number < end; ++number) {
      const Division by_w = divide(number, p.w.tiles), by_h = divide(by_w.quotient, p.h.tiles);
      const Division by_d = divide(by_h.quotient, p.d.tiles);
      const Cell tile{static_cast<int>(by_d.remainder) * p.d.tile,
                      static_cast<int>(by_h.remainder) * p.h.tile,
                      static_cast<int>(by_w.remainder) * p.w.tile};
      const int64_t image = by_d.quotient * p.groups + group;
      __syncthreads();  // all threads are done with the previous contents
      load_window(big + (image * p.big_per_group + first_channel) * p.big_cells,
                  min(p.channels, p.big_per_group - first_channel), p.big_cells,
                  Cell{p.d.in_cells, p.h.in_cells, p.w.in_cells}, p.big,
                  Cell{tile.d * p.d.in_step + p.d.low, tile.h * p.h.in_step + p.h.low,
                       tile.w * p.w.in_step + p.w.low},
                  big_window);
      load_window(small + (image * p.small_per_group + first_out) * p.small_cells,
                  min(outs, p.small_per_group - first_out), p.small_cells,
                  Cell{p.d.out_cells, p.h.out_cells, p.w.out_cells}, p.small, tile, small_tile);
      __syncthreads();
      for (int item = team * 32 + lane; item < p.items; item += p.teams * 32) {
        const int by_column = p.by_column.quotient(item), w = item - by_column * p.by_column.divisor;
        const int d = p.by_run.quotient(by_column), h = short_run * (by_column - d * p.by_run.divisor);
        const float* const y = small_tile + d * p.small.plane() + w * p.small.pitch + h;
        float factor[short_run][outs];
#pragma unroll
        for (int o = 0; o < outs; ++o)
#pragma unroll
          for (int r = 0; r < short_run; ++r)
            factor[r][o] = first_out + o < p.small_per_group ? y[o * small_channel + r] : 0.0f;
        const float* const x = big_window + d * p.d.in_step * p.big.plane() + w * p.big.pitch + h * step_h;
#pragma unroll
        for (int i = 0; i < rows; ++i) {
          const auto multiply = [&](auto value) {
#pragma unroll
            for (int tap = 0; tap < taps; ++tap)
#pragma unroll
              for (int o = 0; o < outs; ++o)
#pragma unroll
                for (int r = 0; r < short_run; ++r)
                  sum[i][tap][o] = fmaf(value(r, tap), factor[r][o], sum[i][tap][o]);
          };
          if constexpr (taps > 1) {
            Column<short_run, taps, step> numbers;
            numbers.load(x + column[i]);
            multiply([&](int r, int tap) { return numbers.at(r, tap); });
          } else {
            float numbers[short_run];
#pragma unroll
            for (int r = 0; r < short_run; ++r) numbers[r] = x[column[i] + r * step_h];
            multiply([&](int r, int) { return numbers[r]; });
          }
        }
      }
    }

    // First the warps of a row block are added, then its teams.
    constexpr int sums = rows * taps * outs;
    __syncthreads();
#pragma unroll
    for (int i = 0; i < sums; ++i) {
      const float total = warp_sum(sum[i / (taps * outs)][i / outs % taps][i % outs]);
      if (lane == 0) memory[warp * sums + i] = total;
    }
    __syncthreads();
    float* const to = partials + split * p.groups * p.small_per_group * p.big_per_group * p.taps;
    for (int i = static_cast<int>(threadIdx.x); i < p.row_blocks * sums; i += static_cast<int>(blockDim.x)) {
      const int number = block_row + i / (taps * outs), tap = i / outs % taps, out = first_out + i % outs;
      if (number >= p.rows || out >= p.small_per_group) continue;
      float total = 0;
      for (int t = 0; t < p.teams; ++t) total += memory[t * p.row_blocks * sums + i];
      const Row row = row_at(p, number);
      to[((group * p.small_per_group + out) * p.big_per_group + row.channel) * p.taps +
         (row.tap.d * p.h.kernel + row.tap.h + tap) * p.w.kernel + row.tap.w] = total;
    }
  }
}

constexpr int weights_per_block = most_threads / 32;

/// A warp adds the splits of one weight.
template <class T>
__global__ void __launch_bounds__(most_threads)
    add_splits_kernel(const T* __restrict__ big, const T* __restrict__ small,
                      const float* __restrict__ partials, T* __restrict__ dweight, int64_t numel,
                      const __grid_constant__ WeightGradPlan p) {
  __shared__ float of_warps[weights_per_block];
  const int lane = static_cast<int>(threadIdx.x) % 32, warp = static_cast<int>(threadIdx.x) / 32;
  for (int64_t first = int64_t{blockIdx.x} * weights_per_block; first < numel;
       first += int64_t{gridDim.x} * weights_per_block) {
    const int64_t weight = first + warp;
    double sum = 0;
    if (weight < numel)
      for (int64_t s = lane; s < p.splits; s += 32) sum += static_cast<double>(partials[s * numel + weight]);
    for (int half = 16; half > 0; half /= 2) sum += __shfl_xor_sync(~0u, sum, half);
    const float total = static_cast<float>(sum);
    const bool finite = weight >= numel || isfinite(total);
    if (finite && weight < numel && lane == 0) dweight[weight] = static_cast<T>(total);
    if (!__syncthreads_or(!finite)) continue;
    // Rare: all threads of the block recompute each of its weights that is not finite.
    if (lane == 0) of_warps[warp] = finite ? 0.0f : 1.0f;
    __syncthreads();
    bool redo[weights_per_block];
#pragma unroll
    for (int i = 0; i < weights_per_block; ++i) redo[i] = of_warps[i] != 0;
    __syncthreads();
    for (int i = 0; i < weights_per_block; ++i) {
      if (!redo[i]) continue;
      const float part =
          warp_sum(by_definition(big, small, p, first + i, static_cast<int>(threadIdx.x), most_threads));
      if (lane == 0) of_warps[warp] = part;
      __syncthreads();
      if (threadIdx.x == 0) {
        float all = 0;
        for (const float one : of_warps) all += one;
        dweight[first + i] = static_cast<T>(all);
      }
      __syncthreads();
    }
  }
}

// ---- Launchers --------------------------------------------------------------------------------------------

template <class T>
void run_weight_grad(const WeightGradCall& call) {
  const auto& [big, small, dweight, g, only_if, failed] = call;
  const WeightGradPlan& p = *recall<make_weight_grad_plan>(g);
  const Launch launch("conv3d_weight_grad", dweight, {&big, &small});
  const int64_t numel = dweight.numel();
  const Workspace partials(launch, p.splits * numel * 4);
  const T* const from_big = vox::detail::ptr<T>(big);
  const T* const from_small = vox::detail::ptr<T>(small);
  visit_column(p.taps_h, p.h.in_step, p.taps_h > 1 ? 1 : 0, [&](auto taps, auto step) {
    visit_block<4>(p.outs, [&](auto outs) {
      constexpr auto *kernel = split_kernel < T, taps == 0 ? 1 : taps, step, outs > ;
      launch.allow_shared_memory<kernel>(p.shared_bytes);
      kernel<<<grid_for(p.jobs, 1), static_cast<unsigned>(p.threads), static_cast<size_t>(p.shared_bytes),
               launch.stream()>>>(from_big, from_small, partials.as<float>(), p);
    });
  });
  add_splits_kernel<<<grid_for(numel, weights_per_block), most_threads, 0, launch.stream()>>>(
      from_big, from_small, partials.as<float>(), vox::detail::mutable_ptr<T>(dweight), numel, p);
  launch.check();
}

}  // namespace vox::cuda::conv::few_channels
