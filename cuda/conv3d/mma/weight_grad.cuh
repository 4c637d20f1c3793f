#pragma once

// conv3d_weight_grad on the tensor cores of any GPU since sm_80 (mma.sync), of 16-bit numbers.
//
//   dweight[sc, (bc, k)] = sum over n, i of small[n, sc, i] * big[n, bc, i * stride - padding + k * dilation]
//
// Both operands are copied with their channels last (common/channels_last.cuh), so 16 bytes are 8 channels of
// a cell. `ldmatrix` reads 8 such rows from any 8 addresses, and transposes them: the k of the product is the
// cell. So a tap is another address in a window of big, and a stride another distance of addresses. Nothing
// is loaded twice for two taps of a window.
//
// What a block owns: up to 64 channels of small x up to 56 octets of columns (plan), in registers, and a
// split of the steps. Its warps share the columns; where there are few, teams of warps share the cells of a
// box instead, and add up their sums at the end. The copies of the next step run while the products of this
// one do. Each block writes its own partial result; a second kernel adds them in order. No atomics, and the
// bits never change.
//
// f32 comes as scaled f16 (common/scale.cuh), or at `highest` as three bf16 numbers, whose six products are
// added up apart for each 16 cells and then in f32 (Note [Truncating sums] in common/operands.cuh). Other
// sums stay in the accumulators for the whole split.
//
// Reading order: weight_grad_plan.h and this file.

#include <voxgrad/core/tensor.h>
#include <voxgrad/cuda/conv3d/call.h>
#include <voxgrad/cuda/conv3d/common/recent.h>
#include <voxgrad/cuda/conv3d/mma/weight_grad.h>
#include <voxgrad/cuda/conv3d/mma/weight_grad_plan.h>
#include <voxgrad/cuda/runtime/launch.h>
#include <voxgrad/cuda/conv3d/common/channels_last.cuh>
#include <voxgrad/cuda/conv3d/common/splits.cuh>
#include <voxgrad/cuda/ptx/copies.cuh>
#include <voxgrad/cuda/ptx/mma.cuh>
#include <voxgrad/cuda/ptx/matrices.cuh>
#include <voxgrad/cuda/ptx/shared.cuh>

#include <algorithm>
#include <type_traits>
#include <utility>

namespace vox::cuda::conv::mma {

constexpr int weight_grad_threads = 32 * WeightGradPlan::warps;

// ---- The copies of a step ---------------------------------------------------------------------------------

/// A channels-last copy, in granules.
struct Granules {
  const uint4* data;
  int64_t part;  ///< from a part to the next
  int cell;      ///< from a cell to the next
};

__device__ __forceinline__ bool within(int i, int size) {
  return static_cast<unsigned>(i) < static_cast<unsigned>(size);
}

/// Starts the copies of a step that a thread does, a few at a time.
template <int parts>
struct StepCopies {
  const WeightGradPlan& p;
  const WeightGradJob& job;
  const Granules &big, &small;
  StepBox box;
  unsigned char* stage;
  int next;  ///< granule: of the window, then of the box

  __device__ __forceinline__ void copy(const Granules& from, bool exists, int n, int cell, int octet,
                                       int64_t cells, unsigned char* to, int to_next_part) const {
    const uint4* const at =
        from.data + ((int64_t{n} * p.groups + job.group) * cells + cell) * from.cell + octet;
#pragma unroll
    for (int part = 0; part < parts; ++part)
      ptx::cp_async_16_or_zeros(to + 16 * part * to_next_part, exists ? at + part * from.part : from.data,
                                exists);
  }
  __device__ __forceinline__ void copy_big(int i) const {
    const int position = p.by_octet.quotient(i), octet = i - position * p.octets;
    const GridPlace c = p.window_cell(position);
    const int d = window_begin(p.d, box.from.d, job.tap_d) + c.d * p.d.unit,
              h = window_begin(p.h, box.from.h, job.tap_h) + c.h * p.h.unit,
              w = window_begin(p.w, box.from.w, job.tap_w) + c.w * p.w.unit;
    const bool exists = within(d, p.d.big) && within(h, p.h.big) && within(w, p.w.big) &&
                        (job.first_octet + octet) * 8 < p.big_per_group;
    copy(big, exists, box.from.n + c.n, (d * p.h.big + h) * p.w.big + w, job.first_octet + octet,
         int64_t{p.d.big} * p.h.big * p.w.big, stage + 16 * (octet * p.window_pitch + position),
         p.octets * p.window_pitch);
  }
  __device__ __forceinline__ void copy_small(int i) const {
    const int octets = 2 * p.row_tiles, number = i / octets, octet = i - number * octets;
    const GridPlace c = p.box_cell(number);
    const int n = box.from.n + c.n, d = box.from.d + c.d, h = box.from.h + c.h, w = box.from.w + c.w;
    const bool exists = number < p.box_cells && n >= box.begin.n && d >= box.begin.d && h >= box.begin.h &&
                        w >= box.begin.w && job.first_row + octet * 8 < p.small_per_group;
    copy(small, exists, n, (d * p.h.small + h) * p.w.small + w, job.first_row / 8 + octet,
         int64_t{p.d.small} * p.h.small * p.w.small,
         stage + 16 * (parts * p.octets * p.window_pitch + octet * p.small_pitch + number),
         octets * p.small_pitch);
  }
  /// At most `count` granules.
  __device__ __forceinline__ void start(int count) {
#pragma unroll 1
    for (; count > 0 && next < p.big_granules + p.small_granules; --count, next += weight_grad_threads) {
      if (next < p.big_granules)
        copy_big(next);
      else
        copy_small(next - p.big_granules);
    }
  }
};

// ---- The products -----------------------------------------------------------------------------------------

/// sum[i] += a * b for two octets of columns, or only the first; b as ldmatrix gives it.
template <ptx::Operand operand, int row_tiles, class Sums>
__device__ __forceinline__ void multiply(Sums sum, const uint32_t (&a)[1][row_tiles][4],
                                         const uint32_t (&b)[1][4], bool both) {
#pragma unroll
  for (int i = 0; i < 2; ++i)
    if (i == 0 || both)
#pragma unroll
      for (int m = 0; m < row_tiles; ++m)
        ptx::mma_m16n8k16<operand>(sum(i, m), a[0][m], b[0][2 * i], b[0][2 * i + 1]);
}

/// The same for numbers of three parts.
template <ptx::Operand operand, int row_tiles, class Sums>
__device__ __forceinline__ void multiply(Sums sum, const uint32_t (&a)[3][row_tiles][4],
                                         const uint32_t (&b)[3][4], bool both) {
  float of_cells[2][row_tiles][4] = {};
#pragma unroll
  for (int order = 2; order >= 0; --order)  // the smallest products first
#pragma unroll
    for (int of_a = order; of_a >= 0; --of_a)
#pragma unroll
      for (int i = 0; i < 2; ++i)
#pragma unroll
        for (int m = 0; m < row_tiles; ++m)
          ptx::mma_m16n8k16<operand>(of_cells[i][m], a[of_a][m], b[order - of_a][2 * i],
                                     b[order - of_a][2 * i + 1]);
#pragma unroll
  for (int i = 0; i < 2; ++i)
#pragma unroll
    for (int m = 0; m < row_tiles; ++m)
#pragma unroll
      for (int e = 0; e < 4; ++e)
        if (i == 0 || both) sum(i, m)[e] += of_cells[i][m][e];
}

/// A block's sums; partials as in weight_at.
template <ptx::Operand operand, int parts, int row_tiles>
__global__ void __launch_bounds__(weight_grad_threads, 1)
    weight_grad_kernel(const __grid_constant__ Granules big, const __grid_constant__ Granules small,
                       float* __restrict__ partials, const __grid_constant__ WeightGradPlan p) {
  constexpr int octets = most_octets(row_tiles), pairs = ceil_div(octets, 2);
  extern __shared__ __align__(16) unsigned char shared[];
  int* const position = reinterpret_cast<int*>(shared);  // of cells of a box, in a window, in bytes
  unsigned char* const stages = shared + p.table_bytes();

  const int thread = static_cast<int>(threadIdx.x), lane = thread % 32, warp = thread / 32;
  const int job_number = static_cast<int>(blockIdx.x) % p.jobs, split = static_cast<int>(blockIdx.x) / p.jobs;
  const WeightGradJob job = job_at(p, job_number);
  const int begin = static_cast<int>(int64_t{split} * p.steps / p.splits),
            end = static_cast<int>((int64_t{split} + 1) * p.steps / p.splits);
  const auto stage_of = [&](int step) { return stages + 16 * (step % 2) * p.stage_granules; };
  const auto copies_of = [&](int step) {
    return StepCopies<parts>{p, job, big, small, box_at(p, step), stage_of(step), thread};
  };
  copies_of(begin).start(1 << 30);

  // Cells that fill up the last instruction are zeros of small; of big they are the first cell again.
  for (int i = thread; i < p.k_steps() * p.k; i += weight_grad_threads)
    position[i] = 16 * p.position(p.box_cell(i < p.box_cells ? i : 0));

  // Which rows of ldmatrix a lane names. Of big: 8 cells and the next 8 of an octet, and of the next octet.
  // Of small: 8 cells of two octets, and the next 8 cells of both.
  const int column_warp = warp % p.column_warps, team = warp / p.column_warps;
  const int first_column = column_warp * p.warp_octets,
            columns = min(p.warp_octets, p.columns() - first_column);
  const int big_cell = lane % 16, small_cell = lane % 8 + lane / 16 * 8;
  int offset[pairs];
#pragma unroll
  for (int j = 0; j < pairs; ++j) {
    const Column c = column_at(p, min(first_column + 2 * j + lane / 16, p.columns() - 1));
    offset[j] = 16 * (c.octet * p.window_pitch + p.tap_shift(c.d, c.h, c.w));
  }
  const int small_at = 16 * (parts * p.octets * p.window_pitch + lane / 8 % 2 * p.small_pitch + small_cell);

  float sum[octets][row_tiles][4] = {};
  for (int step = begin; step < end; ++step) {
    ptx::cp_async_wait_all();
    __syncthreads();  // all copies of this step are there, and all have read the step before
    auto copies = copies_of(min(step + 1, end - 1));
    if (step + 1 == end) copies.next = 1 << 30;
    const uint32_t stage = ptx::shared_address_of(stage_of(step));
#pragma unroll 1
    for (int k = team; k < p.k_steps(); k += p.teams()) {
      copies.start(p.copies);
      uint32_t a[parts][row_tiles][4];
#pragma unroll
      for (int part = 0; part < parts; ++part)
#pragma unroll
        for (int m = 0; m < row_tiles; ++m)
          ptx::load_transposed_matrices(
              a[part][m], stage + small_at + 16 * (k * p.k + 2 * (part * row_tiles + m) * p.small_pitch));
      const uint32_t at = stage + position[k * p.k + big_cell];
#pragma unroll
      for (int j = 0; j < pairs; ++j) {
        if (2 * j >= columns) break;
        uint32_t b[parts][4];
#pragma unroll
        for (int part = 0; part < parts; ++part)
          ptx::load_transposed_matrices(b[part], at + offset[j] + 16 * part * p.octets * p.window_pitch);
        multiply<operand, row_tiles>(
            [&](int i, int m) -> float(&)[4] { return sum[min(2 * j + i, octets - 1)][m]; }, a, b,
            2 * j + 1 < min(columns, octets));
      }
    }
    copies.start(1 << 30);
  }

  // Teams [half, 2 half) give their sums to teams [0, half).
  float4* const added = reinterpret_cast<float4*>(shared);
  for (int half = p.teams() / 2; half > 0; half /= 2) {
    float4* const mine =
        added + ((team % half) * p.column_warps + column_warp) * octets * row_tiles * 32 + lane;
    __syncthreads();
    if (team >= half && team < 2 * half) {
#pragma unroll
      for (int i = 0; i < octets * row_tiles; ++i) {
        const auto& x = sum[i / row_tiles][i % row_tiles];
        mine[i * 32] = make_float4(x[0], x[1], x[2], x[3]);
      }
    }
    __syncthreads();
    if (team < half) {
#pragma unroll
      for (int i = 0; i < octets * row_tiles; ++i) {
        auto& x = sum[i / row_tiles][i % row_tiles];
        const float4 other = mine[i * 32];
        x[0] += other.x, x[1] += other.y, x[2] += other.z, x[3] += other.w;
      }
    }
  }
  if (team > 0) return;
  float4* const to = reinterpret_cast<float4*>(partials + split * p.split_floats()) +
                     ((int64_t{job_number} * p.columns() + first_column) * row_tiles) * 32 + lane;
#pragma unroll
  for (int i = 0; i < octets * row_tiles; ++i) {
    const auto& x = sum[i / row_tiles][i % row_tiles];
    if (i / row_tiles < columns) to[i * 32] = make_float4(x[0], x[1], x[2], x[3]);
  }
}

// ---- The launch -------------------------------------------------------------------------------------------

/// Stores sums of splits. *failed becomes 1 for one that is not finite, if results tell that numbers had no
/// parts.
template <class T>
struct StoreWeight {
  WeightGradPlan p;
  const float *largest_of_big, *largest_of_small;  ///< of ScaledF16, else null
  T* dweight;
  int64_t* failed;  ///< of parts, else null

  __device__ __forceinline__ void operator()(int64_t i, double sum) const {
    const Weight weight = weight_at(p, i);
    if (weight.at < 0) return;
    if (largest_of_big)
      sum /= double{ScaledF16::scale_for(largest_of_big[weight.big_channel])} *
             double{ScaledF16::scale_for(largest_of_small[weight.small_channel])};
    dweight[weight.at] = static_cast<T>(sum);
    if (failed && !isfinite(static_cast<float>(sum))) *failed = 1;
  }
};

template <class Operand>
void run_weight_grad(const WeightGradCall& call) {
  using Copy = ChannelsLastCopy<Operand>;
  using Storage = typename Copy::Storage;
  const auto& [big, small, dweight, g, only_if, failed] = call;
  const Launch launch("conv3d_weight_grad", dweight, {&big, &small, &failed});
  const WeightGradPlan p = *recall<make_weight_grad_plan>(g, Operand::parts);
  const auto granules_of = [](const Copy& copy) {
    return Granules{copy.template as<uint4>(), copy.part_bytes() / 16, copy.cell_bytes() / 16};
  };
  const Copy big_copy(launch, big, g.groups), small_copy(launch, small, g.groups);
  Copy::make(launch, big_copy, small_copy);
  const Workspace partials(launch, p.splits * p.split_floats() * int64_t{sizeof(float)});

  const auto launch_if = [&]<int row_tiles>(std::integral_constant<int, row_tiles>) {
    if (p.row_tiles != row_tiles) return;
    constexpr auto* kernel = weight_grad_kernel<Operand::operand, Operand::parts, row_tiles>;
    launch.allow_shared_memory<kernel>(p.shared_bytes());
    kernel<<<static_cast<unsigned>(p.jobs * p.splits), weight_grad_threads,
             static_cast<size_t>(p.shared_bytes()), launch.stream()>>>(
        granules_of(big_copy), granules_of(small_copy), partials.as<float>(), p);
  };
  [&]<int... i>(std::integer_sequence<int, i...>) { (launch_if(std::integral_constant<int, i + 1>{}), ...); }
  (std::make_integer_sequence<int, most_row_tiles(Operand::parts)>{});

  sum_splits(launch, partials.as<float>(), p.split_floats(), p.splits,
             StoreWeight<Storage>{p, big_copy.largest(), small_copy.largest(),
                                  vox::detail::mutable_ptr<Storage>(dweight),
                                  Operand::parts > 1 ? vox::detail::mutable_ptr<int64_t>(failed) : nullptr});
  launch.check();
}

}  // namespace vox::cuda::conv::mma
