#include <voxgrad/core/tensor.h>
#include <voxgrad/ops/broadcast.h>
#include <voxgrad/ops/elementwise_formulas.h>
#include <voxgrad/ops/kernels.h>

// In-place writes. They are never recorded: begin_in_place() refuses those that the tape would have to
// record. The target may be any strided view, and may share memory with the source.

namespace vox {
namespace {

/// `source`, or a copy of it if writing `target` element by element could change what is still to be read.
Tensor safe_source(const Tensor& target, const Tensor& source) {
  const TensorImpl& t = *target.impl();
  const TensorImpl& s = *source.impl();
  const bool shared = t.storage == s.storage;
  const bool same_view = t.offset == s.offset && t.strides == s.strides && t.dtype == s.dtype;
  return shared && !same_view ? source.detach().clone() : source;
}

/// target = op(target, other), and returns target.
Tensor& update(const char* function, Binary op, Tensor& target, const Tensor& other, Scalar scale = 0) {
  detail::check_defined(function, "this", target);
  detail::check_defined(function, "other", other);
  detail::check_same_dtype(function, target, other);
  detail::check_same_device(function, target, other);
  if (op == Binary::div) detail::check_floating(function, "this", target);
  if (op == Binary::add_scaled) detail::check_scalar(function, scale, target.dtype());
  if (op == Binary::add_scaled && scale.as_real() == 1) op = Binary::add;
  detail::check_arithmetic(function, "this", target);
  detail::check_writable(function, "the target", target);
  const Tensor b = detail::broadcast_to(function, other, target.shape());
  detail::begin_in_place(function, target, other);
  detail::binary_kernel.on(target.device())(op, target, safe_source(target, b), target, scale);
  return target;
}

/// The same with a number.
Tensor& update(const char* function, Binary op, Tensor& target, Scalar value) {
  if (op == Binary::div) detail::check_floating(function, "this", target);
  detail::check_arithmetic(function, "this", target);
  const Tensor number = detail::number(function, value, opmath(target.dtype()), target.shape());
  detail::check_writable(function, "the target", target);
  detail::begin_in_place(function, target);
  detail::binary_kernel.on(target.device())(op, target, number, target, 0);
  return target;
}

}  // namespace

Tensor& Tensor::add_(const Tensor& other, Scalar alpha) {
  return update("add_", Binary::add_scaled, *this, other, alpha);
}
Tensor& Tensor::sub_(const Tensor& other) { return update("sub_", Binary::sub, *this, other); }
Tensor& Tensor::mul_(const Tensor& other) { return update("mul_", Binary::mul, *this, other); }
Tensor& Tensor::div_(const Tensor& other) { return update("div_", Binary::div, *this, other); }
Tensor& Tensor::add_(Scalar value) { return update("add_", Binary::add, *this, value); }
Tensor& Tensor::sub_(Scalar value) { return update("sub_", Binary::sub, *this, value); }
Tensor& Tensor::mul_(Scalar value) { return update("mul_", Binary::mul, *this, value); }
Tensor& Tensor::div_(Scalar value) { return update("div_", Binary::div, *this, value); }

Tensor& Tensor::fill_(Element value) {
  checked("fill_");
  detail::check_scalar("fill_", value, dtype());
  detail::check_writable("fill_", "the target", *this);
  detail::begin_in_place("fill_", *this);
  detail::fill_kernel.on(device())(*this, value);
  return *this;
}

Tensor& Tensor::copy_(const Tensor& source) {
  checked("copy_");
  detail::check_defined("copy_", "source", source);
  detail::check_writable("copy_", "the target", *this);
  detail::broadcast_to("copy_", source, shape());  // throws before anything moves
  detail::begin_in_place("copy_", *this, source);
  const Tensor near = source.detach().to(device());
  detail::copy_kernel.on(device())(safe_source(*this, detail::broadcast_to("copy_", near, shape())), *this);
  return *this;
}

}  // namespace vox
