#pragma once

// Launches kernel.cuh and windows.cuh. Each .cu file of this folder includes this file and instantiates one
// kind of operands, so that they compile in parallel.

#include <voxgrad/cuda/conv3d/call.h>
#include <voxgrad/cuda/conv3d/common/hopper.h>
#include <voxgrad/cuda/conv3d/common/integers.h>
#include <voxgrad/cuda/conv3d/common/recent.h>
#include <voxgrad/cuda/ptx/tensor_map.h>
#include <voxgrad/cuda/conv3d/common/channels_last.cuh>
#include <voxgrad/cuda/conv3d/common/pack.cuh>
#include <voxgrad/cuda/conv3d/dense/kernel.cuh>
#include <voxgrad/cuda/conv3d/dense/windows.cuh>
#include <voxgrad/cuda/runtime/dependent.cuh>

#include <algorithm>
#include <type_traits>

namespace vox::cuda::conv::dense {

// ---- Weights ----------------------------------------------------------------------------------------------

/// Packs weights as they lie in a stage: [group and tile of columns][tap][chunk][column][128 bytes of input
/// channels, swizzled]. A thread packs 16 bytes; taps run fastest, which are neighbours in memory.
template <class Storage, class Operand>
__device__ __forceinline__ void pack(const Storage* __restrict__ weight, unsigned char* __restrict__ packed,
                                     int columns, const Plan& p, int block) {
  using Element = typename Operand::Element;
  constexpr int of_granule = 16 / sizeof(Element), granules = row_bytes / 16;
  const auto [number, at_d, at_h, at_w] =
      digits(block * tile_threads + static_cast<int>(threadIdx.x), {p.d.by_taps, p.h.by_taps, p.w.by_taps});
  const auto [tile, chunk, column, granule] = digits(number, {p.chunks, columns, granules});
  if (tile >= p.groups * p.column_tiles) return;
  const int across = tile % p.column_tiles * columns + column;  // of the group's columns
  const int out = across >> p.joined, neighbour = across & ((1 << p.joined) - 1);
  const int in = (chunk * granules + granule) * of_granule;
  const int tap = (p.d.tap[0][at_d] * p.h.kernel + p.h.tap[0][at_h]) * p.w.kernel + p.w.tap[neighbour][at_w];
  const int kernel = p.d.kernel * p.h.kernel * p.w.kernel,
            next_in = p.transposed ? p.out_per_group * kernel : kernel;
  const Storage* const from =
      weight +
      weight_row(p, p.transposed, int64_t{tile / p.column_tiles}, int64_t{in}, int64_t{out}) * kernel + tap;
  const int here = out < p.out_per_group ? p.in_per_group - in : 0;
  alignas(16) Element value[of_granule];
#pragma unroll
  for (int c = 0; c < of_granule; ++c)
    value[c] = element_of<Operand>(c < here ? from[c * next_in] : Storage(0.0f));
  const int at_tap = (at_d * p.h.taps() + at_h) * p.w.taps() + at_w;
  const int64_t image = (int64_t{tile} * p.taps() + at_tap) * p.chunks + chunk;
  *reinterpret_cast<uint4*>(packed + image * columns * row_bytes + ptx::swizzled(column, granule)) =
      *reinterpret_cast<const uint4*>(value);
}

/// The number of blocks that pack.
inline int packing_blocks(const Plan& p, int columns) {
  const int64_t granules = int64_t{p.groups} * p.column_tiles * p.chunks * columns * (row_bytes / 16);
  return narrow(ceil_div(granules * p.taps(), tile_threads));
}

/// Makes both operands: the first blocks pack weights, the others copy the input with its channels last.
template <class Storage, class Operand>
__global__ void __launch_bounds__(tile_threads)
    operands_kernel(const __grid_constant__ ChannelsLast<Storage> input, const Storage* __restrict__ weight,
                    unsigned char* packed, int columns, int packing, const __grid_constant__ Plan p) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
  ptx::let_next_kernel_start();
  const int block = static_cast<int>(blockIdx.x);
  if (block < packing)
    pack<Storage, Operand>(weight, packed, columns, p, block);
  else
    channels_last_tile<Operand>(input, block - packing);
#endif
}

// ---- The launch -------------------------------------------------------------------------------------------

/// Calls f with the Block of a tile.
template <class Storage, class Operand, class F>
void visit_block(const TileShape& tile, F f) {
  [&]<size_t... i>(std::index_sequence<i...>) {
    const auto one = [&]<TileShape shape>() {
      if (tile == shape) f(Block<Storage, Operand, shape.products, shape.columns>{});
    };
    (one.template operator()<tile_shapes[i]>(), ...);
    one.template operator()<windows_tile>();
  }
  (std::make_index_sequence<std::size(tile_shapes)>{});
}

/// The input, channels last, as boxes of a stage.
template <class Operand>
ptx::BoxesOfTensor boxes_of(const Plan& p) {
  constexpr int64_t row_elements = row_bytes / sizeof(typename Operand::Element);
  const auto step = [](const Axis& axis) { return int64_t{axis.box == 1 ? 1 : axis.in_step}; };
  return {{padded_channels<Operand>(p.in_per_group), p.w.in, p.h.in, p.d.in, int64_t{p.batch} * p.groups},
          {row_elements, p.window_w, p.window_h, p.d.box, p.box_n},
          {1, step(p.w), step(p.h), step(p.d), 1}};
}

template <class Block>
void launch_product(const Launch& launch, const CUtensorMap& cells, const unsigned char* weights,
                    const typename Block::Storage* bias, typename Block::Storage* output, const Plan& p) {
  constexpr bool windows = Block::shape == windows_tile;
  constexpr auto* kernel = [] {
    if constexpr (windows)
      return windows_kernel<Block>;
    else
      return product_kernel<Block>;
  }();
  const int blocks = windows ? std::min(p.blocks, multiprocessors(launch)) : p.blocks;
  launch.allow_shared_memory<kernel>(p.shared_bytes);
  launch_dependent(launch, {static_cast<unsigned>(blocks), block_threads, p.shared_bytes, p.split}, kernel,
                   cells, weights, bias, output, p);
}

/// The convolution by a plan, in two launches.
template <class Storage, class Operand>
void run_planned(const Launch& launch, const Conv3dCall& call, const Planned& planned) {
  using Element = typename Operand::Element;
  constexpr DType dtype = sizeof(Element) == 4 ? f32 : Operand::operand == ptx::Operand::bf16 ? bf16 : f16;
  const auto& [transposed, input, weight, bias, output, g, only_if, failed] = call;
  const TileShape& tile = planned.tile;
  Plan p = planned.plan;
  Storage* const to = vox::detail::mutable_ptr<Storage>(output);
  p.quads &= reinterpret_cast<uintptr_t>(to) % (4 * sizeof(Storage)) == 0;

  const int64_t samples = int64_t{p.batch} * p.groups, cells = int64_t{p.d.in} * p.h.in * p.w.in;
  const Workspace last(launch, channels_last_bytes<Operand>(samples, p.in_per_group, cells));
  const Workspace packed(launch,
                         int64_t{p.groups} * p.column_tiles * p.taps() * p.chunks * tile.columns * row_bytes);
  auto pass = channels_last<Operand>(vox::detail::ptr<Storage>(input), samples, p.in_per_group, cells);
  pass.to = last.as<uint32_t>();
  const int packing = packing_blocks(p, tile.columns);
  operands_kernel<Storage, Operand>
      <<<static_cast<unsigned>(packing + pass.blocks), tile_threads, 0, launch.stream()>>>(
          pass, vox::detail::ptr<Storage>(weight), packed.as<unsigned char>(), tile.columns, packing, p);
  const CUtensorMap boxes = ptx::tensor_map(call.op(), last.as<Element>(), dtype, boxes_of<Operand>(p));
  visit_block<Storage, Operand>(tile, [&](auto block) {
    launch_product<decltype(block)>(launch, boxes, packed.as<unsigned char>(),
                                    vox::detail::ptr_or_null<Storage>(bias), to, p);
  });
  launch.check();
}

/// The convolution by the plan that `make` makes.
template <class Storage, class Operand, auto make>
void run_with(const Conv3dCall& call) {
  const Launch launch(call.op(), call.output, {&call.input, &call.weight, &call.bias});
  constexpr int operand_bytes = sizeof(typename Operand::Element);
  run_planned<Storage, Operand>(
      launch, call, *recall<make>(call.geometry, call.transposed, operand_bytes, machine_of(launch)));
}

template <class Storage, class Operand>
void run(const Conv3dCall& call) {
  run_with<Storage, Operand, best_plan>(call);
}

template <class Storage, class Operand>
void run_windows(const Conv3dCall& call) {
  run_with<Storage, Operand, make_windows_plan>(call);
}

}  // namespace vox::cuda::conv::dense
