#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

// The conv3d family by its index rule, o = i * stride - padding + k * dilation, in double, one output at a
// time. It is not optimised, and shares no code with the library.

namespace vox::reference {

struct Conv3d {
  int64_t batch, big_channels, small_channels, groups;
  std::array<int64_t, 3> big, small, kernel, stride, padding, dilation;

  int64_t big_cells() const { return big[0] * big[1] * big[2]; }
  int64_t small_cells() const { return small[0] * small[1] * small[2]; }
  int64_t taps() const { return kernel[0] * kernel[1] * kernel[2]; }
  int64_t big_per_group() const { return big_channels / groups; }
  int64_t small_per_group() const { return small_channels / groups; }
  int64_t big_numel() const { return batch * big_channels * big_cells(); }
  int64_t small_numel() const { return batch * small_channels * small_cells(); }
  int64_t weight_numel() const { return small_channels * big_per_group() * taps(); }
};

// One output each, without bias, at a flat row-major index of the output. T is float or double.
template <class T>
double conv3d_at(const Conv3d& c, const T* big, const T* weight, int64_t small_index);
template <class T>
double conv_transpose3d_at(const Conv3d& c, const T* small, const T* weight, int64_t big_index);
template <class T>
double weight_grad_at(const Conv3d& c, const T* big, const T* small, int64_t weight_index);

using Values = std::vector<double>;

// Whole tensors. An empty bias means none.
Values conv3d(const Conv3d& c, const Values& big, const Values& weight, const Values& bias = {});
Values conv_transpose3d(const Conv3d& c, const Values& small, const Values& weight, const Values& bias = {});
Values weight_grad(const Conv3d& c, const Values& big, const Values& small);
/// Sum of every channel over batch and cells.
Values bias_grad(const Values& grad, int64_t batch, int64_t channels, int64_t cells);

}  // namespace vox::reference
