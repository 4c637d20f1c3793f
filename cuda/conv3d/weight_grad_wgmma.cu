// conv3d_weight_grad of f32 with the warpgroup products of Hopper, operands rounded to TF32.
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
// tile of coarse rows, and the planes of big stay in a ring for the steps that share them. Producers load
// 4-byte elements (rows of 66 or 98 floats have no alignment), many in flight, by tables of offsets that last
// for a column of steps, and round each element once.
//
// Sums stay in the tensor core's accumulators for the whole slab; they truncate, which on data of one sign
// adds an error of the order of TF32's own after some 10^4 cells.
//
// Non-finite values: where a tap falls outside the fine grid lies a zero, so an Inf or NaN of small also
// makes NaN of the weights whose tap is outside for its cell; what either operand touches is never finite.

#include <voxgrad/core/factories.h>
#include <voxgrad/cuda/conv3d/channel_tiles.h>
#include <voxgrad/cuda/conv3d/kernels.h>
#include <voxgrad/cuda/conv3d/weight_grad_plan.h>
#include <voxgrad/cuda/launch.h>
#include <voxgrad/cuda/ptx/mbarrier.cuh>
#include <voxgrad/cuda/ptx/mma.cuh>
#include <voxgrad/cuda/ptx/shared.cuh>
#include <voxgrad/cuda/ptx/wgmma.cuh>

namespace vox::cuda {

namespace {

using Plan = WeightGradPlan;

constexpr int group_threads = 128;
constexpr int consumers = 2, producers = 2;  // warpgroups
constexpr int producing_threads = producers * group_threads;
constexpr int block_threads = (consumers + producers) * group_threads;

/// Which part of dweight a block computes.
struct Slice {
  int group, first_column, first_tap, first_octet;
};

__device__ __forceinline__ Slice slice_of(const Plan& p, int64_t slice) {
  const int octet_block = static_cast<int>(slice % p.octet_blocks);
  const int64_t by_taps = slice / p.octet_blocks, by_columns = by_taps / p.tap_blocks;
  return {static_cast<int>(by_columns / p.column_blocks),
          static_cast<int>(by_columns % p.column_blocks) * p.columns,
          static_cast<int>(by_taps % p.tap_blocks) * p.slice_taps, octet_block * p.octets};
}

#ifdef __CUDA_ARCH_FEAT_SM90_ALL

// ---- Shared memory ----------------------------------------------------------------------------------------

/// An element to bring: where it is in its plane (negative: outside, a zero) and where it goes (negative:
/// nowhere).
struct Entry {
  int from, to;
};

/// What consumers have to know of a step: its coarse rows, the pairs of 8 positions in a row, and how many
/// positions of the last pair exist.
struct Extent {
  int rows, pairs, tail;
};

/// The two buffers of small, and of what else changes with the step, are used in turn.
struct Shared {
  uint32_t* big;      // [slot][channel][row][column]
  uint32_t* small;    // [buffer][position / 4][column, and one more][4 positions]
  Entry* big_from;    // by element of a slot, a channel
  Entry* small_from;  // by element of a tile, a channel
  int* octets;        // [buffer][octet of rows]: where it begins, in words
  Extent* extents;    // [buffer]
  ptx::Mbarrier *full, *empty;
};

__device__ __forceinline__ Shared shared_memory(const Plan& p, uint32_t* at) {
  __shared__ Extent extents[2];
  __shared__ ptx::Mbarrier full[2], empty[2];
  Shared s;
  s.big = at, at += p.axis[0].extent * p.slot_words;
  s.small = at, at += 2 * p.small_entries / 4 * p.plane_words;
  s.big_from = reinterpret_cast<Entry*>(at), at += 2 * p.big_entries;
  s.small_from = reinterpret_cast<Entry*>(at), at += 2 * p.small_entries;
  s.octets = reinterpret_cast<int*>(at);
  s.extents = extents, s.full = full, s.empty = empty;
  return s;
}

// ---- Consumers --------------------------------------------------------------------------------------------

/// A warpgroup's `count` products of 64 rows, from the first-th of the block, over all steps.
template <int columns, int count>
__device__ __forceinline__ void consume(const Plan& p, const Shared& s, int first, int steps, float* to) {
  const int thread = threadIdx.x % group_threads, lane = thread % 32, warp = thread / 32;
  const int row = lane / 4, k = lane % 4;
  const uint32_t lane_at = ptx::shared_address_of(s.big) + 4 * (row * p.channel_pitch + k);
  const uint32_t plane_bytes = 4 * p.plane_words, row_bytes = 4 * p.axis[2].extent;
  const int row_planes = p.axis[2].tile / 4, tile_words = p.small_entries / 4 * p.plane_words;

  // Fragments are loaded `ahead` products before they are used; a set of registers waits for its product.
  constexpr int sets = count, ahead = sets / 2;
  float sum[count][columns / 2];
#pragma unroll
  for (int m = 0; m < count; ++m)
#pragma unroll
    for (int i = 0; i < columns / 2; ++i) sum[m][i] = 0;
  uint32_t a[sets][4];
  uint32_t at[count][2];

  const auto load = [&](uint32_t(&set)[4], const uint32_t(&from)[2], auto offset) {
    constexpr int bytes = offset;
    set[0] = ptx::load_shared<bytes>(from[0]);
    set[1] = ptx::load_shared<bytes>(from[1]);
    set[2] = ptx::load_shared<bytes + 16>(from[0]);
    set[3] = ptx::load_shared<bytes + 16>(from[1]);
  };
  // 16 positions; `next` bytes lead to the following ones, of which the first fragments are loaded here.
  const auto multiply_pair = [&](auto masked, uint64_t b, uint32_t next, int tail) {
#pragma unroll
    for (int i = 0; i < 2 * count; ++i) {
      const int load_i = i + ahead, m = load_i % count;
      if (load_i >= 2 * count) at[m][0] += next, at[m][1] += next;
      ptx::wgmma_wait<sets - ahead - 1>();
      if (load_i % (2 * count) < count)
        load(a[load_i % sets], at[m], std::integral_constant<int, 0>{});
      else
        load(a[load_i % sets], at[m], std::integral_constant<int, 32>{});
      if constexpr (masked) {
        const int position = i / count * 8 + k;
        if (position >= tail) a[i % sets][0] = a[i % sets][1] = 0;
        if (position + 4 >= tail) a[i % sets][2] = a[i % sets][3] = 0;
      }
      ptx::wgmma_fence();
      ptx::wgmma<ptx::Operand::tf32, columns>(sum[i % count], a[i % sets],
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
    for (int m = 0; m < ahead; ++m) load(a[m], at[m], std::integral_constant<int, 0>{});
    uint64_t b = ptx::shared_matrix(s.small + buffer * tile_words, plane_bytes, 128);
    for (int r = 0; r < extent.rows; ++r) {
      for (int pair = 0; pair < extent.pairs; ++pair) {
        const bool row_ends = pair == extent.pairs - 1, all_ends = row_ends && r == extent.rows - 1;
        const uint32_t next = all_ends ? 0 : row_ends ? row_bytes - pair * 64 : 64;
        if (row_ends && extent.tail < 16)
          multiply_pair(std::true_type{}, b, next, extent.tail);
        else
          multiply_pair(std::false_type{}, b, next, 16);
        b = ptx::moved(b, (row_ends ? row_planes - pair * 4 : 4) * plane_bytes);
      }
    }
    ptx::wgmma_wait<0>();
    ptx::mbarrier_arrive(s.empty[buffer]);
  }

#pragma unroll
  for (int m = 0; m < count; ++m)
#pragma unroll
    for (int i = 0; i < columns / 2; ++i)
      to[((first + m) * (columns / 2) + i) * group_threads + thread] = sum[m][i];
}

// ---- Producers --------------------------------------------------------------------------------------------

/// A column of steps: the depths of one tile of coarse rows.
struct Column {
  int image, h, w;  // the first coarse cell
};

__device__ __forceinline__ Column column_of(const Plan& p, int64_t i) {
  const int64_t by_h = i / p.axis[2].tiles;
  return {static_cast<int>(by_h / p.axis[1].tiles), static_cast<int>(by_h % p.axis[1].tiles) * p.axis[1].tile,
          static_cast<int>(i % p.axis[2].tiles) * p.axis[2].tile};
}

__device__ __forceinline__ bool within(int i, int size) {
  return static_cast<unsigned>(i) < static_cast<unsigned>(size);
}

/// Elements of big in the order of memory, as far as rows go: neighbours along W are neighbours here.
__device__ void list_big(const Plan& p, const Shared& s, const Column& column, int thread) {
  const PhasedAxis &h = p.axis[1], &w = p.axis[2];
  const int across = (w.tile + w.reach) * w.phases;
  for (int i = thread; i < p.big_entries; i += producing_threads) {
    const int row = i / across, cell = i % across / w.phases + w.low, w_phase = i % w.phases;
    int h_phase = 0;
    while (h_phase + 1 < h.phases && row >= h.offset[h_phase + 1]) ++h_phase;
    const int y = (column.h + h.first[h_phase] + row - h.offset[h_phase]) * h.stride + h.residue[h_phase];
    const int x = (column.w + cell) * w.stride + w.residue[w_phase];
    const int to = cell - w.first[w_phase];
    s.big_from[i] = {within(y, h.big) && within(x, w.big) ? y * w.big + x : -1,
                     within(to, w.tile + w.span[w_phase] - 1) ? row * w.extent + w.offset[w_phase] + to : -1};
  }
}

/// Elements of small, or of every 4 the first.
__device__ void list_small(const Plan& p, const Shared& s, const Column& column, bool quads, int thread) {
  const PhasedAxis &h = p.axis[1], &w = p.axis[2];
  const int each = quads ? 4 : 1;
  for (int i = thread; i < p.small_entries / each; i += producing_threads) {
    const int position = i * each, y = column.h + position / w.tile, x = column.w + position % w.tile;
    s.small_from[i] = {y < h.small && x < w.small ? y * w.small + x : -1,
                       position / 4 * p.plane_words + position % 4};
  }
}

/// A plane of big into its slot, `channels` of which exist. Several elements of 8 channels each are on their
/// way at once.
__device__ __forceinline__ void bring_plane(const Plan& p, const Shared& s, const float* from, bool exists,
                                            int channels, uint32_t* to, int thread) {
  constexpr int at_once = 3;
  int entry = thread, octet = 0;
  const auto settle = [&] {
    while (entry >= p.big_entries) entry -= p.big_entries, ++octet;
  };
  settle();
  while (octet < p.octets) {
    float values[at_once][8];
    int places[at_once];
#pragma unroll
    for (int j = 0; j < at_once; ++j) {
      const bool some = octet < p.octets;
      const Entry e = some ? s.big_from[entry] : Entry{-1, -1};
      places[j] = e.to < 0 ? -1 : e.to + octet * 8 * p.channel_pitch;
      const int live = exists && e.from >= 0 && e.to >= 0 ? channels - octet * 8 : 0;
      const float* element = from + octet * 8 * p.big_cells + e.from;
#pragma unroll
      for (int c = 0; c < 8; ++c) {
        values[j][c] = c < live ? __ldg(element) : 0.0f;
        element += p.big_cells;
      }
      entry += producing_threads;
      settle();
    }
#pragma unroll
    for (int j = 0; j < at_once; ++j) {
      if (places[j] < 0) continue;
#pragma unroll
      for (int c = 0; c < 8; ++c) to[places[j] + c * p.channel_pitch] = ptx::to_tf32(values[j][c]);
    }
  }
}

/// A tile of small, 4 channels of an entry at a time.
template <class Element>  // float4: entries are 4 positions
__device__ __forceinline__ void bring_tile(const Plan& p, const Shared& s, const float* from, int channels,
                                           uint32_t* to, int thread) {
  constexpr bool quads = std::is_same_v<Element, float4>;
  constexpr int at_once = quads ? 1 : 4;
  const int entries = p.small_entries / (quads ? 4 : 1);
  int entry = thread, group = 0;
  const auto settle = [&] {
    while (entry >= entries) entry -= entries, ++group;
  };
  settle();
  while (group < p.columns / 4) {
    Element values[at_once][4];
    int places[at_once];
#pragma unroll
    for (int j = 0; j < at_once; ++j) {
      const bool some = group < p.columns / 4;
      const Entry e = some ? s.small_from[entry] : Entry{-1, -1};
      places[j] = some ? e.to + group * 16 : -1;
      const int live = e.from >= 0 ? channels - group * 4 : 0;
      const float* element = from + group * 4 * p.small_cells + e.from;
#pragma unroll
      for (int c = 0; c < 4; ++c) {
        values[j][c] = Element{};
        if (c < live) values[j][c] = __ldg(reinterpret_cast<const Element*>(element));
        element += p.small_cells;
      }
      entry += producing_threads;
      settle();
    }
#pragma unroll
    for (int j = 0; j < at_once; ++j) {
      if (places[j] < 0) continue;
#pragma unroll
      for (int c = 0; c < 4; ++c) {
        uint32_t* const place = to + places[j] + c * 4;
        if constexpr (quads) {
          const float4 v = values[j][c];
          *reinterpret_cast<uint4*>(place) =
              make_uint4(ptx::to_tf32(v.x), ptx::to_tf32(v.y), ptx::to_tf32(v.z), ptx::to_tf32(v.w));
        } else {
          *place = ptx::to_tf32(values[j][c]);
        }
      }
    }
  }
}

__device__ __forceinline__ void produce(const Plan& p, const Shared& s, const Slice& slice, const float* big,
                                        const float* small, bool quads, int64_t begin, int steps) {
  const int thread = threadIdx.x - consumers * group_threads;
  const PhasedAxis& depth = p.axis[0];
  const int64_t small_plane = int64_t{p.axis[1].small} * p.axis[2].small;
  const int64_t big_plane = int64_t{p.axis[1].big} * p.axis[2].big;
  const int tile_words = p.small_entries / 4 * p.plane_words;
  const int big_channels = p.big_per_group - slice.first_octet * 8;
  const int small_channels = p.small_per_group - slice.first_column;

  // The octet of rows whose place this thread computes: its tap, and all of its place but for the slot.
  int octet_phase = 0, octet_plane = 0, octet_place = 0;
  if (thread < p.products * 8) {
    const int octet = min(thread, p.octets_in_slice() - 1), channels = octet / p.slice_taps;
    const int tap = min(slice.first_tap + octet % p.slice_taps, p.taps - 1);
    const int taps[3]{tap / (p.axis[1].kernel * p.axis[2].kernel), tap / p.axis[2].kernel % p.axis[1].kernel,
                      tap % p.axis[2].kernel};
    int phase[3], shift[3];
#pragma unroll
    for (int i = 0; i < 3; ++i) {
      const PhasedAxis& a = p.axis[i];
      const int t = taps[i] * a.dilation - a.padding;
      const int r = (t % a.stride + a.stride) % a.stride;
      phase[i] = 0;
      while (a.residue[phase[i]] != r) ++phase[i];
      shift[i] = (t - r) / a.stride - a.first[phase[i]];
    }
    octet_phase = phase[0], octet_plane = shift[0];
    octet_place = channels * 8 * p.channel_pitch +
                  (p.axis[1].offset[phase[1]] + shift[1]) * p.axis[2].extent + p.axis[2].offset[phase[2]] +
                  shift[2];
  }
  // Slots of a phase along the depth: that of its `plane`-th in this step.
  const auto slot = [&](int phase, int plane, int step) {
    return depth.offset[phase] + (step + plane) % (depth.span[phase] + 1);
  };

  int64_t i = begin / depth.small;  // column
  int d = static_cast<int>(begin % depth.small);
  Column column{};
  for (int step = 0; step < steps; ++step) {
    const int buffer = step % 2;
    const bool fresh = step == 0 || d == 0;
    if (fresh) {
      column = column_of(p, i);
      ptx::sync_some<1, producing_threads>();  // all are done with the lists
      list_big(p, s, column, thread);
      list_small(p, s, column, quads, thread);
      ptx::sync_some<1, producing_threads>();
    }
    if (step >= 2) ptx::mbarrier_wait(s.empty[buffer], (step / 2 - 1) % 2);

    if (thread < p.products * 8)
      s.octets[buffer * p.products * 8 + thread] =
          slot(octet_phase, octet_plane, step) * p.slot_words + octet_place;
    if (thread == 0) {
      const int width = min(p.axis[2].tile, p.axis[2].small - column.w), pairs = (width + 15) / 16;
      s.extents[buffer] = {min(p.axis[1].tile, p.axis[1].small - column.h), pairs, width - (pairs - 1) * 16};
    }
    const float* const from_big =
        big + ((int64_t{column.image} * p.groups + slice.group) * p.big_per_group + slice.first_octet * 8) *
                  p.big_cells;
    const auto bring = [&](int phase, int plane) {
      const int z = (d + depth.first[phase] + plane) * depth.stride + depth.residue[phase];
      bring_plane(p, s, from_big + z * big_plane, within(z, depth.big), big_channels,
                  s.big + slot(phase, plane, step) * p.slot_words, thread);
    };
    for (int phase = 0; phase < depth.phases; ++phase) bring(phase, depth.span[phase] - 1);
    const float* const from_small =
        small +
        ((int64_t{column.image} * p.groups + slice.group) * p.small_per_group + slice.first_column) *
            p.small_cells +
        d * small_plane;
    if (quads)
      bring_tile<float4>(p, s, from_small, small_channels, s.small + buffer * tile_words, thread);
    else
      bring_tile<float>(p, s, from_small, small_channels, s.small + buffer * tile_words, thread);
    if (fresh && p.deep) {  // the other planes' slots may be in use by the step before
      if (step >= 1) ptx::mbarrier_wait(s.empty[1 - buffer], (step - 1) / 2 % 2);
      for (int phase = 0; phase < depth.phases; ++phase)
        for (int plane = 0; plane + 1 < depth.span[phase]; ++plane) bring(phase, plane);
    }
    ptx::fence_proxy_async();
    ptx::mbarrier_arrive(s.full[buffer]);
    if (++d == depth.small) d = 0, ++i;
  }
}

#endif

// ---- Kernels ----------------------------------------------------------------------------------------------

/// One slice and slab for a block; the first warpgroup makes `count` products, the second as many or one
/// fewer.
template <int columns, int count>
__global__ void __launch_bounds__(block_threads, 1)
    partial_kernel(const float* __restrict__ big, const float* __restrict__ small, float* partials,
                   bool quads, const __grid_constant__ Plan p) {
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
  if (warpgroup >= consumers) {
    ptx::shrink_registers_to<56>();
    produce(p, s, slice_of(p, blockIdx.x % p.slices), big, small, quads, begin, steps);
  } else {
    ptx::grow_registers_to<200>();
    float* const to = partials + blockIdx.x * p.slice_floats();
    if (warpgroup == 0)
      consume<columns, count>(p, s, 0, steps, to);
    else if (p.products == 2 * count)
      consume<columns, count>(p, s, count, steps, to);
    else if constexpr (count > 1)
      consume<columns, count - 1>(p, s, count, steps, to);
    else
      for (int step = 0; step < steps; ++step) {  // keeps pace
        ptx::mbarrier_wait(s.full[step % 2], step / 2 % 2);
        ptx::mbarrier_arrive(s.empty[step % 2]);
      }
  }
#endif
}

/// Adds the slabs in order. A thread owns one accumulator of one thread of partial_kernel.
__global__ void __launch_bounds__(256)
    add_slabs_kernel(const float* partials, float* dweight, const __grid_constant__ Plan p) {
  const int64_t each = p.slice_floats(), all = p.slices * each;
  for (int64_t i = int64_t{blockIdx.x} * blockDim.x + threadIdx.x; i < all;
       i += int64_t{gridDim.x} * blockDim.x) {
    const int at = static_cast<int>(i % each), thread = at % group_threads, lane = thread % 32;
    const int accumulator = at / group_threads % (p.columns / 2),
              product = at / group_threads / (p.columns / 2);
    const Slice slice = slice_of(p, i / each);
    const int octet = (product * 4 + thread / 32) * 2 + accumulator / 2 % 2;
    const int tap = slice.first_tap + octet % p.slice_taps;
    const int b = (slice.first_octet + octet / p.slice_taps) * 8 + lane / 4;
    const int column = slice.first_column + accumulator / 4 * 8 + lane % 4 * 2 + accumulator % 2;
    if (octet >= p.octets_in_slice() || tap >= p.taps || b >= p.big_per_group || column >= p.small_per_group)
      continue;
    float sum = 0;
#pragma unroll 8
    for (int64_t slab = 0; slab < p.slabs; ++slab) sum += partials[slab * all + i];
    dweight[((int64_t{slice.group} * p.small_per_group + column) * p.big_per_group + b) * p.taps + tap] = sum;
  }
}

// ---- Launchers --------------------------------------------------------------------------------------------

template <int columns, int count>
void launch_partial(const Launch& launch, const Tensor& big, const Tensor& small, Tensor& partials,
                    const Plan& p) {
  const auto* const from = detail::ptr<float>(small);
  const bool quads = p.axis[2].small % 4 == 0 && reinterpret_cast<uintptr_t>(from) % 16 == 0;
  launch.check(cudaFuncSetAttribute(partial_kernel<columns, count>,
                                    cudaFuncAttributeMaxDynamicSharedMemorySize, p.shared_bytes));
  partial_kernel<columns, count>
      <<<static_cast<unsigned>(p.slices * p.slabs), block_threads, static_cast<size_t>(p.shared_bytes),
         launch.stream()>>>(detail::ptr<float>(big), from, detail::mutable_ptr<float>(partials), quads, p);
}

template <int columns, int... counts>
void launch_partial_by_count(std::integer_sequence<int, counts...>, const Launch& launch, const Tensor& big,
                             const Tensor& small, Tensor& partials, const Plan& p) {
  (void)((p.first_products == counts &&
          (launch_partial<columns, counts>(launch, big, small, partials, p), true)) ||
         ...);
}

}  // namespace

void conv3d_weight_grad_wgmma(const Tensor& big, const Tensor& small, Tensor& dweight, Tensor& dbias,
                              Grid bias_of, Conv3dGeometry g) {
  const Plan p = *weight_grad_plan(g);
  Tensor partials = empty({p.slabs * p.slices * p.slice_floats()}, dweight.options());
  const Launch launch("conv3d_weight_grad", dweight, {&big, &small, &partials});
  visit_channel_tiles(p.small_per_group, [&](auto tiles) {
    constexpr int columns = 8 * tiles;
    using Counts = std::conditional_t<
        columns <= 24, std::integer_sequence<int, 1, 4, 7>,
        std::conditional_t<columns == 32, std::integer_sequence<int, 1, 4, 5, 7>,
                           std::conditional_t<columns == 48, std::integer_sequence<int, 1, 4, 6>,
                                              std::integer_sequence<int, 1, 3, 4>>>>;
    launch_partial_by_count<columns>(Counts{}, launch, big, small, partials, p);
  });
  add_slabs_kernel<<<grid_for(p.slices * p.slice_floats(), 256), 256, 0, launch.stream()>>>(
      detail::ptr<float>(partials), detail::mutable_ptr<float>(dweight), p);
  launch.check();
  if (dbias.defined()) conv3d_bias_grad(bias_of == Grid::big ? big : small, dbias);
}

}  // namespace vox::cuda
