#pragma once

// Tensors with their channels last, as tensor cores read them. Everything that has rows of contiguous
// channels can be loaded and multiplied as it lies, at any tap.

#include <voxgrad/core/tensor.h>
#include <voxgrad/cuda/conv3d/common/integers.h>
#include <voxgrad/cuda/conv3d/model/machine.h>
#include <voxgrad/cuda/runtime/launch.h>
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

/// One or two channels of a cell as the tensor cores read them.
template <class Operand, class Storage>
__device__ __forceinline__ uint32_t
word_of(const Storage (&of_channel)[4 / sizeof(typename Operand::Element)]) {
  using Element = typename Operand::Element;
  if constexpr (sizeof(Element) == 4) {
    return element_of<Operand>(of_channel[0]);
  } else {
    const Element low = element_of<Operand>(of_channel[0]), high = element_of<Operand>(of_channel[1]);
    return uint32_t{low.bits} | uint32_t{high.bits} << 16;
  }
}

/// The kernel argument of a pass that writes x (batch, channels, cells) as (batch, cells, padded_channels),
/// rounded to the operand; zeros follow the channels. Channels in groups are a batch of batch x groups. The
/// result is aligned to 16 bytes.
template <class Storage>
struct ChannelsLast {
  const Storage* x;
  uint32_t* to;
  const float* largest;  ///< of each channel, for ScaledF16 (scale.cuh), which has one group
  int channels, words;   ///< channels of a cell in a group, and the words that hold them
  int64_t cells;         ///< of a sample
  int cell_tiles, word_tiles, blocks;
  bool aligned;  ///< x and the cells of a channel are multiples of 16 bytes
};

/// What a block does.
template <class Operand, class Storage>
__device__ __forceinline__ void channels_last_tile(const ChannelsLast<Storage>& p, int block) {
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
      const Storage* const from = p.x + (sample * p.channels + channel) * p.cells + cell0 + at;
      if (channel < p.channels && p.aligned && left >= run) {
        *reinterpret_cast<uint4*>(value[c]) = __ldg(reinterpret_cast<const uint4*>(from));
      } else {
#pragma unroll
        for (int j = 0; j < run; ++j)
          value[c][j] = channel < p.channels && j < left ? from[j] : Storage(0.0f);
      }
      if constexpr (std::is_same_v<Operand, ScaledF16>) {
        const float scale = channel < p.channels ? ScaledF16::scale_for(p.largest[channel]) : 0;
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
#pragma unroll
  for (int i = threadIdx.x; i < tile_cells * tile_words / 4; i += tile_threads) {
    const int cell = i / (tile_words / 4), word = i % (tile_words / 4) * 4;
    const uint32_t* const from = &tile[cell][word];
    if (cell0 + cell >= p.cells || word0 + word >= p.words) continue;  // a row has a multiple of 8 words
    *reinterpret_cast<uint4*>(p.to + (sample * p.cells + cell0 + cell) * p.words + word0 + word) =
        make_uint4(from[0], from[1], from[2], from[3]);
  }
}

/// Without its destination. `batch` counts samples of so many channels: those of each group apart.
template <class Operand, class Storage>
ChannelsLast<Storage> channels_last(const Storage* x, int64_t batch, int64_t channels, int64_t cells) {
  ChannelsLast<Storage> p{x};
  p.channels = narrow(channels);
  p.words = narrow(padded_channels<Operand>(channels) * int64_t{sizeof(typename Operand::Element)} / 4);
  p.cells = cells;
  p.cell_tiles = narrow(ceil_div(cells, tile_cells));
  p.word_tiles = ceil_div(p.words, tile_words);
  p.blocks = narrow(batch * p.cell_tiles * p.word_tiles);
  p.aligned = cells * int64_t{sizeof(Storage)} % 16 == 0 && reinterpret_cast<uintptr_t>(x) % 16 == 0;
  return p;
}

// ---- Copies as passes of their own ------------------------------------------------------------------------

/// Two passes: by the first blocks and by the others.
template <class Operand, class Storage>
__global__ void __launch_bounds__(tile_threads)
    channels_last_kernel(const __grid_constant__ ChannelsLast<Storage> a,
                         const __grid_constant__ ChannelsLast<Storage> b) {
  ptx::let_next_kernel_start();
  const unsigned block = blockIdx.x, of_a = static_cast<unsigned>(a.blocks);
  if (block < of_a)
    channels_last_tile<Operand>(a, static_cast<int>(block));
  else
    channels_last_tile<Operand>(b, static_cast<int>(block - of_a));
}

/// A channels-last copy, in memory of the launch.
template <class Operand>
class ChannelsLastCopy {
 public:
  using Storage = std::conditional_t<std::is_same_v<Operand, ScaledF16>, float, typename Operand::Element>;

  /// Its memory; make() fills it.
  ChannelsLastCopy(const Launch& launch, const Tensor& x)
      : pass_(channels_last<Operand>(vox::detail::ptr<Storage>(x), x.size(0), x.size(1),
                                     x.size(2) * x.size(3) * x.size(4))),
        memory_(launch, channels_last_bytes<Operand>(x.size(0), x.size(1), pass_.cells)) {
    pass_.to = as<uint32_t>();
    if constexpr (std::is_same_v<Operand, ScaledF16>) pass_.largest = largest_.emplace(launch, x).get();
  }
  static void make(const Launch& launch, const ChannelsLastCopy& a, const ChannelsLastCopy& b) {
    const unsigned blocks = static_cast<unsigned>(a.pass_.blocks) + static_cast<unsigned>(b.pass_.blocks);
    channels_last_kernel<Operand><<<blocks, tile_threads, 0, launch.stream()>>>(a.pass_, b.pass_);
    launch.check();
  }

  template <class T>
  T* as() const {
    return memory_.template as<T>();
  }
  const float* largest() const { return pass_.largest; }

 private:
  ChannelsLast<Storage> pass_;
  Workspace memory_;
  std::optional<Largest> largest_;
};

}  // namespace vox::cuda::conv
