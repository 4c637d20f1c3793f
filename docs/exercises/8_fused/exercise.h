#pragma once

#include <cstdint>

#include <voxgrad/core/tensor.h>

namespace exercise {

// One channel: n numbers, dense in memory. With u = scale * x[i] + shift:

/// y[i] = max(u, 0)
void forward_row(const float* x, float scale, float shift, float* y, int64_t n);

struct ParameterGradients {
  float scale = 0, shift = 0;
};
/// With g = grad_y[i] where u > 0, and 0 elsewhere: grad_x[i] = g * scale. Returns the gradients of scale,
/// the sum of g * x[i], and of shift, the sum of g.
ParameterGradients backward_row(const float* x, float scale, float shift, const float* grad_y, float* grad_x,
                                int64_t n);

/// The same by one loop for each op, in op.cpp. backward_row must not be slower.
ParameterGradients backward_row_by_loops(const float* x, float scale, float shift, const float* grad_y,
                                         float* grad_x, int64_t n);

/// relu(scale * x + shift) for x of shape (C, N), scale and shift of shape (C,). op.cpp calls the two
/// functions above for each channel, so forward and backward are one pass over memory each.
vox::Tensor scale_shift_relu(const vox::Tensor& x, const vox::Tensor& scale, const vox::Tensor& shift);

}  // namespace exercise
