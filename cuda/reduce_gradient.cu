#include <voxgrad/ops/kernels.h>
#include <voxgrad/ops/reduce_ops.h>
#include <voxgrad/cuda/exponential.cuh>
#include <voxgrad/cuda/map.cuh>

#include <limits>

// The gradients of reductions (ReduceGradientKernel), one line each; map.cuh maps them over the elements.

namespace vox::cuda {

namespace {

template <ReduceGradient kind, class T>
struct Gradient {
  using A = opmath_t<T>;
  __device__ A operator()(A g, A x, A r) const {
    const A apart = x - r;
    if constexpr (kind == ReduceGradient::difference) return g * apart;
    if constexpr (kind == ReduceGradient::sign) return g * (apart > 0 ? A(1) : apart < 0 ? A(-1) : apart);
    if constexpr (kind == ReduceGradient::exponential)
      return g * exponential<is_16_bit_v<T>>(r == -std::numeric_limits<A>::infinity() ? x : apart);
    if constexpr (kind == ReduceGradient::winner) return x == r || detail::is_nan(x) ? g : A(0);
  }
  __device__ A operator()(A g, A x, A r, A b) const { return ::fma(g, x - r, b); }
};

}  // namespace

void reduce_gradient(ReduceGradient kind, const Tensor& g, const Tensor& x, const Tensor& r, const Tensor& b,
                     Tensor& grad_x) {
  visit_floating_storage("reduce_gradient", x.dtype(), [&]<class T>(T) {
    using A = opmath_t<T>;
    using enum ReduceGradient;
    const auto run = [&]<ReduceGradient which, class R>(auto... more) {
      map("reduce_gradient", Gradient<which, T>{}, Out<T>{grad_x}, In<A>{g}, In<T>{x}, In<R>{r}, more...);
    };
    if (b.defined()) return run.template operator()<difference, A>(In<A>{b});
    if (kind == difference) return run.template operator()<difference, T>();
    if (kind == sign) return run.template operator()<sign, T>();
    if (kind == exponential) return run.template operator()<exponential, A>();
    return run.template operator()<winner, T>();
  });
}

}  // namespace vox::cuda
