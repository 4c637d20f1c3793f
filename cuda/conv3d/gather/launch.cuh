#pragma once

// Launches kernel.cuh. Each .cu file of this folder includes this file and instantiates one kind of operands,
// so that they compile in parallel.

#include <voxgrad/cuda/conv3d/call.h>
#include <voxgrad/cuda/conv3d/common/hopper.h>
#include <voxgrad/cuda/conv3d/common/integers.h>
#include <voxgrad/cuda/conv3d/common/recent.h>
#include <voxgrad/cuda/conv3d/common/pack.cuh>
#include <voxgrad/cuda/conv3d/gather/kernel.cuh>

namespace vox::cuda::conv::gather {

/// Packs weights as they lie in a stage: [group and block of channels][slab][tap along d][part][tap along h
/// and w] [granule of 4 k][channel][4 numbers]. blockIdx is (tap along h and w, tap along d, all before
/// them).
template <class Block>
__global__ void __launch_bounds__(128)
    pack_kernel(const float* weight, uint32_t* packed, const __grid_constant__ Plan p) {
  constexpr int channels = Block::channels, numel = channels * slab, parts = Block::split ? 2 : 1;
  const int block = blockIdx.z / p.slabs, in0 = blockIdx.z % p.slabs * slab;
  const int group = block / p.channel_blocks, out0 = block % p.channel_blocks * channels;
  const int tap = blockIdx.y * p.taps + blockIdx.x, all_taps = p.d.kernel * p.taps;
  uint32_t* const to =
      packed + ((int64_t{blockIdx.z} * p.d.kernel + blockIdx.y) * parts * p.taps + blockIdx.x) * numel;
  for (int i = threadIdx.x; i < numel; i += blockDim.x) {
    const int in = in0 + channel_of(i / (channels * 4) * 4 + i % 4, p.neighbours),
              out = out0 + i / 4 % channels;
    float value = 0;
    if (in < p.in_per_group && out < p.out_per_group)
      value = weight[weight_row(p, p.transposed, group, in, out) * all_taps +
                     (p.transposed ? all_taps - 1 - tap : tap)];
    to[i] = tf32_high(value);
    if constexpr (Block::split) to[i + p.taps * numel] = tf32_low(value, tf32_high(value));
  }
}

/// Calls f with the Block of a tile.
template <bool split, class F>
void visit_block(const TileShape& tile, F f) {
  const auto one = [&]<int channels, int slots, int tiles>() {
    if constexpr (has_kernel({channels, slots, tiles, split}))
      if (tile == TileShape{channels, slots, tiles, split}) f(Block<channels, slots, tiles, split>{});
  };
  const auto of_channels = [&]<int channels>() {
    one.template operator()<channels, 1, 1>();
    one.template operator()<channels, 1, 2>();
    one.template operator()<channels, 2, 1>();
    one.template operator()<channels, 2, 2>();
    one.template operator()<channels, 3, 1>();
    one.template operator()<channels, 3, 2>();
  };
  of_channels.template operator()<16>();
  of_channels.template operator()<32>();
  of_channels.template operator()<48>();
  of_channels.template operator()<64>();
}

template <class Operand>
constexpr bool is_split = Operand::parts > 1;

template <class Operand>
bool takes(const Conv3dGeometry& g, bool transposed) {
  return recall<make_plan>(g, transposed, is_split<Operand>, h200_multiprocessors).has_value();
}

template <class Operand>
void run(const Conv3dCall& call) {
  constexpr bool split = is_split<Operand>;
  const auto& [transposed, input, weight, bias, output, g, only_if, failed_tensor] = call;
  const Launch launch(call.op(), output, {&input, &weight, &bias, &failed_tensor});
  const auto& [tile, p] = *recall<make_plan>(g, transposed, split, multiprocessors(launch));
  int64_t* const failed = split ? vox::detail::mutable_ptr<int64_t>(failed_tensor) : nullptr;
  visit_block<split>(tile, [&](auto block) {
    using Block = decltype(block);
    const auto columns = static_cast<unsigned>(p.groups * p.channel_blocks);
    const Workspace packed(launch, int64_t{columns} * p.slabs * p.d.kernel * p.slot_weights);
    pack_kernel<Block>
        <<<dim3(static_cast<unsigned>(p.taps), static_cast<unsigned>(p.d.kernel),
                columns * static_cast<unsigned>(p.slabs)),
           128, 0, launch.stream()>>>(vox::detail::ptr<float>(weight), packed.as<uint32_t>(), p);
    launch.allow_shared_memory<product_kernel<Block>>(p.shared_bytes);
    product_kernel<Block><<<dim3(static_cast<unsigned>(p.blocks), columns), block_threads,
                            static_cast<size_t>(p.shared_bytes), launch.stream()>>>(
        vox::detail::ptr<float>(input), packed.as<unsigned char>(), vox::detail::ptr_or_null<float>(bias),
        vox::detail::mutable_ptr<float>(output), failed, p);
    launch.check();
  });
}

}  // namespace vox::cuda::conv::gather
