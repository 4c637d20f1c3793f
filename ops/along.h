#pragma once

#include <voxgrad/core/tensor.h>

namespace vox::detail {

/// f(x with dimension `dim` moved to the end), with that dimension moved back, dense. So a kernel needs rows
/// along the last dimension only. A tensor of rank 0 counts as a row of one element. Errors name `function`.
template <class F>
Tensor along(const char* function, const Tensor& x, int64_t dim, F f) {
  check_defined(function, "x", x);
  dim = normalize_dim_or_0(function, dim, x.rank());
  return in_the_name_of(function, [&] {
    if (x.rank() == 0) return f(x.reshape({1})).reshape({});
    if (dim == x.rank() - 1) return f(x);
    return f(x.transpose(dim, -1)).transpose(dim, -1).contiguous();
  });
}

}  // namespace vox::detail
