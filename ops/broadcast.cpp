#include <voxgrad/autograd/grad_mode.h>
#include <voxgrad/ops/broadcast.h>
#include <voxgrad/ops/element.h>

namespace vox::detail {

Tensor broadcast_to(const char* function, const Tensor& t, const Shape& shape) {
  if (t.shape() == shape) return alias(t, t.impl()->offset, shape, t.strides());
  check<ShapeError>(broadcast_shapes(function, t.shape(), shape) == shape, function, ": shape ", t.shape(),
                    " does not broadcast to ", shape, "; sizes must be equal or 1");
  const int64_t added = shape.rank() - t.rank();
  Shape strides = Shape::filled(shape.rank(), 0);
  for (int64_t d = added; d < shape.rank(); ++d)
    if (t.shape()[d - added] == shape[d]) strides[d] = t.strides()[d - added];
  return alias(t, t.impl()->offset, shape, strides);
}

Tensor number(const char* function, Scalar value, DType dtype, const Shape& shape) {
  check_scalar(function, value, dtype);
  const Tensor one = empty({}, {.dtype = dtype});
  visit_storage(dtype, [&]<class T>(T) { *mutable_ptr<T>(one) = element<T>(value); });
  return alias(one, 0, shape, Shape::filled(shape.rank(), 0));
}

void check_arithmetic(const char* function, const char* argument, const Tensor& t) {
  check_defined(function, argument, t);
  check<DTypeError>(t.dtype() != boolean && !is_only_stored(t.dtype()), function,
                    ": there is no arithmetic on ", t.dtype(),
                    "; allowed are f32, f64, bf16, f16, i64 and u8 (use to(dtype))");
}

namespace {

/// Checks the dtypes and devices of a and b, and calls kernel(a, b, y) on operands of y's shape.
template <class F>
Tensor with_broadcast_operands(const char* function, const Tensor& a, const Tensor& b, bool result_is_bool,
                               F kernel) {
  check_defined(function, "a", a);
  check_defined(function, "b", b);
  check_same_dtype(function, a, b);
  check_same_device(function, a, b);
  const Shape shape = broadcast_shapes(function, a.shape(), b.shape());
  Tensor y = empty_for(function, shape, {result_is_bool ? boolean : a.dtype(), a.device()});
  kernel(broadcast_to(function, a, shape), broadcast_to(function, b, shape), y);
  return y;
}

}  // namespace

Tensor binary(const char* function, Binary op, const Tensor& a, const Tensor& b) {
  return with_broadcast_operands(function, a, b, false,
                                 [&](const Tensor& left, const Tensor& right, const Tensor& y) {
                                   check_arithmetic(function, "a", left);
                                   binary_kernel.on(y.device())(op, left, right, y, 0);
                                 });
}

Tensor binary(const char* function, Binary op, const Tensor& a, Scalar b) {
  check_arithmetic(function, "a", a);
  Tensor y = empty_for(function, a.shape(), a.options());
  binary_kernel.on(y.device())(op, a, number(function, b, opmath(a.dtype()), a.shape()), y, 0);
  return y;
}

Tensor binary(const char* function, Binary op, Scalar a, const Tensor& b) {
  check_arithmetic(function, "b", b);
  Tensor y = empty_for(function, b.shape(), b.options());
  binary_kernel.on(y.device())(op, number(function, a, opmath(b.dtype()), b.shape()), b, y, 0);
  return y;
}

Tensor compare(const char* function, Comparison op, const Tensor& a, const Tensor& b) {
  return with_broadcast_operands(function, a, b, true,
                                 [&](const Tensor& left, const Tensor& right, const Tensor& y) {
                                   compare_kernel.on(y.device(), function)(op, left, right, y);
                                 });
}

Tensor compare(const char* function, Comparison op, const Tensor& a, Scalar b) {
  check_defined(function, "a", a);
  Tensor y = empty_for(function, a.shape(), {boolean, a.device()});
  compare_kernel.on(y.device(), function)(op, a, number(function, b, a.dtype(), a.shape()), y);
  return y;
}

Tensor binary_gradient([[maybe_unused]] const char* function, [[maybe_unused]] Binary op,
                       [[maybe_unused]] int operand, const Tensor& g, [[maybe_unused]] const Tensor& a,
                       [[maybe_unused]] const Tensor& b) {
  Tensor grad;
  if (grad_enabled() || !g.device().is_cuda()) return grad;
#if VOXGRAD_HAS_CUDA
  grad = empty_for(function, g.shape(), g.options());
  in_the_name_of(function, [&] {
    cuda::binary_gradient(op, operand, g, broadcast_to(function, a, g.shape()),
                          broadcast_to(function, b, g.shape()), grad);
  });
#endif
  return grad;
}

}  // namespace vox::detail
