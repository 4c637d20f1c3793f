// conv3d_weight_grad of f32 on the tensor cores of sm_80 and later, with operands rounded to TF32.
//
//   dweight[sc, (bc, k)] = sum over n, i of small[n, sc, i] * big[n, bc, i * stride - padding + k * dilation]
//
// An implicit GEMM with one row per (channel of big, tap), one column per channel of small, and a sum over
// all images and coarse cells. The sum is long and the result small, so the sum is cut into splits. A block
// owns 128 rows, up to 64 columns and a split of cells, and writes its own partial result (32 MiB at most for
// all of them). A second kernel adds the partial results in order: no atomics, and the bits never change.
//
// A k-step takes 32 cells. Lanes stand for neighbouring cells, so loads coalesce; tiles lie in shared memory
// as [row or column][cell]. The order of a sum is free as long as both operands agree. So a lane takes cells
// 2c and 2c + 1 where the instruction says c and c + 4, and one 8-byte load serves it; a pitch of 8 modulo 32
// words avoids bank conflicts. The loads of the next k-step are in flight while the products of this one run.
//
// Sums stay in the tensor core's accumulators for the whole split. They truncate, which on data of one sign
// adds an error of the order of TF32's own after some 10^4 cells.
//
// Values that are not finite: see the Note in common/operands.cuh.
//
// As in the forward kernel every element of big passes through registers once per tap. Idea not tried: keep
// it, with its halo, in shared memory.

#include <voxgrad/cuda/conv3d/call.h>
#include <voxgrad/cuda/conv3d/mma/plan.h>
#include <voxgrad/cuda/runtime/launch.h>
#include <voxgrad/cuda/ptx/mma.cuh>

#include <algorithm>

namespace vox::cuda::conv::mma {

namespace {

// ---- Helpers ----------------------------------------------------------------------------------------------

constexpr int warps = 4;
constexpr int block_threads = 32 * warps;
static_assert(block_rows == 32 * warps);
constexpr int pitch = step_cells + 8;

/// A row's channel, and its tap as offsets from a cell.
struct Row {
  int64_t offset;
  int d, h, w;
};

__device__ __forceinline__ bool within(int i, int size) {
  return static_cast<unsigned>(i) < static_cast<unsigned>(size);
}

// ---- Kernels ----------------------------------------------------------------------------------------------

template <int n_tiles>
__global__ void __launch_bounds__(block_threads)
    partial_kernel(const float* __restrict__ big, const float* __restrict__ small, float* partials,
                   const __grid_constant__ WeightGradProblem p) {
  constexpr int columns = 8 * n_tiles;
  __shared__ __align__(8) uint32_t big_tile[block_rows][pitch];  // [row][cell]
  __shared__ __align__(8) uint32_t small_tile[columns][pitch];   // [column][cell]
  __shared__ Row rows[block_rows];

  const int thread = threadIdx.x, lane = thread % 32, warp = thread / 32;
  const int row = lane / 4, pair = lane % 4 * 2;
  const int64_t all_rows = p.big_per_group * p.taps;
  const int64_t jobs = p.splits * p.groups * p.column_blocks * p.row_blocks;
  const int64_t split_steps = (p.steps + p.splits - 1) / p.splits;

  for (int64_t job = blockIdx.x; job < jobs; job += gridDim.x) {
    // Rows run fastest: blocks that read the same cells run at the same time.
    const Division by_rows = divide(job, p.row_blocks);
    const Division by_columns = divide(by_rows.quotient, p.column_blocks);
    const Division by_group = divide(by_columns.quotient, p.groups);
    const int64_t first_row = by_rows.remainder * block_rows, group = by_group.remainder;
    const int64_t first_column = by_columns.remainder * columns, split = by_group.quotient;

    __syncthreads();  // the previous job is done with the tiles
    {
      const int64_t m = first_row + thread;
      const Division channel = divide(m, p.taps), by_w = divide(channel.remainder, p.axis[2].kernel);
      const Division by_h = divide(by_w.quotient, p.axis[1].kernel);
      Row r{0, static_cast<int>(by_h.quotient) * p.axis[0].dilation,
            static_cast<int>(by_h.remainder) * p.axis[1].dilation,
            static_cast<int>(by_w.remainder) * p.axis[2].dilation};
      r.offset = channel.quotient * p.big_cells + (int64_t{r.d} * p.axis[1].big + r.h) * p.axis[2].big + r.w;
      if (m >= all_rows) r.d = 1 << 30;  // outside for every cell
      rows[thread] = r;
    }
    __syncthreads();

    uint32_t from_big[block_rows / warps], from_small[columns / warps];
    const auto load = [&](int64_t step) {
      const int64_t q = step * step_cells + lane, cells = p.batch * p.small_cells;
      const Division image = divide(q, p.small_cells), by_w = divide(image.remainder, p.axis[2].small);
      const Division by_h = divide(by_w.quotient, p.axis[1].small);
      const int d = static_cast<int>(by_h.quotient) * p.axis[0].stride - p.axis[0].padding;
      const int h = static_cast<int>(by_h.remainder) * p.axis[1].stride - p.axis[1].padding;
      const int w = static_cast<int>(by_w.remainder) * p.axis[2].stride - p.axis[2].padding;
      const bool exists = q < cells;
      const int d_size = exists ? p.axis[0].big : 0;
      const float* x = big + (image.quotient * p.groups + group) * p.big_per_group * p.big_cells +
                       (int64_t{d} * p.axis[1].big + h) * p.axis[2].big + w;
#pragma unroll
      for (int i = 0; i < block_rows / warps; ++i) {
        const Row r = rows[i * warps + warp];
        const bool inside =
            within(d + r.d, d_size) && within(h + r.h, p.axis[1].big) && within(w + r.w, p.axis[2].big);
        from_big[i] = inside ? __float_as_uint(x[r.offset]) : 0u;
      }
      const float* y =
          small + ((image.quotient * p.groups + group) * p.small_per_group + first_column) * p.small_cells +
          image.remainder;
#pragma unroll
      for (int i = 0; i < columns / warps; ++i) {
        const int column = i * warps + warp;
        const bool inside = exists && first_column + column < p.small_per_group;
        from_small[i] = inside ? __float_as_uint(y[column * p.small_cells]) : 0u;
      }
    };

    float sum[2][n_tiles][4] = {};
    const int64_t begin = split * split_steps, end = min(p.steps, begin + split_steps);
    if (begin < end) load(begin);
    for (int64_t step = begin; step < end; ++step) {
      __syncthreads();  // all have read the previous tiles
#pragma unroll
      for (int i = 0; i < block_rows / warps; ++i)
        big_tile[i * warps + warp][lane] = ptx::to_tf32(__uint_as_float(from_big[i]));
#pragma unroll
      for (int i = 0; i < columns / warps; ++i)
        small_tile[i * warps + warp][lane] = ptx::to_tf32(__uint_as_float(from_small[i]));
      __syncthreads();
      if (step + 1 < end) load(step + 1);
#pragma unroll
      for (int k = 0; k < step_cells; k += 8) {
        uint32_t a[2][4];
#pragma unroll
        for (int r = 0; r < 4; ++r) {
          const uint2 two = *reinterpret_cast<const uint2*>(&big_tile[warp * 32 + r * 8 + row][k + pair]);
          a[r / 2][r % 2] = two.x;
          a[r / 2][r % 2 + 2] = two.y;
        }
#pragma unroll
        for (int n = 0; n < n_tiles; ++n) {
          const uint2 two = *reinterpret_cast<const uint2*>(&small_tile[n * 8 + row][k + pair]);
          const uint32_t b[2]{two.x, two.y};
#pragma unroll
          for (int r = 0; r < 2; ++r) ptx::mma_m16n8k8_tf32(sum[r][n], a[r], b);
        }
      }
    }

    float* const to = partials + split * p.groups * p.small_per_group * all_rows;
#pragma unroll
    for (int n = 0; n < n_tiles; ++n) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const int64_t column = first_column + n * 8 + pair + half;
        if (column >= p.small_per_group) continue;
#pragma unroll
        for (int r = 0; r < 4; ++r) {
          const int64_t m = first_row + warp * 32 + r * 8 + row;
          if (m < all_rows)
            to[(group * p.small_per_group + column) * all_rows + m] = sum[r / 2][n][r % 2 * 2 + half];
        }
      }
    }
  }
}

__global__ void __launch_bounds__(256)
    add_partials_kernel(const float* partials, float* dweight, int64_t numel, int64_t splits) {
  for (int64_t i = int64_t{blockIdx.x} * blockDim.x + threadIdx.x; i < numel;
       i += int64_t{gridDim.x} * blockDim.x) {
    float sum = 0;
#pragma unroll 4
    for (int64_t s = 0; s < splits; ++s) sum += partials[s * numel + i];
    dweight[i] = sum;
  }
}

}  // namespace

void run_weight_grad(const WeightGradCall& call) {
  const auto& [big, small, dweight, g, only_if, failed] = call;
  visit_channel_tiles(g.small_per_group(), [&](auto tiles) {
    constexpr int n_tiles = tiles;
    const WeightGradProblem p = weight_grad_problem(g, n_tiles);
    const Launch launch("conv3d_weight_grad", dweight, {&big, &small});
    const Workspace partials(launch, p.splits > 1 ? p.splits * dweight.numel() * 4 : 0);
    float* const to = p.splits > 1 ? partials.as<float>() : vox::detail::mutable_ptr<float>(dweight);
    const unsigned grid = grid_for(p.splits * p.groups * p.row_blocks * p.column_blocks, 1);
    partial_kernel<n_tiles><<<grid, block_threads, 0, launch.stream()>>>(
        vox::detail::ptr<float>(big), vox::detail::ptr<float>(small), to, p);
    if (p.splits > 1)
      add_partials_kernel<<<grid_for(dweight.numel(), 256), 256, 0, launch.stream()>>>(
          to, vox::detail::mutable_ptr<float>(dweight), dweight.numel(), p.splits);
    launch.check();
  });
}

}  // namespace vox::cuda::conv::mma
