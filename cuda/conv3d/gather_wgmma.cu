// Launches gather_wgmma.cuh.

#include <voxgrad/cuda/conv3d/gather_wgmma.cuh>
#include <voxgrad/cuda/conv3d/kernels.h>
#include <voxgrad/cuda/conv3d/multiprocessors.h>
#include <voxgrad/cuda/launch.h>
#include <voxgrad/cuda/ptx/mma.cuh>

namespace vox::cuda {

namespace gather {

/// Weights as stages want them: [group and block of channels][slab][tap along d][tap along h and w][granule of
/// 4 k][channel][4 numbers]. blockIdx is (tap along h and w, tap along d, slab and all before).
template <class Block>
__global__ void __launch_bounds__(128)
    pack_kernel(const float* weight, uint32_t* packed, const __grid_constant__ GatherPlan p) {
  constexpr int channels = Block::channels, numel = channels * slab;
  const int block = blockIdx.z / p.slabs, in0 = blockIdx.z % p.slabs * slab;
  const int group = block / p.channel_blocks, out0 = block % p.channel_blocks * channels;
  const int tap = blockIdx.y * p.taps + blockIdx.x, all_taps = p.d.kernel * p.taps;
  uint32_t* const to = packed + (int64_t{blockIdx.z} * all_taps + tap) * numel;
  for (int i = threadIdx.x; i < numel; i += blockDim.x) {
    const int in = in0 + channel_of(i / (channels * 4) * 4 + i % 4), out = out0 + i / 4 % channels;
    float value = 0;
    if (out < p.out_per_group)
      value = weight[((int64_t{group} * p.out_per_group + out) * p.in_per_group + in) * all_taps + tap];
    to[i] = ptx::to_tf32(value);
  }
}

/// f(Block) of a tile.
template <class F>
void visit_block(const GatherTile& tile, F f) {
  const auto one = [&]<int channels, int slots, int tiles>() {
    constexpr int warpgroups = gather_warpgroups(channels, slots, tiles);
    if (tile == GatherTile{channels, slots, tiles, warpgroups}) f(Block<channels, slots, tiles, warpgroups>{});
  };
  const auto both = [&]<int channels, int slots>() {
    one.template operator()<channels, slots, 1>();
    one.template operator()<channels, slots, 2>();
  };
  both.template operator()<16, 1>();
  both.template operator()<16, 2>();
  both.template operator()<16, 3>();
  both.template operator()<32, 1>();
  both.template operator()<32, 2>();
  one.template operator()<32, 3, 1>();
  both.template operator()<48, 1>();
  one.template operator()<48, 2, 1>();
  both.template operator()<64, 1>();
  one.template operator()<64, 2, 1>();
}

}  // namespace gather

}  // namespace vox::cuda
