#pragma once

// Launches kernel.cuh. Each .cu file of this folder includes this file and instantiates one kind of operands,
// so that they compile in parallel.

#include <voxgrad/cuda/conv3d/call.h>
#include <voxgrad/cuda/conv3d/common/hopper.h>
#include <voxgrad/cuda/conv3d/common/recent.h>
#include <voxgrad/cuda/conv3d/common/pack.cuh>
#include <voxgrad/cuda/conv3d/strided/kernel.cuh>

#include <algorithm>

namespace vox::cuda::conv::strided {

/// Weights as they lie in a stage (common/pack.cuh): [group and block of
/// channels][kind][k-block][item][k-step] [granule][channel]. In wide form channels are rows of an
/// instruction: of every 16 rows, eight are eight channels at the first phase along w, and eight the same
/// channels at the second.
template <class Block>
struct Layout {
  Plan p;
  ItemTaps taps;

  static constexpr int channels = Block::granule, rows = Block::weight_rows;
  int64_t granules() const {
    return int64_t{p.groups} * p.channel_blocks * p.k_blocks * p.items() * p.k_steps * 2 * rows;
  }
  constexpr Granule at(auto number) const {
    const auto [group, block, k_block, item, granule, row] =
        digits(number, {p.channel_blocks, p.k_blocks, p.items(), p.k_steps * 2, rows});
    const bool second = Block::wide && row % 16 >= 8;
    const int channel = Block::wide ? wide_channel(row / 8, row % 8) : row;
    const uint16_t tap = second ? taps.second[item] : taps.of[item];
    return {.group = group,
            .in = (k_block * p.k_steps * 2 + granule) * channels,
            .out = block * Block::channels + channel,
            .tap = tap == no_tap ? Granule::no_tap : tap,
            .to = p.weights_at(group, block, k_block, item) + (granule * rows + row) * 16};
  }
};

/// Launches a kernel with blocks for each block of channels, which take its tiles in turn.
template <auto* kernel, class... Arguments>
void launch_blocks(const Launch& launch, const Plan& p, const Arguments&... arguments) {
  const int columns = p.groups * p.channel_blocks,
            in_parallel = std::clamp(multiprocessors(launch) / columns, 1, p.tiles());
  launch.allow_shared_memory<kernel>(p.shared_bytes);
  kernel<<<dim3(static_cast<unsigned>(in_parallel), static_cast<unsigned>(columns)), block_threads,
           p.shared_bytes, launch.stream()>>>(arguments...);
  launch.check();
}

/// Calls `f` with the Block of a tile.
template <class Storage, class Operand, class F>
void visit_tile(const TileShape& t, F f) {
  if (t.form == Form::wide) {
    if (t.slots == 4)
      f(Block<Storage, Operand, 32, 4, 1, Form::wide>{});
    else
      f(Block<Storage, Operand, 32, 2, 2, Form::wide>{});
    return;
  }
  visit_tile_shape<2>(
      t, [&]<int channels, int slots, int tiles>() { f(Block<Storage, Operand, channels, slots, tiles>{}); });
}

template <class Storage, class Operand>
constexpr Bytes bytes_of{sizeof(typename Operand::Element), sizeof(Storage)};

template <class Storage, class Operand>
void run(const Conv3dCall& call) {
  const auto& [transposed, input, weight, bias, output, g, only_if, failed] = call;
  const auto& planned = recall<make_tiled_plan>(g, transposed, bytes_of<Storage, Operand>);
  const Plan& p = planned->plan;
  visit_tile<Storage, Operand>(planned->tile, [&](auto block) {
    using Block = decltype(block);
    const Launch launch(call.op(), output, {&input, &weight, &bias});
    const Workspace packed(launch, int64_t{p.groups} * p.channel_blocks * p.block_weights);
    auto* const to = packed.as<unsigned char>();
    if (p.items() > 0)
      pack_weights<Operand>(launch, vox::detail::ptr<Storage>(weight), to, weights_of(g, transposed),
                            Layout<Block>{p, planned->taps});
    const Operands<Block> from{vox::detail::ptr<Storage>(input), vox::detail::ptr<Storage>(weight),
                               vox::detail::ptr_or_null<Storage>(bias)};
    launch_blocks<product_kernel<Block>>(launch, p, from, to, vox::detail::mutable_ptr<Storage>(output), p);
  });
}

}  // namespace vox::cuda::conv::strided
