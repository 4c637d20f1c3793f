#pragma once

#include <voxgrad/ops/cpu/simd/vec.h>

// The sums of Note [Winograd] (ops/cpu/conv3d/winograd.h), along one axis, for n neighbours at once.

namespace vox::cpu::simd::VOXGRAD_ISA {

/// Four cells become the four factors of a pair of outputs. Writes up to a whole vector beyond n, but nothing
/// beyond to[k][room - 1]; reads up to a whole vector beyond n.
template <class T>
void winograd_cells(const T* const* from, int64_t n, T* const* to, int64_t room) {
  int64_t i = 0;
  for (; i < n && i + lanes<T> <= room; i += lanes<T>) {
    const Vec<T> x0 = load(from[0] + i), x1 = load(from[1] + i), x2 = load(from[2] + i),
                 x3 = load(from[3] + i);
    store(to[0] + i, x0 - x2);
    store(to[1] + i, x1 + x2);
    store(to[2] + i, x2 - x1);
    store(to[3] + i, x1 - x3);
  }
  for (; i < n; ++i) {
    const T x0 = from[0][i], x1 = from[1][i], x2 = from[2][i], x3 = from[3][i];
    to[0][i] = x0 - x2, to[1][i] = x1 + x2, to[2][i] = x2 - x1, to[3][i] = x1 - x3;
  }
}

/// Three weights become the four factors of the cells' factors.
template <class T>
void winograd_weights(const T* const* from, int64_t n, T* const* to) {
  for (int64_t i = 0; i < n; ++i) {
    const T w0 = from[0][i], w1 = from[1][i], w2 = from[2][i], half = T(0.5);
    to[0][i] = w0, to[1][i] = (w0 + w2 + w1) * half, to[2][i] = (w0 + w2 - w1) * half, to[3][i] = w2;
  }
}

/// Four products become the two outputs, in m[0] and m[1].
template <class T>
void winograd_outputs(T* const* m, int64_t n) {
  for (int64_t i = 0; i < n; ++i) {
    const T m1 = m[1][i], m2 = m[2][i];
    m[0][i] += m1 + m2, m[1][i] = m1 - m2 - m[3][i];
  }
}

/// Gradients of the two outputs become the four factors of the cells' factors in the gradients of the
/// weights.
template <class T>
void winograd_output_grads(const T* const* from, int64_t n, T* const* to) {
  for (int64_t i = 0; i < n; ++i) {
    const T g0 = from[0][i], g1 = from[1][i];
    to[0][i] = g0, to[1][i] = g0 + g1, to[2][i] = g0 - g1, to[3][i] = -g1;
  }
}

/// Four products become the gradients of the three weights, in m[0], m[1] and m[2].
template <class T>
void winograd_weight_grads(T* const* m, int64_t n) {
  for (int64_t i = 0; i < n; ++i) {
    const T m1 = m[1][i], m2 = m[2][i], half = T(0.5), even = (m1 + m2) * half;
    m[0][i] += even, m[1][i] = (m1 - m2) * half, m[2][i] = even + m[3][i];
  }
}

}  // namespace vox::cpu::simd::VOXGRAD_ISA
