#pragma once

#include <functional>

#include <voxgrad/core/tensor.h>

namespace exercise {

/// Whether the gradient of f at x by backward agrees with central differences: for every element i of x and
/// every element j of f(x), the two values of d f(x)[j] / d x[i] differ by at most 1e-5 + 1e-3 *
/// |difference|. x is a contiguous f64 leaf that requires grad. Afterwards x and x.grad() are as before.
bool gradcheck(const std::function<vox::Tensor(const vox::Tensor&)>& f, const vox::Tensor& x);

}  // namespace exercise
