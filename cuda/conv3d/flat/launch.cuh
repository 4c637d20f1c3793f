#pragma once

// Launches kernel.cuh. Each .cu file of this folder includes this file and instantiates one kind of operands,
// so that they compile in parallel.

#include <voxgrad/cuda/conv3d/call.h>
#include <voxgrad/cuda/conv3d/common/hopper.h>
#include <voxgrad/cuda/conv3d/flat/kernel.cuh>

#include <algorithm>
#include <vector>

namespace vox::cuda::conv::flat {

/// Fills the outputs that no tap reaches.
template <class Storage>
__global__ void __launch_bounds__(256)
    fill_dead_kernel(Storage* output, const Storage* bias, int64_t numel, int channels, Triple extent,
                     Triple stride, LiveResidues live) {
  for (int64_t i = int64_t{blockIdx.x} * blockDim.x + threadIdx.x; i < numel;
       i += int64_t{gridDim.x} * blockDim.x) {
    const int64_t w = i % extent.w, rows = i / extent.w, h = rows % extent.h, planes = rows / extent.h,
                  d = planes % extent.d;
    if (live.contain(d, h, w, stride)) continue;
    output[i] = bias ? bias[planes / extent.d % channels] : Storage(0.0f);
  }
}

template <class Storage>
void fill_dead(const Launch& launch, const Tensor& bias, const Tensor& output, const Conv3dGeometry& g,
               const std::vector<Axes>& phases) {
  if (static_cast<int64_t>(phases.size()) == g.stride.d * g.stride.h * g.stride.w) return;
  fill_dead_kernel<<<grid_for(output.numel(), 256), 256, 0, launch.stream()>>>(
      vox::detail::mutable_ptr<Storage>(output), vox::detail::ptr_or_null<Storage>(bias), output.numel(),
      static_cast<int>(g.big_channels), g.big, g.stride, live_residues(phases));
  launch.check();
}

template <class Tile>
void launch_product(const Launch& launch, const Conv3dCall& call, Product p) {
  using Element = typename Tile::Element;
  using Storage = typename Tile::Storage;
  const auto& [transposed, input, weight, bias, output, g, if_tensor, failed_tensor] = call;
  const int64_t* const only_if = vox::detail::ptr_or_null<int64_t>(if_tensor);
  int64_t* const failed =
      failed_tensor.defined() ? vox::detail::mutable_ptr<int64_t>(failed_tensor) : nullptr;
  p.in_words = in_words<Storage>(p, input);
  const Layout<Tile> layout{p, static_cast<int>(g.kernel.h), static_cast<int>(g.kernel.w)};
  const int64_t bytes = packed_bytes<typename Tile::Operand>(layout);  // a multiple of 16
  const Workspace packed(launch, bytes + (Tile::scaled ? layout.columns() * int64_t{sizeof(float)} : 0));
  float* const unscale = reinterpret_cast<float*>(packed.as<unsigned char>() + bytes);
  pack_weights<typename Tile::Operand>(launch, vox::detail::ptr<Storage>(weight), packed.as<unsigned char>(),
                                       weights_of(g, transposed), layout, failed, only_if, unscale);
  const int shared = barrier_bytes + static_cast<int>(shared_bytes(p, Tile::host)) + Tile::zero_bytes;
  launch.allow_shared_memory<product_kernel<Tile>>(shared);
  const unsigned grid = static_cast<unsigned>(std::min<int64_t>(p.jobs(), multiprocessors(launch)));
  product_kernel<Tile><<<grid, block_threads, static_cast<size_t>(shared), launch.stream()>>>(
      vox::detail::ptr<Storage>(input), packed.as<Element>(), vox::detail::ptr_or_null<Storage>(bias),
      vox::detail::mutable_ptr<Storage>(output), unscale, p, failed, only_if);
  launch.check();
}

/// The product in tiles of this kind; nothing if it cannot be cut so.
template <class Tile>
std::optional<Product> tiled_product(const Conv3dGeometry& g, bool transposed, const Axes& axes) {
  auto p = cut_product(g, transposed, axes, Tile::host, most_shared - Tile::zero_bytes);
  // The second tap of a pair must lie behind the first, also from the end of a row of taps to the next.
  if (p && Tile::host.pairs && p->h.taps > 1 && p->row_shift <= (p->w.taps - 1) * p->column_shift) p.reset();
  return p;
}

/// Whether every product of the problem has a tiling.
template <class Storage, class Operand>
bool takes(const Conv3dGeometry& g, bool transposed) {
  if (g.batch == 0) return true;
  const auto phases = products_of(g, transposed);
  return phases && std::ranges::all_of(*phases, [&](const Axes& axes) {
           return visit_tile<Storage, Operand>(out_per_group(g, transposed), axes.d.taps, [&](auto tile) {
             return tiled_product<decltype(tile)>(g, transposed, axes).has_value();
           });
         });
}

template <class Storage, class Operand>
void run(const Conv3dCall& call) {
  const auto& [transposed, input, weight, bias, output, g, only_if, failed] = call;
  const Launch launch(call.op(), output, {&input, &weight, &bias, &only_if, &failed});
  const auto phases = *products_of(g, transposed);
  // A redo need not write outputs without taps, because the kernel that failed has written them.
  if (transposed && !only_if.defined()) fill_dead<Storage>(launch, bias, output, g, phases);
  for (const Axes& axes : phases)
    visit_tile<Storage, Operand>(out_per_group(g, transposed), axes.d.taps, [&](auto tile) {
      using Tile = decltype(tile);
      launch_product<Tile>(launch, call, *tiled_product<Tile>(g, transposed, axes));
    });
}

}  // namespace vox::cuda::conv::flat
