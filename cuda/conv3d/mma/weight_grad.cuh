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

/// What a thread copies of one operand. The cells of a window and of a box are the same in all steps, so a
/// block has tables of them; a step only says which of them exist. Without branches, so that copies are
/// started among products.
template <int parts>
struct Copies {
  Granules from;
  const CellEntry* cells;
  int end, octets, pitch;  ///< cells; octets of each; granules of shared memory from an octet to the next

  StepCells step = {};
  uint32_t to = 0;
  int first_octet = 0, existing_octets = 0;  ///< of the operand; of those from there on
  int cell = 0, octet = 0;                   ///< the next granule

  __device__ __forceinline__ void begin(const StepCells& of_step, uint32_t stage, int first, int channels) {
    step = of_step, to = stage;
    first_octet = first, existing_octets = ceil_div(channels, 8) - first;
    cell = static_cast<int>(threadIdx.x) / octets, octet = static_cast<int>(threadIdx.x) % octets;
  }
  __device__ __forceinline__ bool more() const { return cell < end; }

  /// Starts to copy a granule, if there are more.
  __device__ __forceinline__ void start() {
    const CellEntry entry = cells[min(cell, end - 1)];
    const bool exists =
        (octet < existing_octets) & Coordinates::within(entry.coordinates, step.low, step.high);
    const uint4* const first = from.data + step.first * from.cell + first_octet;
    const uint4* const at = exists ? first + (entry.offset * from.cell + octet) : from.data;
#pragma unroll
    for (int part = 0; part < parts; ++part)
      ptx::cp_async_16_if(more(), to + 16 * ((part * octets + octet) * pitch + cell), at + part * from.part,
                          exists);
    cell += weight_grad_threads / octets, octet += weight_grad_threads % octets;
    if (octet >= octets) octet -= octets, ++cell;
  }
  __device__ __forceinline__ void start_all() {
    while (more()) {
#pragma unroll
      for (int i = 0; i < (parts == 1 ? 4 : 2); ++i) start();
    }
    __syncwarp();
  }
};

// ---- The products -----------------------------------------------------------------------------------------

/// The operands of 16 cells: channels of small, and two octets of columns.
template <int parts, int row_tiles>
struct SmallCells {
  uint32_t word[parts][row_tiles][4];
};
template <int parts>
struct TwoOctets {
  uint32_t word[parts][4];
};

/// sum[first] and the next += a * b.
template <ptx::Operand operand, int row_tiles, int octets>
__device__ __forceinline__ void multiply(float (&sum)[octets][row_tiles][4], int first,
                                         const SmallCells<1, row_tiles>& a, const TwoOctets<1>& b) {
#pragma unroll
  for (int i = 0; i < min(2, octets - first); ++i)
#pragma unroll
    for (int m = 0; m < row_tiles; ++m)
      ptx::mma_m16n8k16<operand>(sum[first + i][m], a.word[0][m], b.word[0][2 * i], b.word[0][2 * i + 1]);
}

/// The same for numbers of three parts, the smallest products first.
template <ptx::Operand operand, int row_tiles, int octets>
__device__ __forceinline__ void multiply(float (&sum)[octets][row_tiles][4], int first,
                                         const SmallCells<3, row_tiles>& a, const TwoOctets<3>& b) {
  float of_cells[2][row_tiles][4] = {};
#pragma unroll
  for (int order = 2; order >= 0; --order)
#pragma unroll
    for (int of_a = order; of_a >= 0; --of_a)
#pragma unroll
      for (int i = 0; i < min(2, octets - first); ++i)
#pragma unroll
        for (int m = 0; m < row_tiles; ++m)
          ptx::mma_m16n8k16<operand>(of_cells[i][m], a.word[of_a][m], b.word[order - of_a][2 * i],
                                     b.word[order - of_a][2 * i + 1]);
#pragma unroll
  for (int i = 0; i < min(2, octets - first); ++i)
#pragma unroll
    for (int m = 0; m < row_tiles; ++m)
#pragma unroll
      for (int e = 0; e < 4; ++e) sum[first + i][m][e] += of_cells[i][m][e];
}

/// Adds the sums of all teams to those of team 0: teams [half, 2 half) give theirs to teams [0, half).
template <int row_tiles, int octets>
__device__ __forceinline__ void add_teams(float (&sum)[octets][row_tiles][4], unsigned char* shared, int warp,
                                          const WeightGradPlan& p) {
  const int column_warp = warp % p.column_warps, team = warp / p.column_warps;
  for (int half = p.teams / 2; half > 0; half /= 2) {
    float4* const added = reinterpret_cast<float4*>(shared) +
                          ((team % half) * p.column_warps + column_warp) * octets * row_tiles * 32 +
                          threadIdx.x % 32;
    __syncthreads();
#pragma unroll
    for (int i = 0; i < octets * row_tiles; ++i)
      if (const auto& x = sum[i / row_tiles][i % row_tiles]; team >= half && team < 2 * half)
        added[i * 32] = make_float4(x[0], x[1], x[2], x[3]);
    __syncthreads();
#pragma unroll
    for (int i = 0; i < octets * row_tiles; ++i)
      if (auto& x = sum[i / row_tiles][i % row_tiles]; team < half) {
        const float4 other = added[i * 32];
        x[0] += other.x, x[1] += other.y, x[2] += other.z, x[3] += other.w;
      }
  }
}

/// A block's sums; partials as in weight_at.
template <ptx::Operand operand, int parts, int row_tiles, int octets>
__global__ void __launch_bounds__(weight_grad_threads, 1)
    weight_grad_kernel(const __grid_constant__ Granules big, const __grid_constant__ Granules small,
                       float* __restrict__ partials, const __grid_constant__ WeightGradPlan p) {
  constexpr int pairs = ceil_div(octets, 2);
  const int thread = static_cast<int>(threadIdx.x), lane = thread % 32, warp = thread / 32;
  const int job_number = static_cast<int>(blockIdx.x) % p.jobs, split = static_cast<int>(blockIdx.x) / p.jobs;
  const int begin = static_cast<int>(int64_t{split} * p.steps / p.splits),
            end = static_cast<int>((int64_t{split} + 1) * p.steps / p.splits);

  // Shared memory: tables of cells, where those of a box are in a window, and two stages. Cells that fill up
  // the last instruction are zeros of small; of big they are the first cell again.
  extern __shared__ __align__(16) unsigned char shared[];
  __shared__ WeightGradJob job;      // registers are for sums
  __shared__ int64_t first_partial;  // of the block
  const int k_cells = p.k_steps * p.k;
  CellEntry* const window_cells = reinterpret_cast<CellEntry*>(shared);
  CellEntry* const box_cells = window_cells + p.window_cells;
  int* const position = reinterpret_cast<int*>(box_cells + k_cells);  // in bytes
  if (thread == 0) {
    job = job_at(p, job_number);
    first_partial = split * p.split_floats() + int64_t{job_number} * p.columns() * row_tiles * 128;
  }
  for (int i = thread; i < p.window_cells; i += weight_grad_threads) window_cells[i] = window_entry(p, i);
  for (int i = thread; i < k_cells; i += weight_grad_threads) {
    box_cells[i] = box_entry(p, i);
    position[i] = 16 * p.position(p.box_cell(i < p.box_cells ? i : 0));
  }
  __syncthreads();

  const uint32_t stages = ptx::shared_address_of(shared + p.table_bytes());
  const auto stage_of = [&](int step) { return stages + 16 * (step % 2) * p.stage_granules; };
  Copies<parts> of_big{big, window_cells, p.window_cells, p.octets, p.window_pitch},
      of_small{small, box_cells, k_cells, 2 * row_tiles, p.small_pitch};
  const auto begin_copies = [&](int step) {
    const StepBox box = box_at(p, step);
    of_big.begin(big_cells(p, job, box), stage_of(step), job.first_octet, p.big_per_group);
    of_small.begin(small_cells(p, job, box), stage_of(step) + 16 * parts * p.window_granules,
                   job.first_row / 8, p.small_per_group);
    if (step == end) of_big.cell = of_small.cell = 1 << 20;  // no more
  };
  begin_copies(begin);
  of_big.start_all(), of_small.start_all();

  // Which rows of ldmatrix a lane names. Of big: 8 cells and the next 8 of an octet, and of the next octet.
  // Of small: 8 cells of two octets, and the next 8 cells of both.
  const int first_column = warp % p.column_warps * p.warp_octets;
  int offset[pairs];
#pragma unroll
  for (int j = 0; j < pairs; ++j) {
    const Column c = column_at(p, min(first_column + 2 * j + lane / 16, p.columns() - 1));
    offset[j] = 16 * (c.octet * p.window_pitch + p.tap_shift(c.d, c.h, c.w));
  }
  const int* const my_position = position + lane % 16;
  const int small_at =
      16 * (parts * p.window_granules + lane / 8 % 2 * p.small_pitch + lane % 8 + lane / 16 * 8);
  const auto load_small = [&](SmallCells<parts, row_tiles>& a, uint32_t at) {
#pragma unroll
    for (int part = 0; part < parts; ++part)
#pragma unroll
      for (int m = 0; m < row_tiles; ++m)
        ptx::load_transposed_matrices(a.word[part][m], at + 32 * (part * row_tiles + m) * p.small_pitch);
  };
  const auto load_big = [&](TwoOctets<parts>& b, uint32_t at) {
#pragma unroll
    for (int part = 0; part < parts; ++part)
      ptx::load_transposed_matrices(b.word[part], at + 16 * part * p.window_granules);
  };

  const int team = warp / p.column_warps, last_k = p.k_steps - 1;
  float sum[octets][row_tiles][4] = {};
  for (int step = begin; step < end; ++step) {
    ptx::cp_async_wait_all();
    __syncthreads();  // all copies of this step are there, and all have read the step before
    begin_copies(step + 1);

    // If there are registers, copies are started among the products, and the operands of two octets are
    // loaded before the products of those before them.
    constexpr bool interleaved = parts == 1;
    if constexpr (!interleaved) of_big.start_all(), of_small.start_all();
    const uint32_t stage = stage_of(step);
    int at = my_position[min(team, last_k) * p.k];
#pragma unroll 1
    for (int k = team; k <= last_k; k += p.teams) {
      SmallCells<parts, row_tiles> a;
      TwoOctets<parts> b, next_b;
      load_small(a, stage + small_at + 16 * p.k * k);
      if constexpr (!interleaved) at = my_position[k * p.k];
      load_big(b, stage + at + offset[0]);
      const int next_at = interleaved ? my_position[min(k + p.teams, last_k) * p.k] : 0;
      if constexpr (interleaved) of_big.start(), of_small.start();
#pragma unroll
      for (int j = 0; j < pairs; ++j) {
        if (interleaved && j + 1 < pairs) load_big(next_b, stage + at + offset[j + 1]);
        if (!interleaved && j > 0) load_big(b, stage + at + offset[j]);
        multiply<operand>(sum, 2 * j, a, b);
        if constexpr (interleaved) b = next_b;
      }
      at = next_at;
    }
    if constexpr (interleaved) of_big.start_all(), of_small.start_all();  // what is left
  }

  add_teams(sum, shared, warp, p);
  if (team > 0) return;
  float4* const to =
      reinterpret_cast<float4*>(partials + first_partial) + first_column * row_tiles * 32 + lane;
  const int columns = min(p.warp_octets, p.columns() - first_column);
#pragma unroll
  for (int i = 0; i < octets * row_tiles; ++i)
    if (const auto& x = sum[i / row_tiles][i % row_tiles]; i / row_tiles < columns)
      to[i * 32] = make_float4(x[0], x[1], x[2], x[3]);
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

  const auto launch_if = [&]<int row_tiles, int octets>() {
    if (p.row_tiles != row_tiles || p.kernel_octets != octets) return;
    constexpr auto* kernel = weight_grad_kernel<Operand::operand, Operand::parts, row_tiles, octets>;
    launch.allow_shared_memory<kernel>(p.shared_bytes());
    kernel<<<static_cast<unsigned>(p.jobs * p.splits), weight_grad_threads,
             static_cast<size_t>(p.shared_bytes()), launch.stream()>>>(
        granules_of(big_copy), granules_of(small_copy), partials.as<float>(), p);
  };
  [&]<int... i>(std::integer_sequence<int, i...>) {
    (launch_if.template operator()<i + 1, most_octets(i + 1)>(), ...);
    (launch_if.template operator()<i + 1, fewer_octets(i + 1)>(), ...);
  }
  (std::make_integer_sequence<int, most_row_tiles(Operand::parts)>{});

  sum_splits(launch, partials.as<float>(), p.split_floats(), p.splits,
             StoreWeight<Storage>{p, big_copy.largest(), small_copy.largest(),
                                  vox::detail::mutable_ptr<Storage>(dweight),
                                  Operand::parts > 1 ? vox::detail::mutable_ptr<int64_t>(failed) : nullptr});
  launch.check();
}

}  // namespace vox::cuda::conv::mma
