#pragma once

#include <cstdint>
#include <initializer_list>
#include <type_traits>
#include <vector>

#include <voxgrad/core/generator.h>
#include <voxgrad/core/tensor.h>

// New tensors: copies of memory, constants, and uniform random numbers. core/factories.h has tensors on
// memory of the caller, ranges and more distributions.

namespace vox {

namespace detail {
/// A dense tensor that holds a copy of `count` elements on the host; ShapeError unless they fill `shape`.
Tensor from_host(const void* values, int64_t count, const Shape& shape, TensorOptions options);
Tensor from_host(const std::vector<bool>& values, const Shape& shape, Device device);
/// DTypeError unless rand() and randn() can draw numbers of this dtype.
void check_random(const char* function, DType dtype);
}  // namespace detail

// ---- From memory ------------------------------------------------------------------------------------

/// A tensor that holds a copy of `values`, in row-major order; its dtype is T's. ShapeError unless there are
/// as many values as `shape` has elements: `from_vector<float>({1, 2, 3, 4, 5, 6}, {2, 3})`.
template <class T>
Tensor from_vector(const std::vector<T>& values, const Shape& shape, Device device = Device::cpu()) {
  if constexpr (std::is_same_v<T, bool>)
    return detail::from_host(values, shape, device);
  else
    return detail::from_host(values.data(), static_cast<int64_t>(values.size()), shape,
                             {dtype_of<T>(), device});
}
template <class T>
Tensor from_vector(std::initializer_list<T> values, const Shape& shape, Device device = Device::cpu()) {
  return detail::from_host(values.begin(), static_cast<int64_t>(values.size()), shape,
                           {dtype_of<T>(), device});
}
/// For the 16-bit types, which have no literals: `from_vector<bfloat16>({1, 0.5}, {2})` rounds floats.
template <class T>
requires is_16_bit_v<T> Tensor from_vector(std::initializer_list<float> values, const Shape& shape,
                                           Device device = Device::cpu()) {
  return from_vector(std::vector<T>(values.begin(), values.end()), shape, device);
}

// ---- Constants --------------------------------------------------------------------------------------

/// A tensor with `value` in every element; ValueError if the dtype cannot hold it.
Tensor full(const Shape& shape, Element value, TensorOptions options = {});
Tensor zeros(const Shape& shape, TensorOptions options = {});
Tensor ones(const Shape& shape, TensorOptions options = {});

/// The same with shape, dtype and device of `t`.
Tensor full_like(const Tensor& t, Element value);
Tensor zeros_like(const Tensor& t);
Tensor ones_like(const Tensor& t);

// ---- Random numbers (ops/rand.cpp) ------------------------------------------------------------------
// Each call takes the next place in `generator`'s stream. All devices give the same bits.

/// Uniform in [0, 1): multiples of 2^-24 (f32) or 2^-53 (f64). bf16 and f16 get the numbers of f32 rounded
/// down, so 1 is never returned. DTypeError for other dtypes.
Tensor rand(const Shape& shape, TensorOptions options = {}, Generator& generator = default_generator());

}  // namespace vox
