#pragma once

#include <voxgrad/core/tensor.h>
#include <voxgrad/ops/kernels.h>

// Operands of elementwise ops: broadcasting and checks. Nothing here is recorded except detail::where.

namespace vox::detail {

/// A view of t, off the tape, in which broadcast dimensions have stride 0. ShapeError if t does not broadcast
/// to `shape`.
Tensor broadcast_to(const char* function, const Tensor& t, const Shape& shape);

/// A C++ number as an operand of an elementwise kernel: one element in host memory, repeated over `shape`.
/// ValueError if `dtype` cannot hold it. In arithmetic its dtype is opmath(dtype).
Tensor number(const char* function, Scalar value, DType dtype, const Shape& shape);

/// `value` as a tensor of rank 0 of x's dtype, on its device.
Tensor number_like(const char* function, const Tensor& x, Scalar value);

/// Throws unless t is defined and its dtype is not bool; `argument` names it in the message.
void check_arithmetic(const char* function, const char* argument, const Tensor& t);

/// Checks the operands, allocates the result, and computes it.
Tensor binary(const char* function, Binary op, const Tensor& a, const Tensor& b);
Tensor binary(const char* function, Binary op, const Tensor& a, Scalar b);
Tensor binary(const char* function, Binary op, Scalar a, const Tensor& b);
Tensor compare(const char* function, Comparison op, const Tensor& a, const Tensor& b);
Tensor compare(const char* function, Comparison op, const Tensor& a, Scalar b);

/// cuda::binary_gradient, off the tape, on operands that broadcast to g's shape. Undefined if the backward is
/// recorded or not on CUDA; then the gradient is composed of ops.
Tensor binary_gradient(const char* function, Binary op, int operand, const Tensor& g, const Tensor& a,
                       const Tensor& b);

/// condition ? a : value, recorded: the gradient of a is where(condition, g, 0). `condition` and `a` have one
/// shape.
Tensor where(const Tensor& condition, const Tensor& a, Scalar value);

/// The gradient of a constant: zeros even for an infinite g. It is recorded as a function of g, so that it
/// can be differentiated again.
Tensor no_gradient(const Tensor& g);

}  // namespace vox::detail
