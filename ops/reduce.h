#pragma once

#include <voxgrad/ops/sum.h>

// More reductions: their arguments mean what ops/sum.h says.

namespace vox {

/// Largest / smallest element of any dtype; NaN if there is one. ShapeError if there are no elements. Equal
/// extrema share the gradient equally.
Tensor max(const Tensor& x, const Shape& dims = {}, Flag keepdim = false);
Tensor min(const Tensor& x, const Shape& dims = {}, Flag keepdim = false);
/// The same over one dimension, with the index (i64) of the first extremum, which gets the gradient alone.
/// Mind the braces: `max(x, 1)` is this, as in PyTorch, and `max(x, {1})` is the form above, PyTorch's amax.
struct ValuesAndIndices {
  Tensor values, indices;
};
ValuesAndIndices max(const Tensor& x, detail::Integer auto dim, Flag keepdim = false);
ValuesAndIndices min(const Tensor& x, detail::Integer auto dim, Flag keepdim = false);

/// Product of any dtype, in pairs: ((a b) (c d)) ... i64, u8 and bool give an i64, which wraps around. The
/// product of no elements is 1. The gradients are exact for zeros too.
Tensor prod(const Tensor& x, const Shape& dims = {}, Flag keepdim = false);

/// Whether any / all elements are not 0. Any dtype. any() of no elements is false, all() is true.
Tensor any(const Tensor& x, const Shape& dims = {}, Flag keepdim = false);
Tensor all(const Tensor& x, const Shape& dims = {}, Flag keepdim = false);

/// First index (i64) of the largest / smallest element within the reduced dimensions, counted in row-major
/// order over them. Any dtype; a NaN counts as the extremum. ShapeError if there are no elements. Not
/// differentiable.
Tensor argmax(const Tensor& x, const Shape& dims = {}, Flag keepdim = false);
Tensor argmin(const Tensor& x, const Shape& dims = {}, Flag keepdim = false);

/// The variance, sum (x - mean)^2 / (count - correction) with a divisor of at least 0, and the mean, in one
/// pass. Floating dtypes. NaN if there are no elements, and for a variance of 0 / 0. Gradients: 2 g (x -
/// mean) / (count - correction), and g / count.
struct VarMean {
  Tensor var, mean;
};
VarMean var_mean(const Tensor& x, const Shape& dims = {}, Real correction = 1, Flag keepdim = false);
Tensor var(const Tensor& x, const Shape& dims = {}, Real correction = 1, Flag keepdim = false);
/// The square root of the variance; its gradient is 0 where it is 0.
Tensor std(const Tensor& x, const Shape& dims = {}, Real correction = 1, Flag keepdim = false);

/// The vector norm: sum |x| for p = 1, sqrt(sum x^2) for p = 2, max |x| for p = infinity. Floating dtypes.
/// Gradient 0 where the norm is 0. ValueError for any other p; ShapeError for the maximum of no elements.
Tensor norm(const Tensor& x, Real p = 2, const Shape& dims = {}, Flag keepdim = false);

/// log(sum(exp(x))), computed on x minus its maximum. Floating dtypes. -inf if all are -inf, with gradient 0,
/// or if there are no elements. Gradient: g exp(x - y), with y the result.
Tensor logsumexp(const Tensor& x, const Shape& dims = {}, Flag keepdim = false);

/// exp(x) / sum(exp(x)) along one dimension, computed on x minus its maximum; and its logarithm. Floating
/// dtypes. NaN along `dim` where there is a NaN or +inf, or only -inf.
Tensor softmax(const Tensor& x, Int dim);
Tensor log_softmax(const Tensor& x, Int dim);

namespace detail {
ValuesAndIndices extremum_along(bool largest, const Tensor& x, int64_t dim, bool keepdim);
}

ValuesAndIndices max(const Tensor& x, detail::Integer auto dim, Flag keepdim) {
  return detail::extremum_along(true, x, static_cast<int64_t>(dim), keepdim);
}
ValuesAndIndices min(const Tensor& x, detail::Integer auto dim, Flag keepdim) {
  return detail::extremum_along(false, x, static_cast<int64_t>(dim), keepdim);
}
ValuesAndIndices Tensor::max(detail::Integer auto dim, Flag keepdim) const {
  return vox::max(*this, dim, keepdim);
}
ValuesAndIndices Tensor::min(detail::Integer auto dim, Flag keepdim) const {
  return vox::min(*this, dim, keepdim);
}

}  // namespace vox
