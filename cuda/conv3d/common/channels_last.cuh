#pragma once

// Tensors with their channels last, as tensor cores read them. Everything that has rows of contiguous
// channels can be loaded and multiplied as it lies, at any tap.

#include <voxgrad/core/tensor.h>
#include <voxgrad/cuda/conv3d/common/integers.h>
#include <voxgrad/cuda/conv3d/model/machine.h>
#include <voxgrad/cuda/runtime/launch.h>
#include <voxgrad/cuda/conv3d/common/bands.cuh>
#include <voxgrad/cuda/conv3d/common/operands.cuh>
#include <voxgrad/cuda/conv3d/common/scale.cuh>
#include <voxgrad/cuda/runtime/dependent.cuh>

#include <algorithm>
#include <cstdint>
#include <optional>
#include <type_traits>

namespace vox::cuda::conv {

/// A channel count, rounded up so that a cell's channels begin at a multiple of 32 bytes, a sector. (TMA
/// needs 16, but then `dense` takes 1.5 times as long: NOTES.md.)
template <class Operand>
constexpr int64_t padded_channels(int64_t channels) {
  constexpr int64_t of_sector = 32 / sizeof(typename Operand::Element);
  return ceil_div(channels, of_sector) * of_sector;
}

/// Bytes of a tensor with its channels last.
template <class Operand>
constexpr int64_t channels_last_bytes(int64_t batch, int64_t channels, int64_t cells) {
  return batch * cells * padded_channels<Operand>(channels) *
         static_cast<int64_t>(sizeof(typename Operand::Element));
}

// A block transposes a tile of 64 cells x 32 words through shared memory; a word is 4 bytes of channels. Both
// sides move 16 bytes at a time. Rows of the tile are 33 words apart, so the reads of a warp touch every bank
// once.
constexpr int tile_cells = 64, tile_words = 32, tile_threads = 256;

/// f32 as it is: kernels split it later (bands.cuh). Its copy finds out the range of sizes.
struct Whole {
  using Element = uint32_t;
  static __device__ __forceinline__ Element part(float x) { return __float_as_uint(x); }
};

/// One or two channels of a cell as the tensor cores read them.
template <class Operand, class Storage>
__device__ __forceinline__ uint32_t
word_of(const Storage (&of_channel)[4 / sizeof(typename Operand::Element)]) {
  using Element = typename Operand::Element;
  const auto element = [](Storage x) {
    if constexpr (std::is_same_v<Storage, Element>)
      return x;  // its bits, of a NaN too
    else
      return Operand::part(static_cast<float>(x));
  };
  if constexpr (sizeof(Element) == 4) {
    return element(of_channel[0]);
  } else {
    const Element low = element(of_channel[0]), high = element(of_channel[1]);
    return uint32_t{low.bits} | uint32_t{high.bits} << 16;
  }
}

/// The kernel argument of a pass that writes x (batch, channels, cells) as (batch, cells, padded_channels),
/// rounded to the operand; zeros follow the channels. Channels in groups are a batch of batch x groups. The
/// result is aligned to 16 bytes.
struct ChannelsLast {
  int groups, channels, words;  ///< channels of a cell in a group, and the words that hold them
  int64_t cells;                ///< of a sample
  int cell_tiles, word_tiles, blocks;
  bool aligned;  ///< x and the cells of a channel are multiples of 16 bytes
};

/// Adds four channels of a cell; the neighbouring lane has four more.
__device__ __forceinline__ void add_sizes(SizeRange& sizes, const uint32_t* words) {
  unsigned most = 0;
#pragma unroll
  for (int i = 0; i < 4; ++i)
    if (const unsigned size = words[i] & 0x7fffffff; size < 0x7f800000) most = max(most, size);
  sizes.largest = max(sizes.largest, most);
  most = max(most, __shfl_xor_sync(0xffffffff, most, 1));
  if (most > 0) sizes.not_least = max(sizes.not_least, ~most);
}

/// What a block does. `largest`: of each channel of all groups, for ScaledF16 (scale.cuh); `range` for Whole.
template <class Storage, class Operand>
__device__ __forceinline__ void channels_last_tile(const Storage* __restrict__ x, uint32_t* __restrict__ to,
                                                   const ChannelsLast& p, int block,
                                                   const float* largest = nullptr,
                                                   SizeRange* range = nullptr) {
  constexpr int per_word = 4 / sizeof(typename Operand::Element), run = 16 / sizeof(Storage);
  __shared__ uint32_t tile[tile_cells][tile_words + 1];
  const int word0 = block % p.word_tiles * tile_words;
  block /= p.word_tiles;
  const int64_t cell0 = int64_t{block % p.cell_tiles} * tile_cells, sample = block / p.cell_tiles;

  // A thread loads runs of cells of the channels of a word.
#pragma unroll
  for (int i = threadIdx.x; i < tile_cells / run * tile_words; i += tile_threads) {
    const int at = i % (tile_cells / run) * run, word = i / (tile_cells / run);
    const int64_t left = p.cells - cell0 - at;
    alignas(16) Storage value[per_word][run];
#pragma unroll
    for (int c = 0; c < per_word; ++c) {
      const int channel = (word0 + word) * per_word + c;
      const Storage* const from = x + (sample * p.channels + channel) * p.cells + cell0 + at;
      if (channel < p.channels && p.aligned && left >= run) {
        *reinterpret_cast<uint4*>(value[c]) = __ldg(reinterpret_cast<const uint4*>(from));
      } else {
#pragma unroll
        for (int j = 0; j < run; ++j)
          value[c][j] = channel < p.channels && j < left ? from[j] : Storage(0.0f);
      }
      if constexpr (std::is_same_v<Operand, ScaledF16>) {
        const int64_t of_all = sample % p.groups * p.channels + channel;
        const float scale = channel < p.channels ? ScaledF16::scale_for(largest[of_all]) : 0;
#pragma unroll
        for (int j = 0; j < run; ++j) value[c][j] *= scale;
      }
    }
#pragma unroll
    for (int j = 0; j < run; ++j) {
      Storage of_channel[per_word];
#pragma unroll
      for (int c = 0; c < per_word; ++c) of_channel[c] = value[c][j];
      tile[at + j][word] = word_of<Operand>(of_channel);
    }
  }
  __syncthreads();
  SizeRange sizes{};
#pragma unroll
  for (int i = threadIdx.x; i < tile_cells * tile_words / 4; i += tile_threads) {
    const int cell = i / (tile_words / 4), word = i % (tile_words / 4) * 4;
    const uint32_t* const from = &tile[cell][word];
    if constexpr (std::is_same_v<Operand, Whole>) add_sizes(sizes, from);
    if (cell0 + cell >= p.cells || word0 + word >= p.words) continue;  // a row has a multiple of 8 words
    *reinterpret_cast<uint4*>(to + (sample * p.cells + cell0 + cell) * p.words + word0 + word) =
        make_uint4(from[0], from[1], from[2], from[3]);
  }
  if constexpr (std::is_same_v<Operand, Whole>) {
    sizes = {__reduce_max_sync(0xffffffff, sizes.largest), __reduce_max_sync(0xffffffff, sizes.not_least)};
    // A stale value only costs an instruction more.
    if (threadIdx.x % 32 == 0 && sizes.largest > range->largest) atomicMax(&range->largest, sizes.largest);
    if (threadIdx.x % 32 == 0 && sizes.not_least > range->not_least)
      atomicMax(&range->not_least, sizes.not_least);
  }
}

/// `batch` counts samples of so many channels: those of each group apart.
template <class Storage, class Operand>
ChannelsLast channels_last(const Storage* x, int64_t batch, int64_t channels, int64_t cells,
                           int64_t groups = 1) {
  ChannelsLast p{};
  p.groups = narrow(groups), p.channels = narrow(channels);
  p.words = narrow(padded_channels<Operand>(channels) * int64_t{sizeof(typename Operand::Element)} / 4);
  p.cells = cells;
  p.cell_tiles = narrow(ceil_div(cells, tile_cells));
  p.word_tiles = ceil_div(p.words, tile_words);
  p.blocks = narrow(batch * p.cell_tiles * p.word_tiles);
  p.aligned = cells * int64_t{sizeof(Storage)} % 16 == 0 && reinterpret_cast<uintptr_t>(x) % 16 == 0;
  return p;
}

// ---- Copies as passes of their own ------------------------------------------------------------------------

/// A pass, as a kernel argument.
template <class Storage>
struct ChannelsLastPass {
  const Storage* x;
  uint32_t* to;
  const float* largest;
  SizeRange* range;
  ChannelsLast p;
};

/// One pass, or two: by the first blocks and by the others. Nothing if *only_if is 0.
template <class Storage, class Operand>
__global__ void __launch_bounds__(tile_threads)
    channels_last_kernel(const __grid_constant__ ChannelsLastPass<Storage> a,
                         const __grid_constant__ ChannelsLastPass<Storage> b, const int64_t* only_if) {
  ptx::let_next_kernel_start();
  if (only_if && *only_if == 0) return;
  for (int64_t block = blockIdx.x; block < int64_t{a.p.blocks} + b.p.blocks; block += gridDim.x) {
    if (block < a.p.blocks)
      channels_last_tile<Storage, Operand>(a.x, a.to, a.p, narrow(block), a.largest, a.range);
    else
      channels_last_tile<Storage, Operand>(b.x, b.to, b.p, narrow(block - a.p.blocks), b.largest, b.range);
    __syncthreads();  // its shared memory has been read
  }
}

/// A block of a grid must start to find out that it has nothing to do, so with `only_if` there are few.
inline unsigned blocks_if(const int64_t* only_if, int64_t blocks) {
  return static_cast<unsigned>(std::min<int64_t>(blocks, only_if ? 2048 : most_int));
}

/// A channels-last copy of an operand whose channels are in groups, in memory of the launch.
template <class Operand, class Storage_ = std::conditional_t<std::is_same_v<Operand, ScaledF16> ||
                                                                 std::is_same_v<Operand, Whole>,
                                                             float, typename Operand::Element>>
class ChannelsLastCopy {
 public:
  using Storage = Storage_;

  /// Its memory; make() fills it.
  ChannelsLastCopy(const Launch& launch, const Tensor& x, int64_t groups = 1)
      : cells_(channels_last<Storage, Operand>(vox::detail::ptr<Storage>(x), x.size(0) * groups,
                                               x.size(1) / groups, x.size(2) * x.size(3) * x.size(4),
                                               groups)),
        memory_(launch, channels_last_bytes<Operand>(x.size(0) * groups, x.size(1) / groups, cells_.cells)),
        pass_{vox::detail::ptr<Storage>(x), as<uint32_t>(), nullptr, nullptr, cells_} {
    if constexpr (std::is_same_v<Operand, ScaledF16>) pass_.largest = largest_.emplace(launch, x).get();
    if constexpr (std::is_same_v<Operand, Whole>) {
      pass_.range = range_.emplace(launch, int64_t{sizeof(SizeRange)}).template as<SizeRange>();
      launch.check(cudaMemsetAsync(pass_.range, 0, sizeof(SizeRange), launch.stream()));
    }
  }
  static void make(const Launch& launch, const ChannelsLastCopy& a, const ChannelsLastCopy& b) {
    make(launch, a.pass_, b.pass_, nullptr);
  }
  void make(const Launch& launch, const int64_t* only_if) const { make(launch, pass_, {}, only_if); }

  template <class T>
  T* as() const {
    return memory_.template as<T>();
  }
  int cell_bytes() const { return cells_.words * 4; }
  const float* largest() const { return pass_.largest; }
  const SizeRange* range() const { return pass_.range; }

 private:
  using Pass = ChannelsLastPass<Storage>;
  static void make(const Launch& launch, const Pass& a, const Pass& b, const int64_t* only_if) {
    channels_last_kernel<Storage, Operand>
        <<<blocks_if(only_if, int64_t{a.p.blocks} + b.p.blocks), tile_threads, 0, launch.stream()>>>(a, b,
                                                                                                     only_if);
    launch.check();
  }

  ChannelsLast cells_;
  Workspace memory_;
  std::optional<Largest> largest_;
  std::optional<Workspace> range_;
  Pass pass_;
};

}  // namespace vox::cuda::conv
