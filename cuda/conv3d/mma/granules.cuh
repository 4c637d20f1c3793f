#pragma once

// Copies of tensors in granules, 16 bytes of channels of a cell: an octet of channels of 16 bits, or half of
// one of 32 bits. A granule of all cells of all images is followed by the next one. So neighbouring cells are
// neighbours in memory, whatever the number of channels, and any cell is 16 bytes that `cp.async` can fetch.
//
// f32 that becomes scaled f16 (F16OfF32) is read twice, first for its range. The copy has the numbers of the
// first band (Note [Bands] in bands.cuh), and zeros in place of others. The largest of 8 channels decides for
// all of them.

#include <voxgrad/core/tensor.h>
#include <voxgrad/cuda/conv3d/common/integers.h>
#include <voxgrad/cuda/conv3d/model/machine.h>
#include <voxgrad/cuda/runtime/launch.h>
#include <voxgrad/cuda/conv3d/common/bands.cuh>
#include <voxgrad/cuda/conv3d/common/operands.cuh>
#include <voxgrad/cuda/conv3d/common/scale.cuh>

#include <algorithm>
#include <cstdint>
#include <optional>
#include <type_traits>

namespace vox::cuda::conv::mma {

/// f32 as it is: kernels split it later (bands.cuh). The pass finds out the range of sizes.
struct Whole {
  using Element = uint32_t;
  static __device__ __forceinline__ Element part(float x) { return __float_as_uint(x); }
};
/// The range without a copy.
struct Sizes : Whole {};

/// A copy, as kernels see it.
struct Granules {
  const uint4* data;
  int cells;  ///< of all images and groups: from a granule of a cell to the next one
};

/// The kernel argument of a pass that makes a copy, rounded to an operand; zeros follow the channels.
/// Channels in groups are a batch of batch x groups samples. A block copies a part of the cells of an octet.
template <class Storage>
struct GranulesPass {
  const Storage* x;  ///< (samples, channels, cells)
  uint4* to;
  const float* largest;  ///< of each channel of all groups, for ScaledF16 (scale.cuh)
  SizeRange* range;      ///< for Whole and F16OfF32
  int groups, channels;
  int cells;          ///< of all samples
  Divisor of_sample;  ///< its cells
  int octet_blocks, blocks;
};

constexpr int copy_threads = 256;

/// What a thread of a block does. Returns the range of its numbers, for Whole and Sizes.
template <class Operand, class Storage>
__device__ __forceinline__ SizeRange copy_cells(const GranulesPass<Storage>& p, int block) {
  constexpr bool scaled = std::is_same_v<Operand, ScaledF16>, banded = std::is_same_v<Operand, F16OfF32>;
  constexpr int granules = sizeof(typename Operand::Element) / 2;  // of an octet
  const int octet = block / p.octet_blocks, channels = p.channels - octet * 8;
  const int64_t cells = p.of_sample.divisor;
  const Bands bands(banded ? p.range->largest : 0);
  const bool one_band = !banded || bands.count(*p.range) == 1;
  SizeRange sizes{};
  float scale[8] = {};
  int scale_of = -1;  // a sample
  for (int64_t place = int64_t{block - octet * p.octet_blocks} * copy_threads + threadIdx.x; place < p.cells;
       place += int64_t{p.octet_blocks} * copy_threads) {
    const int sample = p.of_sample.quotient(narrow(place));
    if (scaled && sample != scale_of) {
      const float* const largest = p.largest + sample % p.groups * p.channels + octet * 8;
#pragma unroll
      for (int c = 0; c < 8; ++c) scale[c] = c < channels ? ScaledF16::scale_for(largest[c]) : 0;
      scale_of = sample;
    }
    const Storage* const from = p.x + (int64_t{sample} * (p.channels - 1) + octet * 8) * cells + place;
    Storage x[8];
#pragma unroll
    for (int c = 0; c < 8; ++c) x[c] = c < channels ? from[c * cells] : Storage(0.0f);
    if constexpr (sizeof(Storage) == 4) {
      unsigned most = 0;  // of the finite numbers
#pragma unroll
      for (const float value : x) add_finite(most, value);
      if (most > 0) sizes = {max(sizes.largest, most), max(sizes.not_least, ~most)};
      const bool in_band = one_band || most == 0 || bands.of(most) == 0;
#pragma unroll
      for (int c = 0; c < 8; ++c)
        x[c] = in_band ? x[c] * (scaled ? scale[c] : banded ? bands.scale(0) : 1) : 0;
    }
    alignas(16) typename Operand::Element of_octet[8];
#pragma unroll
    for (int c = 0; c < 8; ++c) of_octet[c] = element_of<Operand>(x[c]);
    if constexpr (std::is_same_v<Operand, Sizes>) continue;
    uint4* const to = p.to + int64_t{octet} * granules * p.cells + place;
#pragma unroll
    for (int i = 0; i < granules; ++i) to[i * int64_t{p.cells}] = reinterpret_cast<const uint4*>(of_octet)[i];
  }
  return sizes;
}

__device__ __forceinline__ void add_sizes(SizeRange* range, const SizeRange& sizes) {
  const SizeRange of_warp{__reduce_max_sync(0xffffffff, sizes.largest),
                          __reduce_max_sync(0xffffffff, sizes.not_least)};
  // A stale value only costs an instruction more.
  if (threadIdx.x % 32 == 0 && of_warp.largest > range->largest) atomicMax(&range->largest, of_warp.largest);
  if (threadIdx.x % 32 == 0 && of_warp.not_least > range->not_least)
    atomicMax(&range->not_least, of_warp.not_least);
}

/// One pass or two. Nothing if *only_if is 0.
template <class Operand, class Storage>
__global__ void __launch_bounds__(copy_threads)
    granules_kernel(const __grid_constant__ GranulesPass<Storage> a,
                    const __grid_constant__ GranulesPass<Storage> b, const int64_t* only_if) {
  if (only_if && *only_if == 0) return;
  for (int64_t block = blockIdx.x; block < int64_t{a.blocks} + b.blocks; block += gridDim.x) {
    const auto& pass = block < a.blocks ? a : b;
    const SizeRange sizes = copy_cells<Operand>(pass, narrow(block < a.blocks ? block : block - a.blocks));
    if constexpr (std::is_base_of_v<Whole, Operand>) add_sizes(pass.range, sizes);
  }
}

/// A block of a grid must start to find out that it has nothing to do, so with `only_if` there are few.
inline unsigned blocks_if(const int64_t* only_if, int64_t blocks) {
  return static_cast<unsigned>(std::min<int64_t>(blocks, only_if ? 2048 : most_int));
}

/// A copy in memory of the launch. Plans see to it that numbers of its granules fit 31 bits.
template <class Operand, class Storage_ = std::conditional_t<std::is_same_v<Operand, ScaledF16> ||
                                                                 std::is_same_v<Operand, Whole>,
                                                             float, typename Operand::Element>>
class GranulesCopy {
  static constexpr bool banded = std::is_same_v<Operand, F16OfF32>,
                        ranged = banded || std::is_same_v<Operand, Whole>;

 public:
  using Storage = Storage_;

  /// Its memory; make() fills it.
  GranulesCopy(const Launch& launch, const Tensor& x, int64_t groups)
      : pass_(pass_of(x, groups)),
        memory_(launch, int64_t{pass_.cells} * ceil_div(pass_.channels, 8) * 8 *
                            int64_t{sizeof(typename Operand::Element)}) {
    pass_.to = memory_.template as<uint4>();
    if constexpr (std::is_same_v<Operand, ScaledF16>) pass_.largest = largest_.emplace(launch, x).get();
    if constexpr (ranged) {
      pass_.range = range_.emplace(launch, int64_t{sizeof(SizeRange)}).template as<SizeRange>();
      launch.check(cudaMemsetAsync(pass_.range, 0, sizeof(SizeRange), launch.stream()));
    }
  }
  static void make(const Launch& launch, const GranulesCopy& a, const GranulesCopy& b) {
    make(launch, a.pass_, b.pass_, nullptr);
  }
  void make(const Launch& launch, const int64_t* only_if) const { make(launch, pass_, {}, only_if); }

  Granules granules() const { return {pass_.to, pass_.cells}; }
  const float* largest() const { return pass_.largest; }
  const SizeRange* range() const { return pass_.range; }

 private:
  using Pass = GranulesPass<Storage>;
  static Pass pass_of(const Tensor& x, int64_t groups) {
    const int64_t samples = x.size(0) * groups, channels = x.size(1) / groups,
                  cells = x.size(2) * x.size(3) * x.size(4);
    Pass p{.x = vox::detail::ptr<Storage>(x), .groups = narrow(groups), .channels = narrow(channels)};
    p.cells = narrow(samples * cells), p.of_sample = divisor_of(cells);
    // A thread has some cells, unless that leaves few blocks.
    constexpr int thread_cells = 4, many_blocks = 2048;
    const int octets = narrow(ceil_div(channels, 8)), most = ceil_div(p.cells, copy_threads);
    p.octet_blocks = std::max(ceil_div(most, thread_cells), std::min(most, ceil_div(many_blocks, octets)));
    p.blocks = octets * p.octet_blocks;
    return p;
  }
  static void make(const Launch& launch, const Pass& a, const Pass& b, const int64_t* only_if) {
    const unsigned blocks = blocks_if(only_if, int64_t{a.blocks} + b.blocks);
    if constexpr (banded) granules_kernel<Sizes><<<blocks, copy_threads, 0, launch.stream()>>>(a, b, only_if);
    granules_kernel<Operand><<<blocks, copy_threads, 0, launch.stream()>>>(a, b, only_if);
    launch.check();
  }

  Pass pass_;
  Workspace memory_;
  std::optional<Largest> largest_;
  std::optional<Workspace> range_;
};

}  // namespace vox::cuda::conv::mma
