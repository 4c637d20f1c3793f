#pragma once

// conv3d_weight_grad on the tensor cores of any GPU since sm_80 (mma.sync), of 16-bit numbers.
//
//   dweight[sc, (bc, k)] = sum over n, i of small[n, sc, i] * big[n, bc, i * stride - padding + k * dilation]
//
// Both operands are copied in granules (granules.cuh), so 16 bytes are 8 channels of a cell. `ldmatrix` reads
// 8 such rows from any 8 addresses, and transposes them: the k of the product is the cell. So a tap is
// another address in a window of big, and a stride another distance of addresses. Nothing is loaded twice for
// two taps of a window.
//
// What a block owns: up to 64 channels of small x up to 56 octets of columns (plan), in registers, and a
// split of the steps. Its warps share the columns; where there are few, teams of warps share the cells of a
// box instead, and add up their sums at the end. The copies of the next step run while the products of this
// one do. Each block writes its own partial result; a second kernel adds them in order. No atomics, and the
// bits never change.
//
// f32 comes as scaled f16 (common/scale.cuh), whose sums stay in the accumulators for the whole split. At
// `highest` it comes as it is, and becomes two f16 numbers where it lies in shared memory (Note [Bands] in
// common/bands.cuh). Their three products are added up apart for each 16 cells and then in f32 (Note
// [Truncating sums] in common/operands.cuh). If a box has numbers of further bands, it is loaded again for
// each pair of bands; sums stay in the scale of the first ones.
//
// Reading order: weight_grad_plan.h and this file.

#include <voxgrad/core/tensor.h>
#include <voxgrad/cuda/conv3d/call.h>
#include <voxgrad/cuda/conv3d/common/recent.h>
#include <voxgrad/cuda/conv3d/mma/weight_grad_plan.h>
#include <voxgrad/cuda/runtime/launch.h>
#include <voxgrad/cuda/conv3d/common/splits.cuh>
#include <voxgrad/cuda/conv3d/mma/granules.cuh>
#include <voxgrad/cuda/ptx/copies.cuh>
#include <voxgrad/cuda/ptx/mma.cuh>
#include <voxgrad/cuda/ptx/shared.cuh>

#include <algorithm>
#include <type_traits>
#include <utility>

namespace vox::cuda::conv::mma {

constexpr int weight_grad_threads = 32 * WeightGradPlan::warps;

// ---- The copies of a step ---------------------------------------------------------------------------------

/// The granules of a thread: octet after octet, the cells of each. Recomputed at each use, if `parts` of
/// numbers need the registers that hold what compilers take out of loops.
template <int parts>
struct GranuleWalk {
  int cells, octet_step, cell_step, octet, cell;

  __device__ __forceinline__ explicit GranuleWalk(int all_cells) : cells(all_cells) {
    if constexpr (parts > 1) asm volatile("" : "+r"(cells));
    octet_step = weight_grad_threads / cells, cell_step = weight_grad_threads % cells;
    octet = static_cast<int>(threadIdx.x) / cells, cell = static_cast<int>(threadIdx.x) % cells;
  }
  __device__ __forceinline__ void next() {
    octet += octet_step, cell += cell_step;
    if (cell >= cells) cell -= cells, ++octet;
  }
};

/// What a thread copies of one operand. The cells of a window and of a box are the same in all steps, so a
/// block has tables of them; a step only says which of them exist. Without branches, so that copies are
/// started among products.
template <int parts>
struct Copies {
  Granules from;
  const CellEntry* cells;
  int count, octets,
      pitch;  ///< of cells; octets of each; granules of shared memory from an octet to the next

  CellRange step = {};
  uint32_t to = 0;
  int first_octet = 0, existing_octets = 0;  ///< of the operand; of those from there on
  GranuleWalk<parts> at{count};

  __device__ __forceinline__ void begin(const CellRange& of_step, uint32_t stage, int first, int channels) {
    step = of_step, to = stage;
    first_octet = first, existing_octets = ceil_div(channels, 8) - first;
    at = GranuleWalk<parts>(count);
  }
  __device__ __forceinline__ void begin_nothing() { at.octet = octets; }
  __device__ __forceinline__ bool more() const { return at.octet < octets; }

  /// Starts to copy a granule, if there are more.
  __device__ __forceinline__ void start() {
    const CellEntry entry = cells[at.cell];
    const bool exists = (at.octet < existing_octets) & step.holds(entry);
    const uint4* const source =
        from.data + (exists ? step.first + entry.offset + (first_octet + at.octet) * parts * from.cells : 0);
#pragma unroll
    for (int part = 0; part < parts; ++part)
      ptx::cp_async_16_if(more(), to + 16 * ((part * octets + at.octet) * pitch + at.cell),
                          source + part * from.cells, exists);
    at.next();
  }
  __device__ __forceinline__ void start_all() {
    while (more()) {
#pragma unroll
      for (int i = 0; i < (parts == 1 ? 4 : 1); ++i) start();
    }
    __syncwarp();
  }

  /// Splits what lies at `stage` and is in the band; other numbers become zeros. Returns their bands, a bit
  /// each.
  __device__ __forceinline__ unsigned split(uint4* stage, const Bands& bands, int band) const {
    const float scale = bands.scale(band);
    const float low = band == bands.last() ? 0 : 0x1p-14f, high = band == 0 ? INFINITY : 0x1.fffffep14f;
    unsigned others = 0;
#pragma unroll 1
    for (GranuleWalk<parts> i(count); i.octet < octets; i.next()) {
      uint4* const first = stage + i.octet * pitch + i.cell;
      uint4* const second = first + octets * pitch;
      float x[8];
      load_eight(x, *first, *second);
#pragma unroll
      for (float& value : x) {
        const float scaled = value * scale, size = fabsf(scaled);
        const bool in_band = !(size < low) && !(size > high);  // NaN is in the first
        if (!in_band && value != 0) others |= 1u << bands.of(size_bits(value));
        value = in_band ? scaled : 0.0f;
      }
      store_parts(x, *first, *second);
    }
    return others;
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
                                         const SmallCells<1, row_tiles>& a, const TwoOctets<1>& b, float) {
#pragma unroll
  for (int i = 0; i < min(2, octets - first); ++i)
#pragma unroll
    for (int m = 0; m < row_tiles; ++m)
      ptx::mma_m16n8k16<operand>(sum[first + i][m], a.word[0][m], b.word[0][2 * i], b.word[0][2 * i + 1]);
}

/// The same for numbers of two parts, times `scale`: sums of 16 cells, those with a low part apart.
template <ptx::Operand operand, int row_tiles, int octets>
__device__ __forceinline__ void multiply(float (&sum)[octets][row_tiles][4], int first,
                                         const SmallCells<2, row_tiles>& a, const TwoOctets<2>& b,
                                         float scale) {
#pragma unroll
  for (int i = 0; i < min(2, octets - first); ++i) {
    float high[row_tiles][4] = {}, low[row_tiles][4] = {};
#pragma unroll
    for (int of_a = 1; of_a >= 0; --of_a)
#pragma unroll
      for (int m = 0; m < row_tiles; ++m)
        ptx::mma_m16n8k16<operand>(low[m], a.word[of_a][m], b.word[1 - of_a][2 * i],
                                   b.word[1 - of_a][2 * i + 1]);
#pragma unroll
    for (int m = 0; m < row_tiles; ++m) {
      ptx::mma_m16n8k16<operand>(high[m], a.word[0][m], b.word[0][2 * i], b.word[0][2 * i + 1]);
#pragma unroll
      for (int e = 0; e < 4; ++e)
        sum[first + i][m][e] = fmaf(fmaf(low[m][e], 0x1p-11f, high[m][e]), scale, sum[first + i][m][e]);
    }
  }
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

/// A pair of bands, of big and of small.
struct BandPair {
  int number;  // 16 big + small

  __device__ __forceinline__ int of_big() const { return number / 16; }
  __device__ __forceinline__ int of_small() const { return number % 16; }
  /// The next pair that a box has, whose further bands are bits of `seen`: those of small from bit 16 on.
  /// False if there is none.
  __device__ __forceinline__ bool to_next(unsigned seen) {
    const unsigned bands_of_big = seen & 0xffff | 1, bands_of_small = seen >> 16 | 1;
    if (seen == 0) return false;
    while (++number < 256)
      if ((bands_of_big >> of_big() & 1) && (bands_of_small >> of_small() & 1)) return true;
    return false;
  }
  /// What products are multiplied by to be in the scale of the first bands. Further than 3 bands below them
  /// they are no normal f32 numbers.
  __device__ __forceinline__ bool fits() const { return of_big() + of_small() <= 3; }
  __device__ __forceinline__ float unscale() const {
    return __uint_as_float(static_cast<unsigned>(127 - Bands::width * min(of_big() + of_small(), 3)) << 23);
  }
};

/// A block's sums; partials as in weight_at. Parts: `failed` becomes 1 if there are too many bands.
template <ptx::Operand operand, int parts, int row_tiles, int octets>
__global__ void __launch_bounds__(weight_grad_threads, 1)
    weight_grad_kernel(const __grid_constant__ Granules big, const __grid_constant__ Granules small,
                       float* __restrict__ partials, const SizeRange* range_of_big,
                       const SizeRange* range_of_small, int64_t* failed,
                       const __grid_constant__ WeightGradPlan p) {
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
    if (step == end) of_big.begin_nothing(), of_small.begin_nothing();
  };
  const auto load = [&](int step) { begin_copies(step), of_big.start_all(), of_small.start_all(); };
  // Which rows of ldmatrix a lane names. Of big: 8 cells and the next 8 of an octet, and of the next octet.
  // Of small: 8 cells of two octets, and the next 8 cells of both.
  // If there are registers, copies are started among the products, the operands of two octets are loaded
  // before the products of those before them, and a lane keeps where it reads.
  constexpr bool interleaved = parts == 1;
  const int first_column = warp % p.column_warps * p.warp_octets;
  const auto offset_of = [&](int column) {
    const Column c = column_at(p, min(column, p.columns() - 1));
    return 16 * (c.octet * p.window_pitch + p.tap_shift(c.d, c.h, c.w));
  };
  __shared__ int offsets[WeightGradPlan::warps * 2 * pairs];
  for (int i = thread; i < WeightGradPlan::warps * 2 * pairs; i += weight_grad_threads)
    offsets[i] = offset_of(i / (2 * pairs) % p.column_warps * p.warp_octets + i % (2 * pairs));
  const int* const own_offsets = offsets + warp * 2 * pairs + lane / 16;
  __syncthreads();
  int kept_offset[pairs];
#pragma unroll
  for (int j = 0; j < pairs; ++j) kept_offset[j] = own_offsets[2 * j];
  const auto offset = [&](int j) { return interleaved ? kept_offset[j] : own_offsets[2 * j]; };
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
  const auto multiply_box = [&](uint32_t stage, float scale) {
    int at = my_position[min(team, last_k) * p.k];
#pragma unroll 1
    for (int k = team; k <= last_k; k += p.teams) {
      SmallCells<parts, row_tiles> a;
      TwoOctets<parts> b, next_b;
      load_small(a, stage + small_at + 16 * p.k * k);
      if constexpr (!interleaved) at = my_position[k * p.k];
      load_big(b, stage + at + offset(0));
      const int next_at = interleaved ? my_position[min(k + p.teams, last_k) * p.k] : 0;
      if constexpr (interleaved) of_big.start(), of_small.start();
#pragma unroll
      for (int j = 0; j < pairs; ++j) {
        if (interleaved && j + 1 < pairs) load_big(next_b, stage + at + offset(j + 1));
        if (!interleaved && j > 0) load_big(b, stage + at + offset(j));
        multiply<operand>(sum, 2 * j, a, b, scale);
        if constexpr (interleaved) b = next_b;
      }
      at = next_at;
    }
  };
  __shared__ unsigned seen[WeightGradPlan::warps];  // further bands, by a warp: see BandPair
  const auto split_box = [&](int step, const BandPair& pair) {
    uint4* const of_stage =
        reinterpret_cast<uint4*>(shared + p.table_bytes()) + step % 2 * int64_t{p.stage_granules};
    const unsigned of_big_bands = of_big.split(of_stage, Bands(range_of_big->largest), pair.of_big()),
                   of_small_bands = of_small.split(of_stage + parts * p.window_granules,
                                                   Bands(range_of_small->largest), pair.of_small());
    const unsigned of_warp = __reduce_or_sync(0xffffffff, of_big_bands | of_small_bands << 16);
    if (lane == 0 && pair.number == 0) seen[warp] = of_warp;
    __syncthreads();
  };
  const auto wait_for_copies = [] { ptx::cp_async_wait_all(), __syncthreads(); };
  if constexpr (interleaved) {
    load(begin);
    for (int step = begin; step < end; ++step) {
      wait_for_copies();  // and all have read the step before
      begin_copies(step + 1);
      multiply_box(stage_of(step), 1);
      of_big.start_all(), of_small.start_all();  // what is left
    }
  } else {
    BandPair pair{0};
    for (int step = begin - 1; step < end;) {
      load(pair.number == 0 ? step + 1 : step);
      if (pair.number > 0) wait_for_copies();
      if (step >= begin) {
        split_box(step, pair);
        multiply_box(stage_of(step), pair.unscale());
        unsigned bands = 0;
        for (const unsigned of_warp : seen) bands |= of_warp;
        if (pair.to_next(bands)) {
          if (!pair.fits()) *failed = 1;
          __syncthreads();  // the products are done
          continue;
        }
      }
      pair = {0}, ++step;
      wait_for_copies();
    }
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
  const float *largest_of_big, *largest_of_small;  ///< of channels: ScaledF16, else null
  const SizeRange *range_of_big, *range_of_small;  ///< F16Pair, else null
  T* dweight;
  int64_t* failed;  ///< of parts, else null

  __device__ __forceinline__ void operator()(int64_t i, double sum) const {
    const Weight weight = weight_at(p, i);
    if (weight.at < 0) return;
    if (largest_of_big)
      sum /= double{ScaledF16::scale_for(largest_of_big[weight.big_channel])} *
             double{ScaledF16::scale_for(largest_of_small[weight.small_channel])};
    if (failed) {
      const unsigned big = range_of_big->largest, small = range_of_small->largest;
      sum /= double{Bands(big).scale(0)} * double{Bands(small).scale(0)};
      if (!isfinite(static_cast<float>(sum)) || !Bands::hold(big) || !Bands::hold(small)) *failed = 1;
    }
    dweight[weight.at] = static_cast<T>(sum);
  }
};

template <class Operand>
void run_weight_grad(const WeightGradCall& call) {
  constexpr bool split = Operand::parts > 1;
  using Copy = GranulesCopy<std::conditional_t<split, Whole, Operand>>;
  using Storage = typename Copy::Storage;
  const auto& [big, small, dweight, g, only_if, failed] = call;
  const Launch launch("conv3d_weight_grad", dweight, {&big, &small, &failed});
  const WeightGradPlan p = *recall<make_weight_grad_plan>(g, Operand::parts);
  const Copy big_copy(launch, big, g.groups), small_copy(launch, small, g.groups);
  Copy::make(launch, big_copy, small_copy);
  const Workspace partials(launch, p.splits * p.split_floats() * int64_t{sizeof(float)});

  int64_t* const flag = split ? vox::detail::mutable_ptr<int64_t>(failed) : nullptr;
  const auto launch_if = [&]<int row_tiles, int octets>() {
    if (p.row_tiles != row_tiles || p.kernel_octets != octets) return;
    constexpr auto* kernel = weight_grad_kernel<Operand::operand, Operand::parts, row_tiles, octets>;
    launch.allow_shared_memory<kernel>(p.shared_bytes());
    kernel<<<static_cast<unsigned>(p.jobs * p.splits), weight_grad_threads,
             static_cast<size_t>(p.shared_bytes()), launch.stream()>>>(
        big_copy.granules(), small_copy.granules(), partials.as<float>(), big_copy.range(),
        small_copy.range(), flag, p);
  };
  [&]<int... i>(std::integer_sequence<int, i...>) {
    (launch_if.template operator()<i + 1, most_octets(i + 1)>(), ...);
    (launch_if.template operator()<i + 1, fewer_octets(i + 1)>(), ...);
  }
  (std::make_integer_sequence<int, most_row_tiles(Operand::parts)>{});

  sum_splits(launch, partials.as<float>(), p.split_floats(), p.splits,
             StoreWeight<Storage>{p, big_copy.largest(), small_copy.largest(), big_copy.range(),
                                  small_copy.range(), vox::detail::mutable_ptr<Storage>(dweight), flag});
  launch.check();
}

}  // namespace vox::cuda::conv::mma
