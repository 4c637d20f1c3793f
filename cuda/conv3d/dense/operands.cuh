#pragma once

// Tensors with their channels last, as tensor cores read them. Everything that has rows of contiguous
// channels can be brought by the copy engine and multiplied as it lies, at any tap.

#include <voxgrad/cuda/conv3d/common/integers.h>
#include <voxgrad/cuda/runtime/launch.h>
#include <voxgrad/cuda/conv3d/common/operands.cuh>

#include <cstdint>

namespace vox::cuda::conv::dense {

/// A channel count, rounded up so that a cell's channels begin at a multiple of 16 bytes.
template <class Operand>
constexpr int64_t padded_channels(int64_t channels) {
  constexpr int64_t granule = 16 / sizeof(typename Operand::Element);
  return ceil_div(channels, granule) * granule;
}

/// Bytes of the result of to_channels_last.
template <class Operand>
constexpr int64_t channels_last_bytes(int64_t batch, int64_t channels, int64_t cells) {
  return batch * cells * padded_channels<Operand>(channels) *
         static_cast<int64_t>(sizeof(typename Operand::Element));
}

/// x (batch, channels, cells) as (batch, cells, padded_channels), rounded to the operand; zeros follow the
/// channels. Channels in groups are a batch of batch x groups. `to` is aligned to 16 bytes. `largest`: of
/// each channel, for ScaledF16 (scale.cuh).
template <class Storage, class Operand>
void to_channels_last(const Launch& launch, const Storage* x, int64_t batch, int64_t channels, int64_t cells,
                      typename Operand::Element* to, const float* largest = nullptr);

}  // namespace vox::cuda::conv::dense
