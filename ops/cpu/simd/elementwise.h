#pragma once

#include <cstdint>

#include <voxgrad/ops/cpu/isa.h>
#include <voxgrad/ops/elementwise_formulas.h>

// Elementwise kernels on dense runs of any length. An element's result does not depend on where in the run it
// lies: see Note [Same bits everywhere] in elementwise.cpp. Outputs may be their inputs, element for
// element.

namespace vox::cpu::simd {

/// y[i] = op(x[i]), with p and q as in ops/kernels.h. `stream` writes past the cache.
template <class T>
using UnaryRun = void (*)(const T* x, T* y, int64_t n, T p, T q, bool stream);

/// y[i] = op(a[i * a_step], b[i * b_step]), steps 0 or 1; add_scaled is a + p * b. For a gradient, a is g and
/// b is the tensor that was kept.
template <class T>
using BinaryRun = void (*)(const T* a, int64_t a_step, const T* b, int64_t b_step, T* y, int64_t n, T p, T q,
                           bool stream);

/// The same; results are 0 or 1.
template <class T>
using CompareRun = void (*)(const T* a, int64_t a_step, const T* b, int64_t b_step, uint8_t* y, int64_t n);

/// y[i] = condition[i * c_step] ? a[i * a_step] : b[i * b_step]
template <class T>
using WhereRun = void (*)(const uint8_t* condition, int64_t c_step, const T* a, int64_t a_step, const T* b,
                          int64_t b_step, T* y, int64_t n, bool stream);

/// A kernel is null if the op does not exist for T. Integers wrap around.
template <class T>
struct ElementwiseOf {
  UnaryRun<T> unary[unary_count];
  BinaryRun<T> gradient[unary_count];
  BinaryRun<T> binary[binary_count];
  CompareRun<T> compare[comparison_count];
  WhereRun<T> where;
};

struct ElementwiseKernels {
  const ElementwiseOf<float>& f32;
  const ElementwiseOf<double>& f64;
  const ElementwiseOf<int64_t>& i64;
  const ElementwiseOf<uint8_t>& u8;
};

VOX_DECLARE_BY_ISA(ElementwiseKernels, elementwise_kernels);

}  // namespace vox::cpu::simd
