#include <voxgrad/cuda/conv3d/dense/operands.cuh>
#include <voxgrad/cuda/conv3d/dense/scale.cuh>

namespace vox::cuda::conv::dense {

namespace {

// A block transposes a tile of 64 cells x 32 words through shared memory; a word is 4 bytes of channels. Both
// sides move 16 bytes at a time. Rows of the tile are 33 words apart, so the reads of a warp touch every bank
// once.
constexpr int tile_cells = 64, tile_words = 32, threads = 256;

/// One or two channels of a cell as the tensor cores read them.
template <class Operand, class Storage>
__device__ __forceinline__ uint32_t
word_of(const Storage (&of_channel)[4 / sizeof(typename Operand::Element)]) {
  using Element = typename Operand::Element;
  const auto part = [](Storage x) {
    if constexpr (std::is_same_v<Storage, Element>)
      return x;  // its bits, of a NaN too
    else
      return Operand::part(static_cast<float>(x));
  };
  if constexpr (sizeof(Element) == 4) {
    return part(of_channel[0]);
  } else {
    const Element low = part(of_channel[0]), high = part(of_channel[1]);
    return uint32_t{low.bits} | uint32_t{high.bits} << 16;
  }
}

/// blockIdx is (tile of cells, tile of channels, sample). `aligned`: x and the cells of a channel are
/// multiples of 16 bytes.
template <class Storage, class Operand>
__global__ void __launch_bounds__(threads)
    channels_last_kernel(const Storage* __restrict__ x, uint32_t* __restrict__ to, int channels, int words,
                         int64_t cells, int cell_tiles, bool aligned, const float* largest) {
  constexpr int per_word = 4 / sizeof(typename Operand::Element), run = 16 / sizeof(Storage);
  __shared__ uint32_t tile[tile_cells][tile_words + 1];
  const int64_t sample = blockIdx.x / cell_tiles, cell0 = int64_t{blockIdx.x % cell_tiles} * tile_cells;
  const int word0 = blockIdx.y * tile_words;

  // A thread loads runs of cells of the channels of a word.
#pragma unroll
  for (int i = threadIdx.x; i < tile_cells / run * tile_words; i += threads) {
    const int at = i % (tile_cells / run) * run, word = i / (tile_cells / run);
    const int64_t left = cells - cell0 - at;
    alignas(16) Storage value[per_word][run];
#pragma unroll
    for (int c = 0; c < per_word; ++c) {
      const int channel = (word0 + word) * per_word + c;
      const Storage* const from = x + (sample * channels + channel) * cells + cell0 + at;
      if (channel < channels && aligned && left >= run) {
        *reinterpret_cast<uint4*>(value[c]) = __ldg(reinterpret_cast<const uint4*>(from));
      } else {
#pragma unroll
        for (int j = 0; j < run; ++j) value[c][j] = channel < channels && j < left ? from[j] : Storage(0.0f);
      }
    }
    if constexpr (std::is_same_v<Operand, ScaledF16>) {
#pragma unroll
      for (int c = 0; c < per_word; ++c) {
        const int channel = (word0 + word) * per_word + c;
        const float scale = channel < channels ? ScaledF16::scale_for(largest[channel]) : 0;
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
  for (int i = threadIdx.x; i < tile_cells * tile_words / 4; i += threads) {
    const int cell = i / (tile_words / 4), word = i % (tile_words / 4) * 4;
    if (cell0 + cell >= cells || word0 + word >= words) continue;  // a row has a multiple of 4 words
    const uint32_t* const from = &tile[cell][word];
    *reinterpret_cast<uint4*>(to + (sample * cells + cell0 + cell) * words + word0 + word) =
        make_uint4(from[0], from[1], from[2], from[3]);
  }
}

}  // namespace

template <class Storage, class Operand>
void to_channels_last(const Launch& launch, const Storage* x, int64_t batch, int64_t channels, int64_t cells,
                      typename Operand::Element* to, const float* largest) {
  const int64_t words = padded_channels<Operand>(channels) * int64_t{sizeof(*to)} / 4;
  const int64_t cell_tiles = ceil_div(cells, tile_cells);
  const bool aligned = cells * int64_t{sizeof(Storage)} % 16 == 0 && reinterpret_cast<uintptr_t>(x) % 16 == 0;
  channels_last_kernel<Storage, Operand>
      <<<dim3(static_cast<unsigned>(batch * cell_tiles), static_cast<unsigned>(ceil_div(words, tile_words))),
         threads, 0, launch.stream()>>>(x, reinterpret_cast<uint32_t*>(to), narrow(channels), narrow(words),
                                        cells, narrow(cell_tiles), aligned, largest);
  launch.check();
}

template void to_channels_last<float, Tf32>(const Launch&, const float*, int64_t, int64_t, int64_t, uint32_t*,
                                            const float*);
template void to_channels_last<float, Bf16>(const Launch&, const float*, int64_t, int64_t, int64_t, bfloat16*,
                                            const float*);
template void to_channels_last<bfloat16, Bf16>(const Launch&, const bfloat16*, int64_t, int64_t, int64_t,
                                               bfloat16*, const float*);
template void to_channels_last<float16, F16>(const Launch&, const float16*, int64_t, int64_t, int64_t,
                                             float16*, const float*);
template void to_channels_last<float, ScaledF16>(const Launch&, const float*, int64_t, int64_t, int64_t,
                                                 float16*, const float*);

}  // namespace vox::cuda::conv::dense
