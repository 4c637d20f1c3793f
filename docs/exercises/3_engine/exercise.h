#pragma once

#include <voxgrad/core/tensor.h>

namespace exercise {

/// What output.backward(gradient) does: runs the tape from `output`, adds into grad() of every leaf that
/// requires grad, and releases each node that has run.
void backward(const vox::Tensor& output, const vox::Tensor& gradient);

}  // namespace exercise
