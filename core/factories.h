#pragma once

#include <functional>

#include <voxgrad/core/new_tensor.h>

namespace vox {

namespace detail {
/// from_blob() for a dtype known at run time. Errors name `function`.
Tensor from_blob(void* data, DType dtype, const Shape& shape, const Shape& strides, Device device,
                 std::function<void(void*)> deleter, const char* function = "from_blob",
                 bool read_only = false);
}  // namespace detail

// ---- On memory of the caller ------------------------------------------------------------------------

/// A tensor on memory that the caller owns: element (i, j, ...) is data[i * strides[0] + j * strides[1] +
/// ...]. `data` must be memory of `device`, be aligned to T, and stay valid until `deleter(data)` runs, which
/// happens when the last tensor on it is gone. Bools must be 0 or 1. Strides count elements and are >= 0; a
/// stride of 0 repeats an element. Throws ShapeError or ValueError if the arguments contradict each other;
/// `deleter` does not run then.
template <class T>
Tensor from_blob(T* data, const Shape& shape, const Shape& strides, Device device = Device::cpu(),
                 std::function<void(void*)> deleter = {}) {
  static_assert(!std::is_const_v<T>, "from_blob: tensors are writable; const memory needs from_vector");
  return detail::from_blob(data, dtype_of<T>(), shape, strides, device, std::move(deleter));
}
/// The same for dense row-major memory on the CPU.
template <class T>
Tensor from_blob(T* data, const Shape& shape) {
  checked_numel("from_blob", shape);
  return from_blob(data, shape, contiguous_strides(shape));
}

// ---- Ranges -----------------------------------------------------------------------------------------

/// start, start + step, ... up to but not including `end`: ceil((end - start) / step) elements. The dtype is
/// f32 unless `options` give another; for i64 and u8 all three numbers must be whole. Floating elements are
/// computed in double as start + i * step. Throws ValueError if step is 0 or points away from `end`, or if a
/// number is not finite or does not fit the dtype; DTypeError for bool.
Tensor arange(Scalar start, Scalar end, Scalar step = 1, TensorOptions options = {});
/// 0, 1, ... up to but not including `end`.
Tensor arange(Scalar end, TensorOptions options = {});

/// `steps` numbers from start to end, both included, in equal distances; computed in double. ValueError if
/// steps is negative or a number is not finite; DTypeError unless the dtype is floating.
Tensor linspace(Real start, Real end, Int steps, TensorOptions options = {});

/// The n x n identity matrix.
Tensor eye(Int n, TensorOptions options = {});

// ---- Random numbers (ops/random.cpp) ----------------------------------------------------------------
// They draw from the generator as rand() does (core/new_tensor.h).

/// Normal with mean 0 and variance 1 (Box-Muller, in double). bf16 and f16 get the numbers of f32, rounded.
/// DTypeError for other dtypes.
Tensor randn(const Shape& shape, TensorOptions options = {}, Generator& generator = default_generator());

/// The same with shape, dtype and device of `t`.
Tensor rand_like(const Tensor& t, Generator& generator = default_generator());
Tensor randn_like(const Tensor& t, Generator& generator = default_generator());
Tensor randint_like(const Tensor& t, Int low, Int high, Generator& generator = default_generator());

/// Whole numbers, uniform in [low, high). ValueError unless low < high and the dtype can hold all of them.
Tensor randint(Int low, Int high, const Shape& shape, TensorOptions options = {.dtype = i64},
               Generator& generator = default_generator());
inline Tensor randint(Int low, Int high, const Shape& shape, Device device,
                      Generator& generator = default_generator()) {
  return randint(low, high, shape, {i64, device}, generator);
}

/// 1 with the probability that each element of p gives, else 0, in p's dtype, which is floating. ValueError
/// for a probability outside [0, 1]. No gradient.
Tensor bernoulli(const Tensor& p, Generator& generator = default_generator());

/// 0 to n - 1 in random order (i64).
Tensor randperm(Int n, Device device = Device::cpu(), Generator& generator = default_generator());

}  // namespace vox
