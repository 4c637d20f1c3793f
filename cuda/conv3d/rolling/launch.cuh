#pragma once

// Launches kernel.cuh. Each .cu file of this folder includes this file and instantiates one kind of operands,
// so that they compile in parallel.

#include <voxgrad/cuda/conv3d/call.h>
#include <voxgrad/cuda/conv3d/common/hopper.h>
#include <voxgrad/cuda/conv3d/common/integers.h>
#include <voxgrad/cuda/conv3d/common/recent.h>
#include <voxgrad/cuda/conv3d/flat/tile.cuh>
#include <voxgrad/cuda/conv3d/rolling/kernel.cuh>

#include <optional>

namespace vox::cuda::conv::rolling {

/// f(tile) with the tile for this many channels and taps along d; false if there is none. It has as many
/// positions as registers hold sums for, because all weights are loaded once for each plane of a tile.
template <class Storage, class Operand, class F>
bool visit_tile(int64_t channels, int64_t taps_d, F f) {
  const bool in_32s = channels > 48 && (channels + 31) / 32 * 2 < (channels + 47) / 48 * 3;  // padded less
  if (taps_d == 2) {
    if (channels <= 16) return f(Tile<Storage, Operand, 16, 2, 4>{});
    if (channels <= 32 || in_32s) return f(Tile<Storage, Operand, 32, 2, 4>{});
    return f(Tile<Storage, Operand, 48, 2, 3>{});
  }
  if (taps_d == 3) {
    if (channels <= 16) return f(Tile<Storage, Operand, 16, 3, 4>{});
    if (channels <= 24) return f(Tile<Storage, Operand, 24, 3, 4>{});
    if (channels <= 32 || in_32s) return f(Tile<Storage, Operand, 32, 3, 3>{});
    return f(Tile<Storage, Operand, 48, 3, 2>{});
  }
  if (taps_d == 5) {
    if (channels <= 16) return f(Tile<Storage, Operand, 16, 5, 3>{});
    return f(Tile<Storage, Operand, 32, 5, 2>{});
  }
  return false;
}

template <class Storage, class Operand, class F>
bool visit_tile(const Conv3dGeometry& g, bool transposed, F f) {
  return visit_tile<Storage, Operand>(transposed ? g.big_per_group() : g.small_per_group(), g.kernel.d, f);
}

template <class Tile>
std::optional<flat::Product> product_of(const Conv3dGeometry& g, bool transposed) {
  constexpr int64_t most_shared = flat::most_shared - Tile::results_bytes;
  return cut_product(g, transposed, Tile::host, most_shared);
}

template <class Tile>
Plan plan_of(const Conv3dGeometry& g, bool transposed, const Machine& machine) {
  return make_plan(*product_of<Tile>(g, transposed), machine);
}

template <class Storage, class Operand>
bool takes(const Conv3dGeometry& g, bool transposed) {
  return g.batch > 0 && visit_tile<Storage, Operand>(g, transposed, [&](auto tile) {
           return product_of<decltype(tile)>(g, transposed).has_value();
         });
}

/// By the cycles of both plans. Measured on 72 small problems and four large ones, flat takes a quarter
/// longer than its cycles say, compared with rolling; of 16-bit tensors, on the large ones, rolling takes 15
/// to 25 % longer. (strided has the place of the flat kernel of TF32, and its time.)
template <class Storage, class Operand>
bool pays(const Conv3dGeometry& g, bool transposed) {
  const auto load_cycles = [](const flat::Product& p) {
    if constexpr (is_16_bit_v<Storage>) return rows_are_words(p) ? 4 : 8;
    return sizeof(typename Operand::Element) == 2 ? 8 : 4;
  };
  int64_t rolling = 0, flat = 0;
  visit_tile<Storage, Operand>(g, transposed, [&](auto tile) {
    const Plan& plan = recall<plan_of<decltype(tile)>>(g, transposed, h200);
    rolling = cycles(plan, decltype(tile)::host, load_cycles(plan.product));
    return true;
  });
  flat::visit_tile<Storage, Operand>(
      flat::out_per_group(g, transposed), static_cast<int>(g.kernel.d), [&](auto tile) {
        constexpr flat::TileShape host = decltype(tile)::host;
        const auto p = flat::cut_product(g, transposed, flat::products_of(g, transposed)->front(), host,
                                         flat::most_shared);
        if (p) flat = flat_cycles(*p, host, h200, load_cycles(*p));
      });
  return flat == 0 || 20 * rolling <= (sizeof(Storage) == 2 ? 17 : 25) * flat;
}

template <class Storage, class Operand>
void run(const Conv3dCall& call) {
  const auto& [transposed, input, weight, bias, output, g, only_if, failed] = call;
  const Launch launch(call.op(), output, {&input, &weight, &bias});
  visit_tile<Storage, Operand>(g, transposed, [&](auto tile) {
    using Tile = decltype(tile);
    using Element = typename Tile::Element;
    Plan plan = recall<plan_of<Tile>>(g, transposed, machine_of(launch));
    plan.product.in_words = flat::in_words<Storage>(plan.product, input);
    const Layout<Tile> layout{plan.product, static_cast<int>(g.kernel.h), static_cast<int>(g.kernel.w)};
    const Workspace packed(launch, packed_bytes<Operand>(layout));
    pack_weights<Operand>(launch, vox::detail::ptr<Storage>(weight), packed.as<Element>(),
                          weights_of(g, transposed), layout);
    const int shared =
        barrier_bytes + Tile::results_bytes + static_cast<int>(shared_bytes(plan.product, Tile::host));
    launch.allow_shared_memory<product_kernel<Tile>>(shared);
    product_kernel<Tile><<<static_cast<unsigned>(plan.blocks), flat::block_threads,
                           static_cast<size_t>(shared), launch.stream()>>>(
        vox::detail::ptr<Storage>(input), packed.as<Element>(), vox::detail::ptr_or_null<Storage>(bias),
        vox::detail::mutable_ptr<Storage>(output), plan);
    launch.check();
    return true;
  });
}

}  // namespace vox::cuda::conv::rolling
