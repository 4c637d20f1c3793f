#pragma once

// Launches kernel.cuh. Each .cu file of this folder includes this file and instantiates one kind of operands,
// so that they compile in parallel.

#include <voxgrad/cuda/conv3d/common/hopper.h>
#include <voxgrad/cuda/conv3d/common/integers.h>
#include <voxgrad/cuda/conv3d/common/recent.h>
#include <voxgrad/cuda/conv3d/mma/mma.h>
#include <voxgrad/cuda/conv3d/mma/plan.h>
#include <voxgrad/cuda/conv3d/common/channels_last.cuh>
#include <voxgrad/cuda/conv3d/common/pack.cuh>
#include <voxgrad/cuda/conv3d/common/splits.cuh>
#include <voxgrad/cuda/conv3d/mma/kernel.cuh>

#include <algorithm>

namespace vox::cuda::conv::mma {

// ---- Operands ---------------------------------------------------------------------------------------------

/// Weights as they lie in a stage (common/pack.cuh): [group and block of columns][k-block][tap][granule]
/// [part][column][16 bytes]. Taps run fastest, which are neighbours in memory.
template <int channels_>
struct Layout {
  int groups, column_blocks, k_blocks, taps, k_granules, columns, item_bytes;

  static constexpr int channels = channels_;
  int64_t granules() const {
    return int64_t{groups} * column_blocks * k_blocks * taps * k_granules * columns;
  }
  constexpr int64_t next_part() const { return columns * 16; }
  constexpr Granule at(auto number) const {
    const auto [group, block, k_block, granule, column, tap] =
        digits(number, {column_blocks, k_blocks, k_granules, columns, taps});
    const int64_t stage = (int64_t{group} * column_blocks + block) * k_blocks + k_block;
    return {.group = group,
            .in = (k_block * k_granules + granule) * channels,
            .out = block * columns + column,
            .tap = tap,
            .to = ((stage * taps + tap) * k_granules + granule) * item_bytes + column * 16};
  }
};

/// How the input is copied: rounded, or as it is if it is split later.
struct Whole {
  using Element = uint32_t;
  static __device__ __forceinline__ Element part(float x) { return __float_as_uint(x); }
};
template <class Operand>
using Copied = std::conditional_t<(Operand::weight_parts > 1), Whole, Operand>;

template <class Storage, class Operand>
__global__ void __launch_bounds__(tile_threads)
    channels_last_kernel(const Storage* __restrict__ x, uint32_t* to, const __grid_constant__ ChannelsLast p,
                         const int64_t* only_if) {
  if (only_if && *only_if == 0) return;
  for (int block = static_cast<int>(blockIdx.x); block < p.blocks; block += static_cast<int>(gridDim.x)) {
    channels_last_tile<Storage, Operand>(x, to, p, block);
    __syncthreads();  // its shared memory has been read
  }
}

// ---- The launch -------------------------------------------------------------------------------------------

/// Calls f with the Block of a tile.
template <class Storage, class Operand, class F>
void visit_block(const TileShape& tile, F f) {
  [&]<size_t... i>(std::index_sequence<i...>) {
    const auto one = [&]<TileShape shape>() {
      if constexpr (has_kernel(shape, Operand::weight_parts > 1))
        if (tile == shape) f(Block<Storage, Operand, shape.m_tiles, shape.n_tiles>{});
    };
    (one.template operator()<tile_shapes[i]>(), ...);
  }
  (std::make_index_sequence<std::size(tile_shapes)>{});
}

/// What sum_splits does with a sum.
template <class Storage>
struct StoreSum {
  Output<Storage> output;
  int channels;
  int64_t cells;

  __device__ void operator()(int64_t i, double sum) const {
    output.template store<1>(i, static_cast<int>(i / cells % channels), {static_cast<float>(sum)});
  }
};

/// The convolution, in three launches: the input with its channels last, packed weights, the product. With
/// splits a fourth one adds up partial sums.
template <class Storage, class Operand>
void run(const Conv3dCall& call) {
  using Element = typename Operand::Element;
  constexpr bool split = Operand::weight_parts > 1;
  constexpr OperandKind kind{sizeof(Element), Operand::weight_parts};
  const auto& [transposed, input, weight, bias, result, g, if_tensor, failed_tensor] = call;
  const Launch launch(call.op(), result, {&input, &weight, &bias, &if_tensor, &failed_tensor});
  const int64_t* const only_if = vox::detail::ptr_or_null<int64_t>(if_tensor);
  // Each block must start to find out that it has nothing to do, so they are few; and nothing may follow.
  const auto blocks = [&](int count) {
    return static_cast<unsigned>(only_if ? std::min(count, 2048) : count);
  };
  const auto& planned = recall<make_plan>(g, transposed, kind, only_if == nullptr, this_machine());
  Plan p = planned->plan;

  const Storage* const from = vox::detail::ptr<Storage>(input);
  const int64_t samples = int64_t{p.batch} * p.groups, cells = transposed ? g.small_cells() : g.big_cells();
  const Workspace last(launch, channels_last_bytes<Copied<Operand>>(samples, p.in_per_group, cells));
  const auto pass = channels_last<Storage, Copied<Operand>>(from, samples, p.in_per_group, cells);
  channels_last_kernel<Storage, Copied<Operand>>
      <<<blocks(pass.blocks), tile_threads, 0, launch.stream()>>>(from, last.as<uint32_t>(), pass, only_if);

  const Layout<16 / sizeof(Element)> layout{p.groups,     p.column_blocks, p.k_blocks,  p.taps,
                                            p.k_granules, p.columns,       p.item_bytes};
  const Workspace packed(launch, packed_bytes<Operand>(layout));
  pack_weights<Operand>(launch, vox::detail::ptr<Storage>(weight), packed.as<void>(),
                        weights_of(g, transposed), layout, nullptr, only_if);

  Storage* const to = vox::detail::mutable_ptr<Storage>(result);
  const int64_t outputs = result.numel();
  const Workspace partials(launch, p.splits > 1 ? outputs * p.splits * int64_t{sizeof(float)} : 0);
  const Output<Storage> output{vox::detail::ptr_or_null<Storage>(bias), to,
                               split ? vox::detail::mutable_ptr<int64_t>(failed_tensor) : nullptr};
  p.quads &= p.splits > 1 || is_packet_aligned<Storage, 4>(to);
  visit_block<Storage, Operand>(planned->tile, [&](auto block) {
    using Block = decltype(block);
    launch.allow_shared_memory<product_kernel<Block>>(p.shared_bytes);
    product_kernel<Block><<<blocks(p.blocks), TileShape::threads, p.shared_bytes, launch.stream()>>>(
        {last.as<uint4>(), packed.as<unsigned char>()}, output, partials.as<float>(), outputs, p, only_if);
  });
  if (p.splits > 1) {
    const int channels = p.groups * p.out_per_group;
    sum_splits(launch, partials.as<float>(), outputs, p.splits,
               StoreSum<Storage>{output, channels, outputs / (int64_t{p.batch} * channels)});
  }
  launch.check();
}

}  // namespace vox::cuda::conv::mma
