#pragma once

#include <string>
#include <type_traits>

#include <voxgrad/autograd/autocast.h>
#include <voxgrad/core/tensor.h>
#include <voxgrad/ops/triple.h>

// What the layers with options share.

namespace vox::nn::detail {

/// ", name=value" for the description of a layer, or "" if the value is the usual one.
template <class T>
std::string option(const char* name, const T& value, const std::type_identity_t<T>& usual) {
  return value == usual ? "" : str(", ", name, "=", value);
}

/// Throws, naming `layer`, unless its parameters can have this dtype.
inline void check_dtype(const char* layer, DType dtype) {
  check<DTypeError>(is_floating(dtype), layer, ": needs a floating dtype, got ", dtype,
                    "; allowed are f32, f64, bf16 and f16");
}

/// Throws, naming `layer`, unless `input` has the dtype and the device of the layer's weight. Under autocast
/// the op chooses the dtype.
inline void check_input(const char* layer, const Tensor& input, const Tensor& weight) {
  vox::detail::check_defined(layer, "weight", weight);  // undefined in a layer that was moved from
  check<DTypeError>(input.dtype() == weight.dtype() || autocast_dtype().has_value(), layer,
                    ": the input has dtype ", input.dtype(), ", the layer's parameters have ", weight.dtype(),
                    "; cast ", is_floating(input.dtype()) ? "one: " : "it: ", "input.to(", weight.dtype(),
                    ")", is_floating(input.dtype()) ? str(" or layer.to(", input.dtype(), ")") : "");
  check<DeviceError>(input.device() == weight.device(), layer, ": the input is on ", input.device(),
                     ", the layer's parameters are on ", weight.device(),
                     "; move one: input.to(device) or layer.to(device)");
}

}  // namespace vox::nn::detail
