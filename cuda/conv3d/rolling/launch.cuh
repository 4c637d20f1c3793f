#pragma once

// Launches kernel.cuh. Each .cu file of this folder includes this file and instantiates one kind of operands,
// so that they compile in parallel.

#include <voxgrad/cuda/conv3d/call.h>
#include <voxgrad/cuda/conv3d/common/hopper.h>
#include <voxgrad/cuda/conv3d/common/integers.h>
#include <voxgrad/cuda/conv3d/common/recent.h>
#include <voxgrad/cuda/conv3d/rolling/kernel.cuh>

#include <utility>

namespace vox::cuda::conv::rolling {

/// Calls f with the Tile of a shape.
template <class Storage, class Operand, class F>
void visit_tile(const TileShape& shape, F f) {
  const auto one = [&]<TileSize size>() {
    using Tile = Tile<Storage, Operand, size.channels, size.taps_d, size.tiles>;
    if (shape == Tile::host) f(Tile{});
  };
  [&]<size_t... i>(std::index_sequence<i...>) { (one.template operator()<tile_sizes[i]>(), ...); }
  (std::make_index_sequence<std::size(tile_sizes)>{});
}

template <class Storage, class Operand>
void run(const Conv3dCall& call) {
  const auto& [transposed, input, weight, bias, output, g, only_if, failed] = call;
  const Launch launch(call.op(), output, {&input, &weight, &bias});
  auto [shape, plan] = *recall<make_plan>(g, transposed, int{sizeof(Storage)},
                                          int{sizeof(typename Operand::Element)}, machine_of(launch));
  visit_tile<Storage, Operand>(shape, [&](auto tile) {
    using Tile = decltype(tile);
    using Element = typename Tile::Element;
    plan.product.in_words = in_words<Storage>(plan.product, input);
    const Layout<Tile> layout{plan.product, static_cast<int>(g.kernel.h), static_cast<int>(g.kernel.w)};
    const Workspace packed(launch, packed_bytes<Operand>(layout));
    pack_weights<Operand>(launch, vox::detail::ptr<Storage>(weight), packed.as<Element>(),
                          weights_of(g, transposed), layout);
    const int shared =
        barrier_bytes + results_bytes(Tile::host) + static_cast<int>(shared_bytes(plan.product, Tile::host));
    launch.allow_shared_memory<product_kernel<Tile>>(shared);
    product_kernel<Tile>
        <<<static_cast<unsigned>(plan.blocks), block_threads, static_cast<size_t>(shared), launch.stream()>>>(
            vox::detail::ptr<Storage>(input), packed.as<Element>(), vox::detail::ptr_or_null<Storage>(bias),
            vox::detail::mutable_ptr<Storage>(output), plan);
    launch.check();
  });
}

}  // namespace vox::cuda::conv::rolling
