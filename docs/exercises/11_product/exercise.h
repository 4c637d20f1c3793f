#pragma once

#include "docs/exercises/ladder/layer.h"

namespace exercise {

/// The layer of ladder/layer.h for one volume, on one thread: input of shape (in_channels, cells), weight of
/// shape (in_channels, rows), output of shape (out_channels, 32, 32, 32), which holds
/// NaNs at first.
void conv_transpose3d(const float* input, const float* weight, float* output);

}  // namespace exercise
