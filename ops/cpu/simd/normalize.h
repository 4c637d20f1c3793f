#pragma once

#include <cstdint>

#include <voxgrad/ops/cpu/isa.h>

namespace vox::cpu::simd {

/// A dense stretch of one row of a norm (ops/norm_geometry.h), with z = (x - mean) * (weight * rstd) + bias
/// and y = activation(z).
template <class T>
struct NormStretch {
  T mean, rstd;
  const T *weight, *bias;  ///< one number, or one for each element
  bool per_element;
  T negative_slope;  ///< of the Activation
};

/// Loops of norms. g is the gradient of y, and h that of z: g times the derivative of the activation. Each
/// sum has 32 lanes: element i goes to lane i % 32, and the lanes are added in a binary tree.
template <class T>
struct NormalizeOf {
  /// With the rounded mean `centre` of n numbers: the sums of x - centre and of (x - centre)^2.
  void (*moments)(const T* x, int64_t n, T* centre, T* rest, T* squares);
  void (*apply)(const T* x, const NormStretch<T>& s, T* y, int64_t n, bool stream);
  /// The sums of h and of h * (x - mean). If per_element, h counts times its weight.
  void (*gradient_sums)(const T* g, const T* x, const NormStretch<T>& s, int64_t n, T* sum, T* product);
  /// of_weight[i] += h * ((x - mean) * rstd) and of_bias[i] += h, of element i.
  void (*column_sums)(const T* g, const T* x, const NormStretch<T>& s, int64_t n, T* of_weight, T* of_bias);
  /// grad_x = rstd * (h * weight - offset - (x - mean) * slope); rstd * (h * weight) unless `of_x`.
  void (*gradient)(const T* g, const T* x, const NormStretch<T>& s, bool of_x, T offset, T slope, T* grad_x,
                   int64_t n, bool stream);
};

VOX_DECLARE_BY_ISA(OfReals<NormalizeOf>, normalize_kernels);

}  // namespace vox::cpu::simd
