#include <voxgrad/ops/cpu/isa.h>
#include <voxgrad/ops/cpu/simd/elementwise.h>
#include <voxgrad/ops/cpu/walk.h>
#include <voxgrad/ops/elementwise_kernels.h>

#include <algorithm>
#include <type_traits>

// Elementwise arithmetic and functions: the kernel of the dtype and the instruction set, run by run (Note
// [Walks]).

namespace vox::cpu {
namespace {

constexpr ByIsa kernels{&simd::baseline::elementwise_kernels, VOX_X86(&simd::v3::elementwise_kernels),
                        VOX_X86(&simd::v4::elementwise_kernels)};

template <class T>
const simd::ElementwiseOf<T>& kernels_of() {
  const simd::ElementwiseKernels& here = kernels.here();
  if constexpr (std::is_same_v<T, float>)
    return here.f32;
  else if constexpr (std::is_same_v<T, double>)
    return here.f64;
  else if constexpr (std::is_same_v<T, int64_t>)
    return here.i64;
  else
    return here.u8;
}

template <class Kernel>
Kernel present(const char* function, Kernel kernel) {
  check<DTypeError>(kernel != nullptr, function, ": this op has no kernel for integers");
  return kernel;
}

/// A type of the same size for dtypes that are only moved.
template <class T>
using Moved = std::conditional_t<std::is_same_v<T, bool>, uint8_t, T>;

}  // namespace

void unary(Unary op, const Tensor& x, const Tensor& y, Scalar p, Scalar q) {
  visit_dtype(x.dtype(), [&]<class T>(T) {
    if constexpr (std::is_same_v<T, bool>) {
      throw DTypeError("unary: no arithmetic on dtype bool");
    } else {
      const auto kernel = present("unary", kernels_of<T>().unary[static_cast<int>(op)]);
      const T first = detail::element<T>(p), second = detail::element<T>(q);
      for_runs(
          [=](const Run& r) {
            if (r.step[1] == 1) return kernel(r.pointer<T>(1), r.pointer<T>(0), r.n, first, second, r.stream);
            kernel(r.pointer<T>(1), r.pointer<T>(0), 1, first, second, false);
            std::fill_n(r.pointer<T>(0) + 1, r.n - 1, *r.pointer<T>(0));
          },
          y, x);
    }
  });
}

void binary(Binary op, const Tensor& a, const Tensor& b, const Tensor& y, Scalar p) {
  visit_dtype(a.dtype(), [&]<class T>(T) {
    if constexpr (std::is_same_v<T, bool>) {
      throw DTypeError("binary: no arithmetic on dtype bool");
    } else {
      const auto kernel = present("binary", kernels_of<T>().binary[static_cast<int>(op)]);
      const T scale = detail::element<T>(p);
      for_runs(
          [=](const Run& r) {
            kernel(r.pointer<T>(1), r.step[1], r.pointer<T>(2), r.step[2], r.pointer<T>(0), r.n, scale,
                   r.stream);
          },
          y, a, b);
    }
  });
}

void compare(Comparison op, const Tensor& a, const Tensor& b, const Tensor& y) {
  visit_dtype(a.dtype(), [&]<class E>(E) {
    using T = Moved<E>;
    const auto kernel = kernels_of<T>().compare[static_cast<int>(op)];
    for_runs(
        [=](const Run& r) {
          kernel(r.pointer<T>(1), r.step[1], r.pointer<T>(2), r.step[2], r.pointer<uint8_t>(0), r.n);
        },
        y, a, b);
  });
}

void where(const Tensor& condition, const Tensor& a, const Tensor& b, const Tensor& y) {
  visit_dtype(y.dtype(), [&]<class E>(E) {
    using T = Moved<E>;
    const auto kernel = kernels_of<T>().where;
    for_runs(
        [=](const Run& r) {
          kernel(r.pointer<uint8_t>(1), r.step[1], r.pointer<T>(2), r.step[2], r.pointer<T>(3), r.step[3],
                 r.pointer<T>(0), r.n, r.stream);
        },
        y, condition, a, b);
  });
}

}  // namespace vox::cpu
