// The conv3d family on the CPU: how a kernel is chosen.
//
//   winograd   tiles of Winograd's factors (Note [Winograd])     correlate.cpp, weight_grad.cpp
//   tiled      dense correlations, or dot products, of tiles     correlate.cpp, weight_grad.cpp
//   direct     the definition, by Eigen's products               direct.cpp
//
// The first one that supports the problem computes it, but `direct` computes what leads from one cell to one
// cell. Where one of the others meets numbers that are not finite, and its arithmetic differs from the
// definition's, the next one computes the problem again. bf16 and f16 become f32 when they are copied into a
// tile or panel; each result is rounded once.

#include <voxgrad/core/check.h>
#include <voxgrad/ops/conv3d_kernel.h>
#include <voxgrad/ops/cpu/conv3d/tile.h>
#include <voxgrad/ops/cpu/conv3d/ways.h>
#include <voxgrad/ops/cpu/simd/reduce.h>
#include <voxgrad/ops/cpu/tasks.h>
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
      convert_run(from, wide, std::min<int64_t>(n, 1024));
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
  for_tasks(channels * per_channel, 1 + piece / cells, [&](int64_t t) {
    const int64_t c = t / per_channel, n = t % per_channel / pieces, first = t % pieces * piece;
    const T* from = grad + (n * channels + c) * cells + first;
    const int64_t count = std::min(piece, cells - first);
    double sum = 0;
    with_opmath(from, count, [&]<class U>(const U* x, int64_t k) { sum += sum_kernels.of<U>()(x, k); });
    sums[static_cast<size_t>(t)] = sum;
  });
  for (int64_t c = 0; c < channels; ++c) {
    double sum = 0;
    for (int64_t k = 0; k < per_channel; ++k) sum += sums[static_cast<size_t>(c * per_channel + k)];
    dbias[c] = static_cast<T>(sum);
  }
}

constexpr std::string_view names[]{"winograd", "tiled", "direct"};

/// Computes a pass of a problem, a Correlation or a WeightGrad, with the forced kernel, or the first.
template <class Problem>
void run(Conv3dPass pass, const Conv3dGeometry& g, const Problem& problem) {
  const std::string_view forced = forced_conv3d_kernel(pass);
  const auto* name = forced.empty() ? names : std::ranges::find(names, forced);
  // To pack all weights for the products of one cell costs more than the products.
  if (forced.empty() && pass != Conv3dPass::weight_grad && g.batch == 1 && g.big_cells() == 1 &&
      g.small_cells() == 1)
    return problem.by_definition();
  check<ValueError>(name != std::end(names), to_string(pass), ": the CPU has no kernel \"", forced,
                    "\", only winograd, tiled and direct");
  for (; *name != "direct"; ++name) {
    const Outcome outcome = problem.by_tiles(*name == "winograd");
    if (outcome == Outcome::done) return;
    check<ValueError>(outcome != Outcome::unsupported || *name != forced, to_string(pass),
                      ": the forced kernel \"", forced, "\" does not support big ", g.big_shape(), ", small ",
                      g.small_shape(), ", weight ", g.weight_shape(), ", stride ", g.stride, ", dilation ",
                      g.dilation);
  }
  problem.by_definition();
}

/// conv3d or conv_transpose3d.
void correlate(Conv3dPass pass, const Tensor& input, const Tensor& weight, const Tensor& bias, Tensor& output,
               const Conv3dGeometry& g) {
  const bool transposed = pass == Conv3dPass::conv_transpose3d;
  const int64_t per_big = g.taps(), per_small = g.big_per_group() * g.taps();  // strides of the weight
  visit_floating_storage(to_string(pass), input.dtype(), [&]<class T>(T) {
    Correlation<T, opmath_t<T>> problem{.input = detail::ptr<T>(input),
                                        .weight = detail::ptr<T>(weight),
                                        .bias = detail::ptr_or_null<T>(bias),
                                        .output = detail::mutable_ptr<T>(output),
                                        .batch = g.batch,
                                        .groups = g.groups,
                                        .in_channels = transposed ? g.small_per_group() : g.big_per_group(),
                                        .out_channels = transposed ? g.big_per_group() : g.small_per_group(),
                                        .weight_per_in = transposed ? per_small : per_big,
                                        .weight_per_out = transposed ? per_big : per_small,
                                        .weight_per_group = g.small_per_group() * per_small,
                                        .kernel = g.kernel,
                                        .out_size = transposed ? g.big : g.small};
    for (int64_t a = 0; a < 3; ++a)
      problem.phases[static_cast<size_t>(a)] =
          transposed ? conv_transpose3d_lattices(g, a) : std::vector{conv3d_lattice(g, a)};
    run(pass, g, problem);
  });
}

}  // namespace

void conv3d(const Tensor& big, const Tensor& weight, const Tensor& bias, Tensor& small, Conv3dGeometry g,
            Float32Precision) {
  correlate(Conv3dPass::conv3d, big, weight, bias, small, g);
}

void conv_transpose3d(const Tensor& small, const Tensor& weight, const Tensor& bias, Tensor& big,
                      Conv3dGeometry g, Float32Precision) {
  correlate(Conv3dPass::conv_transpose3d, small, weight, bias, big, g);
}

void conv3d_weight_grad(const Tensor& big, const Tensor& small, Tensor& dweight, Tensor& dbias, Grid bias_of,
                        Conv3dGeometry g, Float32Precision) {
  visit_floating_storage("conv3d_weight_grad", big.dtype(), [&]<class T>(T) {
    run(Conv3dPass::weight_grad, g,
        WeightGrad<T, opmath_t<T>>{detail::ptr<T>(big), detail::ptr<T>(small),
                                   detail::mutable_ptr<T>(dweight), g});
    if (dbias.defined()) {
      const bool of_big = bias_of == Grid::big;
      bias_grad(detail::ptr<T>(of_big ? big : small), detail::mutable_ptr<T>(dbias), g.batch,
                of_big ? g.big_channels : g.small_channels, of_big ? g.big_cells() : g.small_cells());
    }
  });
}

}  // namespace vox::cpu
