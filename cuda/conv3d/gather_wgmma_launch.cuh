#pragma once

// Launches gather_wgmma.cuh: each .cu file that includes this has one kind of numbers, so that they compile
// side by side.

#include <voxgrad/cuda/conv3d/kernels.h>
#include <voxgrad/cuda/conv3d/multiprocessors.h>
#include <voxgrad/cuda/conv3d/recent.h>
#include <voxgrad/cuda/launch.h>
#include <voxgrad/cuda/conv3d/gather_wgmma.cuh>
#include <voxgrad/cuda/conv3d/weight_row.cuh>

#include <optional>
#include <tuple>

namespace vox::cuda::gather {

/// Weights as stages want them: [group and block of channels][slab][tap along d][part][tap along h and w]
/// [granule of 4 k][channel][4 numbers]. blockIdx is (tap along h and w, tap along d, slab and all before).
template <class Block>
__global__ void __launch_bounds__(128)
    pack_kernel(const float* weight, uint32_t* packed, const __grid_constant__ GatherPlan p) {
  constexpr int channels = Block::channels, numel = channels * slab, parts = Block::split ? 2 : 1;
  const int block = blockIdx.z / p.slabs, in0 = blockIdx.z % p.slabs * slab;
  const int group = block / p.channel_blocks, out0 = block % p.channel_blocks * channels;
  const int tap = blockIdx.y * p.taps + blockIdx.x, all_taps = p.d.kernel * p.taps;
  uint32_t* const to =
      packed + ((int64_t{blockIdx.z} * p.d.kernel + blockIdx.y) * parts * p.taps + blockIdx.x) * numel;
  for (int i = threadIdx.x; i < numel; i += blockDim.x) {
    const int in = in0 + gather_channel(i / (channels * 4) * 4 + i % 4, p.neighbours),
              out = out0 + i / 4 % channels;
    float value = 0;
    if (in < p.in_per_group && out < p.out_per_group)
      value = weight[weight_row(p, p.transposed, group, in, out) * all_taps +
                     (p.transposed ? all_taps - 1 - tap : tap)];
    to[i] = tf32_high(value);
    if constexpr (Block::split) to[i + p.taps * numel] = tf32_low(value, tf32_high(value));
  }
}

/// f(Block) of a tile.
template <bool split, class F>
void visit_block(const GatherTile& tile, F f) {
  const auto one = [&]<int channels, int slots, int tiles>() {
    if constexpr (has_gather_kernel({channels, slots, tiles, split}))
      if (tile == GatherTile{channels, slots, tiles, split}) f(Block<channels, slots, tiles, split>{});
  };
  const auto of_channels = [&]<int channels>() {
    one.template operator()<channels, 1, 1>();
    one.template operator()<channels, 1, 2>();
    one.template operator()<channels, 2, 1>();
    one.template operator()<channels, 2, 2>();
    one.template operator()<channels, 3, 1>();
    one.template operator()<channels, 3, 2>();
  };
  of_channels.template operator()<16>();
  of_channels.template operator()<32>();
  of_channels.template operator()<48>();
  of_channels.template operator()<64>();
}

/// Good until the next call.
template <bool split>
const std::optional<GatherPlanned>& planned(const Conv3dGeometry& g, bool transposed, int multiprocessors) {
  thread_local Recent<std::tuple<Conv3dGeometry, bool, int>, std::optional<GatherPlanned>> recent;
  return recent.of({g, transposed, multiprocessors},
                   [&] { return gather_plan(g, transposed, split, multiprocessors); });
}

template <bool split>
bool takes(const Conv3dGeometry& g, bool transposed) {
  constexpr int any = 132;
  return planned<split>(g, transposed, any).has_value();
}

/// `not_split`, if split, is one i64 that becomes 1 where a result is not finite.
template <bool split>
void run(const char* op, const Tensor& input, const Tensor& weight, const Tensor& bias, Tensor& output,
         const Conv3dGeometry& g, bool transposed, Tensor not_split) {
  const Launch launch(op, output, {&input, &weight, &bias, &not_split});
  const auto& [tile, p] = *planned<split>(g, transposed, multiprocessors(launch));
  int64_t* const mark = split ? vox::detail::mutable_ptr<int64_t>(not_split) : nullptr;
  visit_block<split>(tile, [&](auto block) {
    using Block = decltype(block);
    const auto columns = static_cast<unsigned>(p.groups * p.channel_blocks);
    const Workspace packed(launch, int64_t{columns} * p.slabs * p.d.kernel * p.slot_weights);
    pack_kernel<Block>
        <<<dim3(static_cast<unsigned>(p.taps), static_cast<unsigned>(p.d.kernel),
                columns * static_cast<unsigned>(p.slabs)),
           128, 0, launch.stream()>>>(vox::detail::ptr<float>(weight), packed.as<uint32_t>(), p);
    launch.allow_shared_memory<product_kernel<Block>>(p.shared_bytes);
    product_kernel<Block>
        <<<dim3(static_cast<unsigned>(p.blocks), columns), block_threads, static_cast<size_t>(p.shared_bytes),
           launch.stream()>>>(vox::detail::ptr<float>(input), packed.as<unsigned char>(),
                              bias.defined() ? vox::detail::ptr<float>(bias) : nullptr,
                              vox::detail::mutable_ptr<float>(output), mark, p);
    launch.check();
  });
}

}  // namespace vox::cuda::gather
