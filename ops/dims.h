#pragma once

#include <voxgrad/core/shape.h>

namespace vox::detail {

/// normalize_dim for an op whose `dim` counts `places`, not the dimensions of its operand of rank `rank`: one
/// more if the op adds a dimension, and 1 for rank 0, of which ops accept the dims 0 and -1.
inline int64_t normalize_place(const char* function, int64_t dim, int64_t rank, int64_t places) {
  check<ShapeError>(dim >= -places && dim < places, function, ": dim ", dim, " is out of range for rank ",
                    rank, "; allowed are ", -places, " to ", places - 1);
  return dim < 0 ? dim + places : dim;
}

/// normalize_dim for ops that accept the dims 0 and -1 of a tensor of rank 0, as PyTorch does.
inline int64_t normalize_dim_or_0(const char* function, int64_t dim, int64_t rank) {
  return normalize_place(function, dim, rank, rank > 0 ? rank : 1);
}

}  // namespace vox::detail
