#pragma once

// Launches kernel.cuh. Each .cu file of this folder includes this file and instantiates one kind of operands,
// so that they compile in parallel.

#include <voxgrad/cuda/conv3d/call.h>
#include <voxgrad/cuda/conv3d/common/hopper.h>
#include <voxgrad/cuda/conv3d/common/integers.h>
#include <voxgrad/cuda/conv3d/common/recent.h>
#include <voxgrad/cuda/conv3d/mma/plan.h>
#include <voxgrad/cuda/conv3d/common/pack.cuh>
#include <voxgrad/cuda/conv3d/common/splits.cuh>
#include <voxgrad/cuda/conv3d/mma/granules.cuh>
#include <voxgrad/cuda/conv3d/mma/kernel.cuh>

#include <algorithm>

namespace vox::cuda::conv::mma {

// ---- Operands ---------------------------------------------------------------------------------------------

/// Weights as they lie in a stage (common/pack.cuh): [group and block of columns][k-block][tap][item of the
/// tap] [part][column][16 bytes]. Taps run fastest, which are neighbours in memory; of scaled columns,
/// columns do.
template <class Operand>
struct Layout {
  int groups, column_blocks, k_blocks, taps, k_items, block_columns, item_bytes;

  static constexpr int channels = 16 / sizeof(typename Operand::Element);
  int64_t columns() const { return int64_t{groups} * column_blocks * block_columns; }
  int64_t granules() const { return columns() * k_blocks * taps * k_items; }
  constexpr int64_t next_part() const { return block_columns * 16; }
  constexpr Granule at(auto number) const {
    if constexpr (scales_columns<Operand>) {
      const auto [k_block, item, tap, group, block, column] =
          digits(number, {k_items, taps, groups, column_blocks, block_columns});
      return granule(group, block, k_block, item, column, tap);
    } else {
      const auto [group, block, k_block, item, column, tap] =
          digits(number, {column_blocks, k_blocks, k_items, block_columns, taps});
      return granule(group, block, k_block, item, column, tap);
    }
  }
  constexpr Granule granule(int group, int block, int k_block, int item, int column, int tap) const {
    const int64_t stage = (int64_t{group} * column_blocks + block) * k_blocks + k_block;
    return {.group = group,
            .in = (k_block * k_items + item) * channels,
            .out = block * block_columns + column,
            .tap = tap,
            .to = ((stage * taps + tap) * k_items + item) * item_bytes + column * 16};
  }
};

// ---- The launch -------------------------------------------------------------------------------------------

/// Calls f with the Block of a tile.
template <class Storage, class Operand, class F>
void visit_block(const TileShape& tile, F f) {
  [&]<size_t... i>(std::index_sequence<i...>) {
    const auto one = [&]<TileShape shape>() {
      if constexpr (has_kernel(shape, Operand::weight_parts))
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
    const float value = static_cast<float>(sum) + output.bias_of(i / cells % channels);
    output.check(value);
    output.output[i] = Storage(value);
  }
};

/// The convolution: the copy of the input, packed weights, the product; with splits, the sum of partial sums.
template <class Storage, class Operand>
void run(const Conv3dCall& call) {
  constexpr bool banded = scales_columns<Operand>;
  constexpr int parts = Operand::weight_parts;
  const auto& [transposed, input, weight, bias, result, g, if_tensor, failed_tensor] = call;
  const Launch launch(call.op(), result, {&input, &weight, &bias, &if_tensor, &failed_tensor});
  const int64_t* const only_if = vox::detail::ptr_or_null<int64_t>(if_tensor);
  // With only_if no sums of splits may follow.
  const auto& planned = recall<make_plan>(g, transposed, parts, only_if == nullptr, this_machine());
  Plan p = planned->plan;

  const GranulesCopy<std::conditional_t<parts == 2, Whole, Operand>, Storage> copy(launch, input, p.groups);
  copy.make(launch, only_if);

  const Layout<Operand> layout{p.groups,  p.column_blocks, p.k_blocks, p.taps, p.k_granules / p.item_granules,
                               p.columns, p.item_bytes};
  const Workspace packed(launch, packed_bytes<Operand>(layout)),
      unscale(launch, banded ? layout.columns() * int64_t{sizeof(float)} : 0);
  int64_t* const failed = parts == 2 ? vox::detail::mutable_ptr<int64_t>(failed_tensor) : nullptr;
  pack_weights<Operand>(launch, vox::detail::ptr<Storage>(weight), packed.as<void>(),
                        weights_of(g, transposed), layout, failed, only_if, unscale.as<float>());

  Storage* const to = vox::detail::mutable_ptr<Storage>(result);
  const int64_t outputs = result.numel();
  const Workspace partials(launch, p.splits > 1 ? outputs * p.splits * int64_t{sizeof(float)} : 0);
  const Output<Storage> output{vox::detail::ptr_or_null<Storage>(bias), to, failed};
  p.quads &= p.splits > 1 || is_packet_aligned<Storage, 4>(to);
  visit_block<Storage, Operand>(planned->tile, [&](auto block) {
    using Block = decltype(block);
    launch.allow_shared_memory<product_kernel<Block>>(p.shared_bytes);
    // Phases of a box write to the same sectors. Blocks with one job each run in order, so that these writes
    // meet in the L2 cache; blocks with many would drift apart.
    const bool one_phase = std::ranges::all_of(p.axis, [](const Axis& a) { return a.phases == 1; });
    int64_t blocks = p.jobs;
    if (one_phase)
      blocks = std::min(p.jobs,
                        multiprocessors(launch) *
                            resident_blocks(p, planned->tile, parts,
                                            attribute(launch, cudaDevAttrMaxSharedMemoryPerMultiprocessor)));
    product_kernel<Block>
        <<<blocks_if(only_if, blocks), TileShape::threads, p.shared_bytes, launch.stream()>>>(
            {copy.granules(), packed.as<unsigned char>(), unscale.as<float>(), copy.range(),
             vox::detail::ptr<Storage>(input)},
            output, partials.as<float>(), outputs, p, only_if);
  });
  if (p.splits > 1) {
    const int channels = p.groups * p.out_per_group;
    sum_splits(launch, partials.as<float>(), outputs, p.splits,
               StoreSum<Storage>{output, channels, outputs / (int64_t{p.batch} * channels)});
  }
  launch.check();
}

}  // namespace vox::cuda::conv::mma
