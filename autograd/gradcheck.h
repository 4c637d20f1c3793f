#pragma once

#include <functional>
#include <vector>

#include <voxgrad/core/tensor.h>

namespace vox::autograd {

/// A function of several tensors whose gradient is to be checked.
using TensorFunction = std::function<Tensor(const std::vector<Tensor>& inputs)>;

struct GradcheckOptions {
  vox::detail::ByName by_name{};
  double eps = 1e-6;   ///< distance of the central difference to each side
  double atol = 1e-5;  ///< allowed: |analytic - numeric| <= atol + rtol * |numeric|
  double rtol = 1e-3;
};

/// Compares the gradients of f's output with central differences: every entry of the Jacobian of every f64
/// input that requires grad. Inputs are leaves; to check f on a view or an expanded tensor, take the view
/// inside f. Avoid points where f has a kink. Returns true, or throws GradError that names the input, the
/// element and both numbers. Throws ValueError if f is empty or returns an undefined tensor, and unless eps
/// is finite and > 0, and atol and rtol are finite and >= 0.
bool gradcheck(const TensorFunction& f, const std::vector<Tensor>& inputs,
               const GradcheckOptions& options = {});

/// The same for the gradient itself: checks the derivative of the map (inputs, v) -> gradients of <f, v>, at
/// a fixed v with elements in (0.5, 1.5). So it checks the backward of every node that backward records.
bool gradgradcheck(const TensorFunction& f, const std::vector<Tensor>& inputs,
                   const GradcheckOptions& options = {});

}  // namespace vox::autograd
