// The launchers of implicit_gemm_wgmma.cuh.

#include <voxgrad/core/factories.h>
#include <voxgrad/cuda/conv3d/hopper.h>
#include <voxgrad/cuda/conv3d/kernels.h>
#include <voxgrad/cuda/launch.h>
#include <voxgrad/cuda/conv3d/implicit_gemm_wgmma.cuh>

#include <algorithm>
#include <vector>

namespace vox::cuda {

namespace {

using flat::Tf32;
using flat::Tile;

constexpr int64_t most_shared = 227 * 1024 - flat::barrier_bytes;
constexpr int64_t most_phases = 8;  // with taps; each is a launch

/// Calls f(tile) with the tile for the problem: the fewest blocks of channels and then the least padding, as
/// many depths as sums have registers for, and the largest group of taps along d that divides their number.
template <class Operand, class F>
auto visit_tile(int64_t out_per_group, int taps_d, F f) {
  const auto with = [&]<int channels, int depths>() {
    if (taps_d % 3 == 0) return f(Tile<Operand, channels, depths, 3>{});
    if (taps_d % 2 == 0) return f(Tile<Operand, channels, depths, 2>{});
    return f(Tile<Operand, channels, depths, 1>{});
  };
  const int64_t eighths = (out_per_group + 7) / 8, blocks = (eighths + 7) / 8;
  const int64_t channels = (eighths + blocks - 1) / blocks * 8;
  if (channels <= 16) return with.template operator()<16, 6>();
  if (channels <= 24) return with.template operator()<24, 7>();
  if (channels <= 32) return with.template operator()<32, 4>();
  if (channels <= 48) return with.template operator()<48, 3>();
  return with.template operator()<64, 2>();
}

int64_t out_per_group(const Conv3dGeometry& g, bool transposed) {
  return transposed ? g.big_per_group() : g.small_per_group();
}

/// The phases with taps, each as a product; nothing if one of them cannot be computed here.
std::optional<std::vector<FlatAxes>> live_phases(const Conv3dGeometry& g, bool transposed) {
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
__global__ void __launch_bounds__(256)
    fill_dead_kernel(float* output, const float* bias, int64_t numel, int channels, Triple extent,
                     Triple stride, LiveResidues live) {
  for (int64_t i = int64_t{blockIdx.x} * blockDim.x + threadIdx.x; i < numel;
       i += int64_t{gridDim.x} * blockDim.x) {
    const int64_t w = i % extent.w, rows = i / extent.w, h = rows % extent.h, planes = rows / extent.h,
                  d = planes % extent.d;
    if (live.d >> d % stride.d & live.h >> h % stride.h & live.w >> w % stride.w & 1) continue;
    output[i] = bias ? bias[planes / extent.d % channels] : 0.0f;
  }
}

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
      detail::mutable_ptr<float>(output), bias.defined() ? detail::ptr<float>(bias) : nullptr, output.numel(),
      static_cast<int>(g.big_channels), g.big, g.stride, live);
  launch.check();
}

int multiprocessors(const Launch& launch) {
  int device = 0, count = 0;
  launch.check(cudaGetDevice(&device));
  launch.check(cudaDeviceGetAttribute(&count, cudaDevAttrMultiProcessorCount, device));
  return count;
}

template <class Tile>
void launch_product(const char* op, const Tensor& input, const Tensor& weight, const Tensor& bias,
                    Tensor& output, const Conv3dGeometry& g, bool transposed, const FlatProduct& p) {
  using Element = typename Tile::Element;
  const int64_t numel = flat::packed_numel<Tile>(p);
  Tensor packed = empty({numel * static_cast<int64_t>(sizeof(Element)) / 4}, weight.options());
  const Launch launch(op, output, {&input, &weight, &bias, &packed});
  auto* const to = reinterpret_cast<Element*>(detail::mutable_ptr<float>(packed));
  flat::pack_kernel<Tile><<<grid_for(numel, 256), 256, 0, launch.stream()>>>(
      detail::ptr<float>(weight), to, p, transposed, static_cast<int>(g.kernel.h),
      static_cast<int>(g.kernel.w), g.taps(), numel);
  const int shared = flat::barrier_bytes + static_cast<int>(shared_bytes(p, Tile::host));
  const auto kernel = flat::product_kernel<Tile>;
  launch.check(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, shared));
  const unsigned grid = static_cast<unsigned>(std::min<int64_t>(p.jobs(), multiprocessors(launch)));
  kernel<<<grid, flat::block_threads, static_cast<size_t>(shared), launch.stream()>>>(
      detail::ptr<float>(input), to, bias.defined() ? detail::ptr<float>(bias) : nullptr,
      detail::mutable_ptr<float>(output), p);
  launch.check();
}

template <class Operand>
void implicit_gemm_wgmma(const char* op, const Tensor& input, const Tensor& weight, const Tensor& bias,
                         Tensor& output, const Conv3dGeometry& g, bool transposed) {
  if (g.batch == 0) return;
  const auto phases = *live_phases(g, transposed);
  if (transposed) fill_dead(Launch(op, output, {&bias}), bias, output, g, phases);
  for (const FlatAxes& axes : phases)
    visit_tile<Operand>(out_per_group(g, transposed), axes.d.taps, [&](auto tile) {
      using Tile = decltype(tile);
      launch_product<Tile>(op, input, weight, bias, output, g, transposed,
                           *flat_product(g, transposed, axes, Tile::host, most_shared));
    });
}

}  // namespace

bool implicit_gemm_wgmma_takes(const Conv3dGeometry& g, bool transposed) {
  if (!has_wgmma()) return false;
  if (g.batch == 0) return true;
  const auto phases = live_phases(g, transposed);
  return phases && std::ranges::all_of(*phases, [&](const FlatAxes& axes) {
           return visit_tile<Tf32>(out_per_group(g, transposed), axes.d.taps, [&](auto tile) {
             return flat_product(g, transposed, axes, decltype(tile)::host, most_shared).has_value();
           });
         });
}

void conv3d_implicit_gemm_wgmma(const Tensor& big, const Tensor& weight, const Tensor& bias, Tensor& small,
                                Conv3dGeometry g) {
  implicit_gemm_wgmma<Tf32>("conv3d", big, weight, bias, small, g, false);
}

void conv_transpose3d_implicit_gemm_wgmma(const Tensor& small, const Tensor& weight, const Tensor& bias,
                                          Tensor& big, Conv3dGeometry g) {
  implicit_gemm_wgmma<Tf32>("conv_transpose3d", small, weight, bias, big, g, true);
}

}  // namespace vox::cuda
