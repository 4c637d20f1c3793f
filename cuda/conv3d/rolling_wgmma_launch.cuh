#pragma once

// Launches rolling_wgmma.cuh: each .cu file that includes this has one kind of operands, so that they compile
// side by side.

#include <voxgrad/cuda/conv3d/kernels.h>
#include <voxgrad/cuda/conv3d/multiprocessors.h>
#include <voxgrad/cuda/conv3d/recent.h>
#include <voxgrad/cuda/launch.h>
#include <voxgrad/cuda/conv3d/implicit_gemm_wgmma_launch.cuh>
#include <voxgrad/cuda/conv3d/rolling_wgmma.cuh>

#include <optional>
#include <tuple>

namespace vox::cuda::rolling {

/// f(tile) with the tile for so many channels and taps along d; false if there is none. As many positions as
/// there are registers for their sums, since all weights come once for each plane of a tile.
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
std::optional<FlatProduct> product_of(const Conv3dGeometry& g, bool transposed) {
  constexpr int64_t most_shared = 227 * 1024 - flat::barrier_bytes - Tile::results_bytes;
  return rolling_product(g, transposed, Tile::host, most_shared);
}

/// The plan, kept for the next call: to find the cuts takes longer than to launch.
template <class Tile>
const RollingPlan& plan_of(const Conv3dGeometry& g, bool transposed, int multiprocessors) {
  thread_local Recent<std::tuple<Conv3dGeometry, bool, int>, RollingPlan, 8> recent;
  return recent.of({g, transposed, multiprocessors},
                   [&] { return rolling_plan(*product_of<Tile>(g, transposed), multiprocessors); });
}

/// Whether there is a tiling.
template <class Storage, class Operand>
bool takes(const Conv3dGeometry& g, bool transposed) {
  return g.batch > 0 && visit_tile<Storage, Operand>(g, transposed, [&](auto tile) {
           return product_of<decltype(tile)>(g, transposed).has_value();
         });
}

/// Whether it is quicker than implicit_gemm_wgmma, for what both take. Measured on 72 small problems and four
/// large ones, that one takes a quarter longer than the cycles of its products say, compared with this one;
/// of 16-bit tensors, on the large ones, this one 15 to 25 % longer.
template <class Storage, class Operand>
bool pays(const Conv3dGeometry& g, bool transposed) {
  constexpr int h200 = 132;  // multiprocessors: the choice is the same everywhere
  const auto load_cycles = [](const FlatProduct& p) {
    if constexpr (is_16_bit_v<Storage>) return rows_are_words(p) ? 4 : 8;
    return sizeof(typename Operand::Element) == 2 ? 8 : 4;
  };
  int64_t mine = 0, others = 0;
  visit_tile<Storage, Operand>(g, transposed, [&](auto tile) {
    const RollingPlan& plan = plan_of<decltype(tile)>(g, transposed, h200);
    mine = rolling_cycles(plan, decltype(tile)::host, load_cycles(plan.product));
    return true;
  });
  flat::visit_tile<Storage, Operand>(
      flat::out_per_group(g, transposed), static_cast<int>(g.kernel.d), [&](auto tile) {
        constexpr FlatTile host = decltype(tile)::host;
        const auto p =
            flat_product(g, transposed, flat_axes(g, transposed, Triple(0)), host, flat::most_shared);
        if (p) others = flat_cycles(*p, host, h200, load_cycles(*p));
      });
  return others == 0 || 20 * mine <= (sizeof(Storage) == 2 ? 17 : 25) * others;
}

template <class Storage, class Operand>
void run(const char* op, const Tensor& input, const Tensor& weight, const Tensor& bias, Tensor& output,
         const Conv3dGeometry& g, bool transposed) {
  const Launch launch(op, output, {&input, &weight, &bias});
  visit_tile<Storage, Operand>(g, transposed, [&](auto tile) {
    using Tile = decltype(tile);
    using Element = typename Tile::Element;
    RollingPlan plan = plan_of<Tile>(g, transposed, multiprocessors(launch));
    plan.product.in_words = flat::in_words<Storage>(plan.product, input);
    const int64_t numel = packed_numel<Tile>(plan.product);
    const Workspace packed(launch, numel * static_cast<int64_t>(sizeof(Element)));
    pack_kernel<Tile><<<grid_for(numel, 256), 256, 0, launch.stream()>>>(
        vox::detail::ptr<Storage>(weight), packed.as<Element>(), plan.product, transposed,
        static_cast<int>(g.kernel.h), static_cast<int>(g.kernel.w), g.taps(), numel);
    const int shared =
        flat::barrier_bytes + Tile::results_bytes + static_cast<int>(shared_bytes(plan.product, Tile::host));
    launch.allow_shared_memory<product_kernel<Tile>>(shared);
    product_kernel<Tile>
        <<<static_cast<unsigned>(plan.blocks), flat::block_threads, static_cast<size_t>(shared),
           launch.stream()>>>(vox::detail::ptr<Storage>(input), packed.as<Element>(),
                              bias.defined() ? vox::detail::ptr<Storage>(bias) : nullptr,
                              vox::detail::mutable_ptr<Storage>(output), plan);
    launch.check();
    return true;
  });
}

}  // namespace vox::cuda::rolling
