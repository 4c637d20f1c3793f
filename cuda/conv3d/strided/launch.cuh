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

/// Packs weights as they lie in a stage: [group and block of
/// channels][kind][slab][item][k-step][granule][channel] [16 bytes]. In wide form channels are rows of an
/// instruction: of every 16 rows, eight are eight channels at the first phase along w, and eight the same
/// channels at the second. blockIdx is (item, slab, group and block of channels).
template <class Block>
__global__ void __launch_bounds__(128)
    pack_kernel(const typename Block::Storage* weight, unsigned char* packed, const __grid_constant__ Plan p,
                const __grid_constant__ ItemTaps taps) {
  using Operand = typename Block::Operand;
  using Element = typename Operand::Element;
  constexpr int rows = Block::weight_rows, granule = Block::granule;
  const int number = blockIdx.x, slab = blockIdx.y;
  const int group = blockIdx.z / p.channel_blocks, channel_block = blockIdx.z % p.channel_blocks;
  int k = 0;
  while (number >= p.kind[k].first[most_slots]) ++k;
  Element* const to =
      reinterpret_cast<Element*>(packed + int64_t{blockIdx.z} * p.block_weights + p.kind[k].weights +
                                 int64_t{slab} * p.kind[k].stage_weights + p.item[number].weights * 16);
  const int all_taps = p.d.kernel * p.h.kernel * p.w.kernel;
  for (int i = threadIdx.x; i < p.k_steps * rows * granule * 2; i += blockDim.x) {
    const int in = slab * p.k_steps * granule * 2 + i / (rows * granule) * granule + i % granule;
    const int row = i / granule % rows;
    const int channel = Block::wide ? wide_channel(row / 8, row % 8) : row;
    const int out = channel_block * Block::channels + channel;
    const int tap = Block::wide && row % 16 >= 8 ? taps.second[number] : taps.of[number];
    float value = 0;
    if (in < p.in_per_group && out < p.out_per_group && tap != no_tap)
      value = static_cast<float>(weight[weight_row(p, p.transposed, group, in, out) * all_taps + tap]);
    to[i] = Operand::part(value);
  }
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
  visit_tile_shape<2>(t, [&]<int channels, int slots, int tiles>() {
    if constexpr (slots == 1)
      if (t.form == Form::runs) return f(Block<Storage, Operand, channels, slots, tiles, Form::runs>{});
    f(Block<Storage, Operand, channels, slots, tiles>{});
  });
}

template <class Storage, class Operand>
constexpr Bytes bytes_of{sizeof(typename Operand::Element), sizeof(Storage)};

template <class Storage, class Operand>
bool takes(const Conv3dGeometry& g, bool transposed) {
  return recall<make_plan>(g, transposed, tile_for(g, transposed, bytes_of<Storage, Operand>)).has_value();
}

template <class Storage, class Operand>
void run(const Conv3dCall& call) {
  const auto& [transposed, input, weight, bias, output, g, only_if, failed] = call;
  const TileShape tile = tile_for(g, transposed, bytes_of<Storage, Operand>);
  const auto& planned = recall<make_plan>(g, transposed, tile);
  const Plan& p = planned->plan;
  visit_tile<Storage, Operand>(tile, [&](auto block) {
    using Block = decltype(block);
    const int64_t blocks = int64_t{p.groups} * p.channel_blocks;
    const Launch launch(call.op(), output, {&input, &weight, &bias});
    const Workspace packed(launch, blocks * p.block_weights);
    auto* const to = packed.as<unsigned char>();
    const int last = p.kinds - 1;
    const int items = last < 0 ? 0 : p.kind[last].first[most_slots];
    if (items > 0)
      pack_kernel<Block>
          <<<dim3(static_cast<unsigned>(items), static_cast<unsigned>(p.slabs),
                  static_cast<unsigned>(blocks)),
             128, 0, launch.stream()>>>(vox::detail::ptr<Storage>(weight), to, p, planned->taps);
    launch.allow_shared_memory<product_kernel<Block>>(p.shared_bytes);
    const int columns = p.groups * p.channel_blocks;
    const int all_tiles = p.batch * p.depth_blocks * p.plane_tiles;
    const int in_parallel = std::clamp(multiprocessors(launch) / columns, 1, all_tiles);
    product_kernel<Block><<<dim3(static_cast<unsigned>(in_parallel), static_cast<unsigned>(columns)),
                            block_threads, p.shared_bytes, launch.stream()>>>(
        Operands<Block>{vox::detail::ptr<Storage>(input), vox::detail::ptr<Storage>(weight),
                        vox::detail::ptr_or_null<Storage>(bias)},
        to, vox::detail::mutable_ptr<Storage>(output), p);
    launch.check();
  });
}

}  // namespace vox::cuda::conv::strided
