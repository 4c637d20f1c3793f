#pragma once

#include <array>

#include <voxgrad/core/tensor.h>
#include <voxgrad/ops/element.h>

// How the plain kernels walk and read tensors.

namespace vox::plain {

/// Calls f(at) for every element of tensors of one shape, in row-major order; at[k] is the element's offset
/// in tensor k.
template <class F, class... Tensors>
void for_each_element(F f, const Tensor& first, const Tensors&... rest) {
  constexpr size_t count = 1 + sizeof...(rest);
  const std::array<const Tensor*, count> tensors{&first, &rest...};
  const Shape& shape = first.shape();
  Shape index = Shape::filled(shape.rank(), 0);
  std::array<int64_t, count> at{};
  for (int64_t i = 0; i < first.numel(); ++i) {
    f(at);
    for (int64_t d = shape.rank() - 1; d >= 0; --d) {  // counts up, as an odometer does
      const bool carries = ++index[d] == shape[d];
      for (size_t k = 0; k < count; ++k) at[k] += tensors[k]->strides()[d] * (carries ? 1 - shape[d] : 1);
      if (!carries) break;
      index[d] = 0;
    }
  }
}

/// Element `at` of t as a C, whatever t's dtype is.
template <class C>
C read(const Tensor& t, int64_t at) {
  return visit_dtype(t.dtype(), [&]<class T>(T) { return detail::convert<C>(detail::ptr<T>(t)[at]); });
}

/// y = f(x, ...) for every element. Each is computed in the opmath type of the first operand and rounded
/// once.
template <class F, class... Tensors>
void map(F f, const Tensor& y, const Tensor& x, const Tensors&... rest) {
  visit_opmath(x.dtype(), [&]<class C>(C) {
    visit_dtype(y.dtype(), [&]<class T>(T) {
      T* const out = detail::mutable_ptr<T>(y);
      for_each_element(
          [&](const auto& at) {
            size_t k = 0;
            const auto next = [&](const Tensor& t) { return read<C>(t, at[++k]); };
            std::array<C, 1 + sizeof...(rest)> v{next(x), next(rest)...};  // in this order, as in all braces
            out[at[0]] = detail::convert<T>(std::apply(f, v));
          },
          y, x, rest...);
    });
  });
}

}  // namespace vox::plain
