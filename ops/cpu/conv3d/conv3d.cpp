// The conv3d family on the CPU: how a method is chosen.
//
//   conv3d, conv_transpose3d   dense correlations of tiles          correlate.cpp
//   conv3d_weight_grad         dot products of rows of tiles        weight_grad.cpp
//   all other cases            the definition                       direct.cpp
//
// The methods on tiles refuse two cases: kernels so long that even a tile of one row needs too much memory,
// and numbers that are not finite where the padding's zeros could have met them. bf16 and f16 become f32 when
// they are copied into a tile; each result is rounded once.

#include <voxgrad/core/parallel.h>
#include <voxgrad/ops/cpu/conv3d/tile.h>
#include <voxgrad/ops/cpu/conv3d/ways.h>
#include <voxgrad/ops/cpu/simd/reduce.h>
#include <voxgrad/ops/in_f32.h>
#include <voxgrad/ops/kernels.h>

namespace vox::cpu {
namespace {

/// Calls f(numbers, count) on n numbers in the type of the arithmetic: on all in place, or on some at a time.
template <class S, class F>
void with_opmath(const S* from, int64_t n, const F& f) {
  if constexpr (std::is_same_v<S, opmath_t<S>>) {
    f(from, n);
  } else {
    opmath_t<S> wide[1024];
    for (; n > 0; from += 1024, n -= 1024) {
      copy_row(from, std::min<int64_t>(n, 1024), wide);
      f(wide, std::min<int64_t>(n, 1024));
    }
  }
}

constexpr ByIsa sum_kernels = VOX_BY_ISA(sum_kernels);

/// Sums every channel over batch and cells, in double: first pieces of rows, then their sums in order.
template <class T>
void bias_grad(const T* grad, T* dbias, int64_t batch, int64_t channels, int64_t cells) {
  constexpr int64_t piece = 1 << 15;
  const int64_t pieces = (cells + piece - 1) / piece, per_channel = batch * pieces;
  std::vector<double> sums(static_cast<size_t>(channels * per_channel));
  parallel_for(channels * per_channel, 1 + piece / cells, [&](int64_t begin, int64_t end) {
    for (int64_t t = begin; t < end; ++t) {
      const int64_t c = t / per_channel, n = t % per_channel / pieces, first = t % pieces * piece;
      const T* from = grad + (n * channels + c) * cells + first;
      const int64_t count = std::min(piece, cells - first);
      double sum = 0;
      with_opmath(from, count, [&]<class U>(const U* x, int64_t k) { sum += sum_kernels.of<U>()(x, k); });
      sums[static_cast<size_t>(t)] = sum;
    }
  });
  for (int64_t c = 0; c < channels; ++c) {
    double sum = 0;
    for (int64_t k = 0; k < per_channel; ++k) sum += sums[static_cast<size_t>(c * per_channel + k)];
    dbias[c] = static_cast<T>(sum);
  }
}

}  // namespace

void conv3d(const Tensor& big, const Tensor& weight, const Tensor& bias, Tensor& small, Conv3dGeometry g,
            Float32Precision) {
  const bool done = visit_floating_storage("conv3d", big.dtype(), [&]<class T>(T) {
    const Lattices l = conv3d_lattices(g);
    return Correlation<T, opmath_t<T>>{.input = detail::ptr<T>(big),
                                       .weight = detail::ptr<T>(weight),
                                       .bias = detail::ptr_or_null<T>(bias),
                                       .output = detail::mutable_ptr<T>(small),
                                       .batch = g.batch,
                                       .groups = g.groups,
                                       .in_channels = g.big_per_group(),
                                       .out_channels = g.small_per_group(),
                                       .weight_per_in = g.taps(),
                                       .weight_per_out = g.big_per_group() * g.taps(),
                                       .weight_per_group = g.small_per_group() * g.big_per_group() * g.taps(),
                                       .kernel = g.kernel,
                                       .out_size = g.small,
                                       .phases = {{{l[0]}, {l[1]}, {l[2]}}}}
        .run();
  });
  if (!done) in_f32<&conv3d_direct>(big, weight, bias, small, g);
}

void conv_transpose3d(const Tensor& small, const Tensor& weight, const Tensor& bias, Tensor& big,
                      Conv3dGeometry g, Float32Precision) {
  const bool done = visit_floating_storage("conv_transpose3d", small.dtype(), [&]<class T>(T) {
    return Correlation<T, opmath_t<T>>{
        .input = detail::ptr<T>(small),
        .weight = detail::ptr<T>(weight),
        .bias = detail::ptr_or_null<T>(bias),
        .output = detail::mutable_ptr<T>(big),
        .batch = g.batch,
        .groups = g.groups,
        .in_channels = g.small_per_group(),
        .out_channels = g.big_per_group(),
        .weight_per_in = g.big_per_group() * g.taps(),
        .weight_per_out = g.taps(),
        .weight_per_group = g.small_per_group() * g.big_per_group() * g.taps(),
        .kernel = g.kernel,
        .out_size = g.big,
        .phases = {conv_transpose3d_lattices(g, 0), conv_transpose3d_lattices(g, 1),
                   conv_transpose3d_lattices(g, 2)}}
        .run();
  });
  if (!done) in_f32<&conv_transpose3d_direct>(small, weight, bias, big, g);
}

void conv3d_weight_grad(const Tensor& big, const Tensor& small, Tensor& dweight, Tensor& dbias, Grid bias_of,
                        Conv3dGeometry g, Float32Precision) {
  visit_floating_storage("conv3d_weight_grad", big.dtype(), [&]<class T>(T) {
    if (!weight_grad_by_tiles<T, opmath_t<T>>(detail::ptr<T>(big), detail::ptr<T>(small),
                                              detail::mutable_ptr<T>(dweight), g))
      in_f32<&conv3d_weight_grad_direct>(big, small, dweight, g);
    if (dbias.defined()) {
      const bool of_big = bias_of == Grid::big;
      bias_grad(detail::ptr<T>(of_big ? big : small), detail::mutable_ptr<T>(dbias), g.batch,
                of_big ? g.big_channels : g.small_channels, of_big ? g.big_cells() : g.small_cells());
    }
  });
}

}  // namespace vox::cpu
