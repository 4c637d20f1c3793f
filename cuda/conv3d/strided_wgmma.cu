// conv3d and conv_transpose3d with steps of 1 and 2, f32 by TF32 on Hopper's tensor cores (wgmma).
//
// Seen from the coarse grid every tap is a shift by whole cells and one of the phases of the fine grid
// (strided_plan.h). So both ops are sums of plain products
//
//   conv_transpose3d   output[phase][m, n] = bias[n] + sum over k, shifts  input[m + shift, k] * weight[k, n]
//   conv3d             output[m, n] = bias[n] + sum over k, phases, shifts  input[phase][m + shift, k] * ...
//   m: a coarse cell     n: an output channel of the group     k: an input channel
//
// and a block loads what its tile of cells reads, with its halo, once for all of them. Phases without taps
// are written with the bias: every output is written once, and no product with an inserted zero is computed.
//
// Who owns what: a block works on tiles of 2 x `tiles` x 64 cells of one image, times `slots` phases times
// `channels`, in the registers of two warpgroups of consumers. Two groups of producers fill stages in turn: 8
// channels (times k_steps) of the window, rounded, as [4 channels][depth][position][16 bytes]. That is an
// operand of wgmma without swizzle, in which every shift is a start address; conv3d's two phases along w are
// planes of their own, read in one pass so that loads coalesce. Weights come packed in the order of their
// use, once for all tiles if they fit, else with each stage. Sums go through shared memory to global memory
// as rows in which both phases along w lie one behind the other. Nothing is shared between blocks: no
// atomics, and the bits never change.
//
// Non-finite values: as implicit_gemm_mma.cu says.
//
// What holds it back are the cycles of shared memory: an instruction with n = 32 reads 2 KiB of cells for 1
// KiB of weights. The next ideas are cells in registers for all phases that share a shift, and rows written
// by the copy engine; a kernel that does the latter was made, and not run.

#include <voxgrad/cuda/conv3d/kernels.h>
#include <voxgrad/cuda/conv3d/multiprocessors.h>
#include <voxgrad/cuda/launch.h>
#include <voxgrad/cuda/conv3d/strided_wgmma_input.cuh>
#include <voxgrad/cuda/conv3d/strided_wgmma_products.cuh>
#include <voxgrad/cuda/ptx/mma.cuh>

#include <utility>

namespace vox::cuda {

namespace strided {

// ---- Kernels ----------------------------------------------------------------------------------------------

/// Weights as stages want them: [group and block of channels][kind][slab][item][step of k][granule][channel]
/// [16 bytes]. blockIdx is (item, slab, group and block of channels).
template <int channels>
__global__ void __launch_bounds__(128)
    pack_kernel(const float* weight, unsigned char* packed, const __grid_constant__ StridedPlan p,
                const __grid_constant__ StridedTaps taps) {
  const int number = blockIdx.x, slab = blockIdx.y;
  const int group = blockIdx.z / p.channel_blocks, channel_block = blockIdx.z % p.channel_blocks;
  int k = 0;
  while (number >= p.kind[k].first[most_slots]) ++k;
  float* const to =
      reinterpret_cast<float*>(packed + int64_t{blockIdx.z} * p.block_weights + p.kind[k].weights +
                               int64_t{slab} * p.kind[k].stage_weights + p.item[number].weights * 16);
  const int all_taps = p.d.kernel * p.h.kernel * p.w.kernel;
  for (int i = threadIdx.x; i < p.k_steps * channels * 8; i += blockDim.x) {
    const int in = (slab * p.k_steps + i / (channels * 8)) * 8 + i / (channels * 4) % 2 * 4 + i % 4;
    const int out = channel_block * channels + i / 4 % channels;
    float value = 0;
    if (in < p.in_per_group && out < p.out_per_group) {
      // The weight is (small channels, big channels of the group, taps); conv_transpose3d reads small.
      const int64_t row = p.transposed ? (int64_t{group} * p.in_per_group + in) * p.out_per_group + out
                                       : (int64_t{group} * p.out_per_group + out) * p.in_per_group + in;
      value = weight[row * all_taps + taps.of[number]];
    }
    to[i] = __uint_as_float(ptx::to_tf32(value));
  }
}

template <int channels, int slots, int tiles>
__global__ void __launch_bounds__(block_threads, 1)
    product_kernel(const float* __restrict__ input, const unsigned char* __restrict__ packed,
                   const float* __restrict__ bias, float* __restrict__ output,
                   const __grid_constant__ StridedPlan p) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
  using Shape = Block<channels, slots, tiles>;
  extern __shared__ __align__(128) unsigned char memory[];
  __shared__ ptx::Mbarrier full[most_stages], empty[most_stages], weights_here;
  Shared shared{memory, nullptr, nullptr, nullptr, full, empty, &weights_here};
  shared.weights = shared.stages + p.stages * p.stage_bytes;
  shared.table = reinterpret_cast<uint32_t*>(shared.weights + p.weight_bytes);
  shared.staging = shared.weights + p.weight_bytes + p.table_bytes;
  if (threadIdx.x == 0) {
    for (int i = 0; i < p.stages; ++i) {
      ptx::mbarrier_init(full[i], producers / 32 + (p.weight_bytes ? 0 : 1));
      ptx::mbarrier_init(empty[i], consumer_warps);
    }
    ptx::mbarrier_init(weights_here, 1);
    ptx::mbarrier_init_done();
  }
  __syncthreads();
  const Columns columns{static_cast<int>(blockIdx.y) / p.channel_blocks,
                        static_cast<int>(blockIdx.y) % p.channel_blocks};
  // From lane 0, so that the compiler knows that warps do not part here.
  const int warpgroup = __shfl_sync(0xffffffff, threadIdx.x / 128, 0);
  if (warpgroup >= 2) {
    ptx::shrink_registers_to<88>();
    produce<tiles>(input, packed, columns, shared, warpgroup - 2, p);
  } else {
    ptx::grow_registers_to<168>();
    Products<Shape>::consume(columns, memory, shared, warpgroup, bias, output, p);
  }
#endif
}

// ---- Launchers --------------------------------------------------------------------------------------------

/// Calls `f` with the tile's numbers as constants.
template <class F>
void visit_tile(const StridedTile& t, F f) {
  const auto with = [&](auto channels, auto slots, auto tiles) {
    if (t.channels == channels && t.slots == slots && t.tiles == tiles) f(channels, slots, tiles);
  };
  using std::integral_constant;
  const auto one = [&]<int c, int s, int n>(std::integer_sequence<int, c, s, n>) {
    with(integral_constant<int, c>{}, integral_constant<int, s>{}, integral_constant<int, n>{});
  };
  one(std::integer_sequence<int, 8, 1, 4>{});
  one(std::integer_sequence<int, 16, 1, 4>{});
  one(std::integer_sequence<int, 32, 1, 4>{});
  one(std::integer_sequence<int, 48, 1, 2>{});
  one(std::integer_sequence<int, 64, 1, 2>{});
  one(std::integer_sequence<int, 8, 8, 4>{});
  one(std::integer_sequence<int, 16, 8, 2>{});
  one(std::integer_sequence<int, 32, 4, 2>{});
  one(std::integer_sequence<int, 48, 2, 2>{});
  one(std::integer_sequence<int, 64, 2, 2>{});
}

void run(const char* op, const Tensor& input, const Tensor& weight, const Tensor& bias, Tensor& output,
         const Conv3dGeometry& g, bool transposed) {
  if (g.batch == 0) return;
  const StridedTile tile = strided_tile(g, transposed);
  const auto planned = strided_plan(g, transposed, tile);
  const StridedPlan& p = planned->plan;
  visit_tile(tile, [&](auto channels, auto slots, auto tiles) {
    const int64_t blocks = int64_t{p.groups} * p.channel_blocks;
    const Launch launch(op, output, {&input, &weight, &bias});
    const Workspace packed(launch, blocks * p.block_weights);
    auto* const to = packed.as<unsigned char>();
    const int last = p.kinds - 1;
    const int items = last < 0 ? 0 : p.kind[last].first[most_slots];
    if (items > 0)
      pack_kernel<channels><<<dim3(static_cast<unsigned>(items), static_cast<unsigned>(p.slabs),
                                   static_cast<unsigned>(blocks)),
                              128, 0, launch.stream()>>>(detail::ptr<float>(weight), to, p, planned->taps);
    const auto kernel = product_kernel<channels, slots, tiles>;
    launch.allow_shared_memory<product_kernel<channels, slots, tiles>>(p.shared_bytes);
    const int columns = p.groups * p.channel_blocks;
    const int all_tiles = p.batch * p.depth_blocks * p.plane_tiles;
    const int in_parallel = std::clamp(multiprocessors(launch) / columns, 1, all_tiles);
    kernel<<<dim3(static_cast<unsigned>(in_parallel), static_cast<unsigned>(columns)), block_threads,
             p.shared_bytes, launch.stream()>>>(detail::ptr<float>(input), to,
                                                bias.defined() ? detail::ptr<float>(bias) : nullptr,
                                                detail::mutable_ptr<float>(output), p);
    launch.check();
  });
}

}  // namespace strided

bool strided_wgmma_takes(const Conv3dGeometry& g, bool transposed) {
  return strided_plan(g, transposed, strided_tile(g, transposed)).has_value();
}

void conv3d_strided_wgmma(const Tensor& big, const Tensor& weight, const Tensor& bias, Tensor& small,
                          Conv3dGeometry g) {
  strided::run("conv3d", big, weight, bias, small, g, false);
}

void conv_transpose3d_strided_wgmma(const Tensor& small, const Tensor& weight, const Tensor& bias,
                                    Tensor& big, Conv3dGeometry g) {
  strided::run("conv_transpose3d", small, weight, bias, big, g, true);
}

}  // namespace vox::cuda
