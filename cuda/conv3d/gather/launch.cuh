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

/// Weights as they lie in a stage: [group and block of channels][k-block][tap along d][part][tap along h and
/// w][granule of 4 k][channel][4 numbers].
template <class Block>
struct Layout {
  Plan p;

  static constexpr int channels = 4;
  static constexpr int tap_bytes = k_block_channels * Block::channels * 4;
  int64_t granules() const {
    return int64_t{p.groups} * p.channel_blocks * p.k_blocks * p.d.kernel * p.taps * (tap_bytes / 16);
  }
  constexpr int channel(int c) const { return channel_of(c, p.neighbours); }
  constexpr int64_t next_part() const { return p.taps * tap_bytes; }
  constexpr Granule at(auto number) const {
    const auto [group, block, s, d, tap, granule, column] =
        digits(number, {p.channel_blocks, p.k_blocks, p.d.kernel, p.taps, 2, Block::channels});
    const int64_t of_d = ((int64_t{group} * p.channel_blocks + block) * p.k_blocks + s) * p.d.kernel + d;
    const int in_kernel = d * p.taps + tap;
    return {.group = group,
            .in = s * k_block_channels + channel_of(granule * 4, p.neighbours),
            .out = block * Block::channels + column,
            .tap = p.transposed ? p.d.kernel * p.taps - 1 - in_kernel : in_kernel,
            .to = (of_d * (Block::split ? 2 : 1) * p.taps + tap) * tap_bytes +
                  (granule * Block::channels + column) * 16};
  }
};

/// Calls f with the Block of a tile.
template <bool split, int number = 0, class F>
void visit_block(const TileShape& tile, F f) {
  if constexpr (number < tile_shapes) {
    constexpr TileShape t = tile_shape(number);
    if constexpr (t.split == split && has_kernel(t))
      if (tile == t) return f(Block<t.channels, t.slots, t.tiles, split>{});
    visit_block<split, number + 1>(tile, f);
  }
}

template <class Operand>
constexpr bool is_split = Operand::parts > 1;

template <class Operand>
void run(const Conv3dCall& call) {
  constexpr bool split = is_split<Operand>;
  const auto& [transposed, input, weight, bias, output, g, only_if, failed_tensor] = call;
  const Launch launch(call.op(), output, {&input, &weight, &bias, &failed_tensor});
  const auto& [tile, p] = *recall<make_plan>(g, transposed, split, machine_of(launch));
  int64_t* const failed = split ? vox::detail::mutable_ptr<int64_t>(failed_tensor) : nullptr;
  visit_block<split>(tile, [&](auto block) {
    using Block = decltype(block);
    const auto columns = static_cast<unsigned>(p.groups * p.channel_blocks);
    const Layout<Block> layout{p};
    const Workspace packed(launch, packed_bytes<Operand>(layout));
    pack_weights<Operand>(launch, vox::detail::ptr<float>(weight), packed.as<unsigned char>(),
                          weights_of(g, transposed), layout);
    launch.allow_shared_memory<product_kernel<Block>>(p.shared_bytes);
    product_kernel<Block><<<dim3(static_cast<unsigned>(p.blocks), columns), block_threads,
                            static_cast<size_t>(p.shared_bytes), launch.stream()>>>(
        vox::detail::ptr<float>(input), packed.as<unsigned char>(), vox::detail::ptr_or_null<float>(bias),
        vox::detail::mutable_ptr<float>(output), failed, p);
    launch.check();
  });
}

}  // namespace vox::cuda::conv::gather
