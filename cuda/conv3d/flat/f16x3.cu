// Launches kernel.cuh, for f32 split into two f16 numbers (f16x3.cuh): as accurate as f32 arithmetic, at half
// the cost of two TF32 numbers. It fails (sets `failed`) on values that f16 cannot represent.
//
// Guarantee. If the kernel does not fail,
//
//   |y - exact| <= (2^-21 + the f32 sum's own error) * sum |x||w|
//                  + 2^-47 * sum (M(x)|w|) + 2^-38 * sum (|x| M(w)),
//
// where M(x) is the largest value in the same window of a plane and the same 8 channels, and M(w) the largest
// weight of the output channel. The first line is the error of f32: a single product may reach 2^-21, and
// long sums stay far below it. The second line is smaller if one of the summed values has a normal size.
//
// The second line dominates where all 8 channels of a position are far below M(x), or all 8 weights of a tap
// far below M(w), and not all are 0: outputs may consist of such values alone. There the kernel fails: below
// 2^-25 M(x) at most (2^-29 mostly), and below 2^-17 M(w). It also fails on Inf, NaN, and planes whose
// largest value is beyond 2^96 or below 2^-80. Zeros are exact, so sparse data are computed here.
//
// Not guaranteed: a channel far smaller (as above) than another of its 8 at the same place is known only to
// 2^-47 of the larger one, which shows where the larger one meets weights that are 0 or much smaller. The
// same holds for a weight whose larger neighbours among the 8 channels meet zeros of the input.

#include <voxgrad/cuda/conv3d/call.h>
#include <voxgrad/cuda/conv3d/common/hopper.h>
#include <voxgrad/cuda/conv3d/common/recent.h>
#include <voxgrad/cuda/conv3d/flat/kernel.cuh>

#include <algorithm>
#include <utility>

namespace vox::cuda::conv::flat {

namespace {

template <class Tile>
void launch_product(const Launch& launch, const Conv3dCall& call, const Product& p) {
  const auto& [transposed, input, weight, bias, output, g, only_if, failed_tensor] = call;
  int64_t* const failed = vox::detail::mutable_ptr<int64_t>(failed_tensor);
  const Layout<Tile> layout{p, static_cast<int>(g.kernel.h), static_cast<int>(g.kernel.w)};
  const int64_t bytes = packed_bytes<F16x3>(layout);  // a multiple of 16
  const Workspace packed(launch, bytes + layout.columns() * int64_t{sizeof(float)});
  float* const unscale = reinterpret_cast<float*>(packed.as<unsigned char>() + bytes);
  pack_weights<F16x3>(launch, vox::detail::ptr<float>(weight), packed.as<unsigned char>(),
                      weights_of(g, transposed), layout, failed, nullptr, unscale);
  const int shared = barrier_bytes + static_cast<int>(shared_bytes(p, Tile::host)) + zero_bytes(Tile::host);
  launch.allow_shared_memory<product_kernel<Tile>>(shared);
  const unsigned grid = static_cast<unsigned>(std::min<int64_t>(p.jobs(), multiprocessors(launch)));
  product_kernel<Tile><<<grid, block_threads, static_cast<size_t>(shared), launch.stream()>>>(
      vox::detail::ptr<float>(input), packed.as<float16>(), vox::detail::ptr_or_null<float>(bias),
      vox::detail::mutable_ptr<float>(output), unscale, p, failed);
  launch.check();
}

/// Calls f with the Tile of a shape.
template <class F>
void visit_tile(const TileShape& shape, F f) {
  const auto one = [&]<int channels, int depths, int taps_d>() {
    if (shape == tile_of(channels, depths, taps_d)) f(Tile<channels, depths, taps_d>{});
  };
  [&]<size_t... i>(std::index_sequence<i...>) {
    (one.template operator()<tile_sizes[i].channels, tile_sizes[i].depths, 1>(), ...);
    (one.template operator()<tile_sizes[i].channels, tile_sizes[i].depths, 2>(), ...);
    (one.template operator()<tile_sizes[i].channels, tile_sizes[i].depths, 3>(), ...);
  }
  (std::make_index_sequence<std::size(tile_sizes)>{});
}

}  // namespace

void run(const Conv3dCall& call) {
  const Launch launch(call.op(), call.output, {&call.input, &call.weight, &call.bias, &call.failed});
  const auto& [shape, product] = *recall<make_plan>(call.geometry, call.transposed, machine_of(launch));
  visit_tile(shape, [&](auto tile) { launch_product<decltype(tile)>(launch, call, product); });
}

}  // namespace vox::cuda::conv::flat
