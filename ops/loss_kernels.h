#pragma once

#include <voxgrad/core/tensor.h>

// The private side of cross_entropy: y[n, c, r] = (target[n, r] == c), for a dense i64 target of
// (n, inner) and a dense bool y of (n, classes, inner) elements. A class out of range is hot nowhere.

namespace vox {
namespace cpu {
void one_hot(const Tensor& target, int64_t classes, int64_t inner, Tensor& y);
}
namespace cuda {
void one_hot(const Tensor& target, int64_t classes, int64_t inner, Tensor& y);
}
}  // namespace vox
