#pragma once

// Results of strided_wgmma.cuh that are not finite, computed anew by the definition: the products of
// StridedForm::wide multiply some of the input by zeros in the place of taps that a phase does not have.

#include <voxgrad/cuda/conv3d/strided_wgmma_shared.cuh>
#include <voxgrad/cuda/conv3d/weight_row.cuh>

#include <type_traits>

namespace vox::cuda::strided {

/// The input's index that tap k reads for an output, or -1.
__device__ __forceinline__ int read_by(int out, int k, const StridedAxis& axis) {
  const int fine = out + axis.padding - k * axis.dilation;
  return fine >= 0 && fine % axis.stride == 0 && fine / axis.stride < axis.in ? fine / axis.stride : -1;
}

/// The element (d, h, w) of an output channel, `out` of its group. `input` is that of the group in the image.
template <class Block>
__device__ __forceinline__ float defined(const typename Block::Storage* input, int group, int out, int d,
                                         int h, int w, float bias, const Operands<Block>& from,
                                         const StridedPlan& p) {
  const int all_taps = p.d.kernel * p.h.kernel * p.w.kernel;
  float sum = bias;
#pragma unroll 1
  for (int tap = 0; tap < all_taps; ++tap) {
    const int in_d = read_by(d, tap / (p.h.kernel * p.w.kernel), p.d),
              in_h = read_by(h, tap / p.w.kernel % p.h.kernel, p.h), in_w = read_by(w, tap % p.w.kernel, p.w);
    if (in_d < 0 || in_h < 0 || in_w < 0) continue;
    const auto* cell = input + (int64_t{in_d} * p.h.in + in_h) * p.w.in + in_w;
#pragma unroll 1
    for (int c = 0; c < p.in_per_group; ++c, cell += p.in_channel)
      sum = fmaf(static_cast<float>(*cell),
                 static_cast<float>(from.weight[weight_row(p, true, group, c, out) * all_taps + tap]), sum);
  }
  return sum;
}

/// What a warp has written and is not finite, of cells from `position` on.
template <class Block>
__device__ __forceinline__ void mend(int position, int depth, int image, const Columns& columns,
                                     int row_block, const float* bias, const Operands<Block>& from,
                                     typename Block::Storage* output, const StridedPlan& p) {
  using Storage = typename Block::Storage;
  using Bits = std::conditional_t<sizeof(Storage) == 4, uint32_t, uint16_t>;
  // The exponent's bits.
  constexpr Bits not_finite = static_cast<Bits>(sizeof(Storage) == 4                ? 0x7f800000
                                                : std::is_same_v<Storage, bfloat16> ? 0x7f80
                                                                                    : 0x7c00);
  constexpr int elements = 2 * Block::columns;  // of a channel, in one pair of phases
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32 % 4;
  const int image_group = image * p.groups + columns.group;
  __syncwarp();  // other lanes' stores
#pragma unroll 1
  for (int number = row_block * Block::rows; number < min((row_block + 1) * Block::rows, p.rows); ++number) {
    const int d = depth + p.row[number].d;
#pragma unroll 1
    for (int i = lane; i < 8 * elements; i += 32) {
      const int in_block = wide_channel(2 * warp, i / elements),
                out = columns.channel_block * Block::channels + in_block;
      const Place at = place_of(position + i % elements / 2, p);
      const int h = at.row * p.h.out_step + p.row[number].h, w = 2 * at.column - p.origin_w + i % 2;
      if (out >= p.out_per_group || d >= p.d.out || h >= p.h.out || w < 0 || w >= p.w.out) continue;
      Storage* const to = output + (int64_t{image_group} * p.out_per_group + out) * p.out_channel +
                          (int64_t{d} * p.h.out + h) * p.w.out + w;
      if ((*reinterpret_cast<volatile Bits*>(to) & not_finite) != not_finite) continue;
      *to = Storage(defined<Block>(from.input + int64_t{image_group} * p.in_per_group * p.in_channel,
                                   columns.group, out, d, h, w, bias[in_block], from, p));
    }
  }
}

}  // namespace vox::cuda::strided
