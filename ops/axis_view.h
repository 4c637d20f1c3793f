#pragma once

#include <voxgrad/core/shape.h>

namespace vox {

/// Sizes before, of and after dimension `dim` of a dense tensor: its elements as (outer, axis, inner).
struct AxisView {
  int64_t outer = 1, axis = 1, inner = 1;
  AxisView(const Shape& shape, int64_t dim) : axis(shape[dim]) {
    for (int64_t i = 0; i < dim; ++i) outer *= shape[i];
    for (int64_t i = dim + 1; i < shape.rank(); ++i) inner *= shape[i];
  }
};

}  // namespace vox
