#pragma once

// Launches implicit_gemm_wgmma.cuh: each .cu file that includes this has one kind of operands, so that they
// compile side by side.

#include <voxgrad/cuda/conv3d/kernels.h>
#include <voxgrad/cuda/conv3d/multiprocessors.h>
#include <voxgrad/cuda/launch.h>
#include <voxgrad/cuda/conv3d/implicit_gemm_wgmma.cuh>

#include <algorithm>
#include <vector>

namespace vox::cuda::flat {

constexpr int64_t most_shared = 227 * 1024 - barrier_bytes;
constexpr int64_t most_phases = 8;  // with taps; each is a launch

/// Calls f(tile) with the tile for the problem: the fewest blocks of channels and then the least padding, as
/// many depths as sums have registers for (two sums where operands are split), and the largest group of taps
/// along d that divides their number.
template <class Storage, class Operand, class F>
auto visit_tile(int64_t out_per_group, int taps_d, F f) {
  constexpr bool split = Operand::parts > 1, scaled = std::is_same_v<Operand, F16x3>;
  const auto with = [&]<int channels, int depths>() {
    if (taps_d % 3 == 0) return f(Tile<Storage, Operand, channels, depths, 3>{});
    if (taps_d % 2 == 0) return f(Tile<Storage, Operand, channels, depths, 2>{});
    return f(Tile<Storage, Operand, channels, depths, 1>{});
  };
  const int64_t eighths = (out_per_group + 7) / 8, blocks = (eighths + 7) / 8;
  const int64_t channels = (eighths + blocks - 1) / blocks * 8;
  if (channels <= 16) return with.template operator() < 16, scaled ? 4 : split ? 3 : 6 > ();
  if (channels <= 24) return with.template operator() < 24, split ? 3 : 7 > ();
  if (channels <= 32) return with.template operator() < 32, split ? 2 : 4 > ();
  if (channels <= 48) return with.template operator() < 48, split ? 2 : 3 > ();
  return with.template operator() < 64, split ? 1 : 2 > ();
}

inline int64_t out_per_group(const Conv3dGeometry& g, bool transposed) {
  return transposed ? g.big_per_group() : g.small_per_group();
}

/// The phases with taps, each as a product; nothing if one of them cannot be computed here.
inline std::optional<std::vector<FlatAxes>> live_phases(const Conv3dGeometry& g, bool transposed) {
  std::vector<FlatAxes> live;
  Triple phases = 1;
  if (transposed) {
    for (int64_t axis = 0; axis < 3; ++axis) phases[axis] = std::min(g.stride[axis], g.big[axis]);
    if (std::max({phases.d, phases.h, phases.w}) > 64) return std::nullopt;  // bits of fill_dead
  } else if (std::max({g.stride.d, g.stride.h, g.stride.w}) > 1) {
    return std::nullopt;
  }
  for (int64_t d = 0; d < phases.d; ++d)
    for (int64_t h = 0; h < phases.h; ++h)
      for (int64_t w = 0; w < phases.w; ++w) {
        const FlatAxes axes = flat_axes(g, transposed, {d, h, w});
        if (axes.dead()) continue;
        if (live.size() == most_phases) return std::nullopt;
        live.push_back(axes);
      }
  return live;
}

/// Writes the bias to outputs that no tap reaches: those with a residue, along some axis, whose bit is unset.
struct LiveResidues {
  unsigned long long d = 0, h = 0, w = 0;
};
template <class Storage>
__global__ void __launch_bounds__(256)
    fill_dead_kernel(Storage* output, const Storage* bias, int64_t numel, int channels, Triple extent,
                     Triple stride, LiveResidues live) {
  for (int64_t i = int64_t{blockIdx.x} * blockDim.x + threadIdx.x; i < numel;
       i += int64_t{gridDim.x} * blockDim.x) {
    const int64_t w = i % extent.w, rows = i / extent.w, h = rows % extent.h, planes = rows / extent.h,
                  d = planes % extent.d;
    if (live.d >> d % stride.d & live.h >> h % stride.h & live.w >> w % stride.w & 1) continue;
    output[i] = bias ? bias[planes / extent.d % channels] : Storage(0.0f);
  }
}

template <class Storage>
void fill_dead(const Launch& launch, const Tensor& bias, Tensor& output, const Conv3dGeometry& g,
               const std::vector<FlatAxes>& phases) {
  if (static_cast<int64_t>(phases.size()) == g.stride.d * g.stride.h * g.stride.w) return;
  LiveResidues live;
  for (const FlatAxes& p : phases) {
    live.d |= 1ull << p.d.out_base;
    live.h |= 1ull << p.h.out_base;
    live.w |= 1ull << p.w.out_base;
  }
  fill_dead_kernel<<<grid_for(output.numel(), 256), 256, 0, launch.stream()>>>(
      vox::detail::mutable_ptr<Storage>(output), bias.defined() ? vox::detail::ptr<Storage>(bias) : nullptr,
      output.numel(), static_cast<int>(g.big_channels), g.big, g.stride, live);
  launch.check();
}

/// Whether 16-bit input can be read as words.
template <class Storage>
bool in_words(const FlatProduct& p, const Tensor& input) {
  return is_16_bit_v<Storage> && rows_are_words(p) &&
         reinterpret_cast<uintptr_t>(vox::detail::ptr<Storage>(input)) % sizeof(uint32_t) == 0;
}

template <class Tile>
void launch_product(const Launch& launch, const Tensor& input, const Tensor& weight, const Tensor& bias,
                    Tensor& output, const Conv3dGeometry& g, bool transposed, FlatProduct p,
                    int64_t* not_split, const int64_t* wanted) {
  using Element = typename Tile::Element;
  using Storage = typename Tile::Storage;
  p.in_words = in_words<Storage>(p, input);
  const int64_t numel = packed_numel<Tile>(p),
                columns = int64_t{p.groups} * p.channel_blocks * Tile::channels;
  const int64_t packed_bytes = numel * static_cast<int64_t>(sizeof(Element));  // a multiple of 16
  const Workspace packed(launch, packed_bytes + (Tile::scaled ? columns * int64_t{sizeof(float)} : 0));
  float* const unscale = reinterpret_cast<float*>(packed.as<unsigned char>() + packed_bytes);
  if constexpr (Tile::scaled)
    pack_scaled_kernel<Tile><<<static_cast<unsigned>(columns), scaling_threads, 0, launch.stream()>>>(
        vox::detail::ptr<float>(weight), packed.as<Element>(), unscale, p, transposed,
        static_cast<int>(g.kernel.h), static_cast<int>(g.kernel.w), g.taps(), not_split);
  else
    pack_kernel<Tile><<<grid_for(numel, 256), 256, 0, launch.stream()>>>(
        vox::detail::ptr<Storage>(weight), packed.as<Element>(), p, transposed, static_cast<int>(g.kernel.h),
        static_cast<int>(g.kernel.w), g.taps(), numel, not_split, wanted);
  const int shared = barrier_bytes + static_cast<int>(shared_bytes(p, Tile::host)) + Tile::zero_bytes;
  launch.allow_shared_memory<product_kernel<Tile>>(shared);
  const unsigned grid = static_cast<unsigned>(std::min<int64_t>(p.jobs(), multiprocessors(launch)));
  product_kernel<Tile><<<grid, block_threads, static_cast<size_t>(shared), launch.stream()>>>(
      vox::detail::ptr<Storage>(input), packed.as<Element>(),
      bias.defined() ? vox::detail::ptr<Storage>(bias) : nullptr, vox::detail::mutable_ptr<Storage>(output),
      unscale, p, not_split, wanted);
  launch.check();
}

/// The product in tiles of this kind; nothing if it has none.
template <class Tile>
std::optional<FlatProduct> tiled_product(const Conv3dGeometry& g, bool transposed, const FlatAxes& axes) {
  auto p = flat_product(g, transposed, axes, Tile::host, most_shared - Tile::zero_bytes);
  // A pair of taps wants the second to lie behind the first, also from the end of a row to the next.
  if (p && Tile::host.pairs && p->h.taps > 1 && p->row_shift <= (p->w.taps - 1) * p->column_shift) p.reset();
  return p;
}

/// Whether every product of the problem has a tiling.
template <class Storage, class Operand>
bool takes(const Conv3dGeometry& g, bool transposed) {
  if (g.batch == 0) return true;
  const auto phases = live_phases(g, transposed);
  return phases && std::ranges::all_of(*phases, [&](const FlatAxes& axes) {
           return visit_tile<Storage, Operand>(out_per_group(g, transposed), axes.d.taps, [&](auto tile) {
             return tiled_product<decltype(tile)>(g, transposed, axes).has_value();
           });
         });
}

/// `not_split`, for operands that are: one i64, 0, which becomes 1 if a value cannot be. `wanted`: as for
/// conv3d_direct_if; undefined means always. Where it is defined, outputs without taps have been written.
template <class Storage, class Operand>
void run(const char* op, const Tensor& input, const Tensor& weight, const Tensor& bias, Tensor& output,
         const Conv3dGeometry& g, bool transposed, Tensor not_split = {}, const Tensor& wanted = {}) {
  if (g.batch == 0) return;
  const Launch launch(op, output, {&input, &weight, &bias, &not_split, &wanted});
  int64_t* const mark = not_split.defined() ? vox::detail::mutable_ptr<int64_t>(not_split) : nullptr;
  const int64_t* const if_wanted = wanted.defined() ? vox::detail::ptr<int64_t>(wanted) : nullptr;
  const auto phases = *live_phases(g, transposed);
  if (transposed && !if_wanted) fill_dead<Storage>(launch, bias, output, g, phases);  // else done before
  for (const FlatAxes& axes : phases)
    visit_tile<Storage, Operand>(out_per_group(g, transposed), axes.d.taps, [&](auto tile) {
      using Tile = decltype(tile);
      launch_product<Tile>(launch, input, weight, bias, output, g, transposed,
                           *tiled_product<Tile>(g, transposed, axes), mark, if_wanted);
    });
}

}  // namespace vox::cuda::flat
