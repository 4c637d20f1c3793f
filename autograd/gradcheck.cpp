#include <voxgrad/autograd/engine.h>
#include <voxgrad/autograd/grad_mode.h>
#include <voxgrad/autograd/gradcheck.h>
#include <voxgrad/autograd/meta.h>
#include <voxgrad/core/factories.h>
#include <voxgrad/ops/elementwise.h>

#include <cmath>

namespace vox::autograd {

namespace {

void check_arguments(const char* function, const TensorFunction& f, const std::vector<Tensor>& inputs,
                     const GradcheckOptions& options) {
  detail::check_callable(function, "f", f);
  check<ValueError>(options.eps > 0 && std::isfinite(options.eps), function,
                    ": eps must be finite and > 0, got ", options.eps);
  for (const double tolerance : {options.atol, options.rtol})
    check<ValueError>(tolerance >= 0 && std::isfinite(tolerance), function,
                      ": atol and rtol must be finite and >= 0, got ", tolerance);
  bool any = false;
  for (const Tensor& x : inputs) {
    detail::check_defined(function, "inputs", x);
    if (!x.requires_grad()) continue;
    any = true;
    check<GradError>(x.is_leaf(), function,
                     ": the inputs must be leaves (take views of them inside the function)");
    check<DTypeError>(x.dtype() == f64, function, ": differences need f64 inputs, got ", x.dtype());
    check<GradError>(x.is_contiguous(), function,
                     ": the inputs must be contiguous (take views of them inside the function)");
  }
  check<GradError>(any, function, ": no input requires grad");
}

Tensor output_of(const char* function, const TensorFunction& f, const std::vector<Tensor>& inputs) {
  const Tensor y = f(inputs);
  check<ValueError>(y.defined(), function, ": f must return a tensor, got an undefined one");
  return y;
}

/// d y[j] / d x[i] by backward: row j is the gradient of output element j.
std::vector<std::vector<double>> jacobian(const Tensor& y, const Tensor& x) {
  std::vector<std::vector<double>> rows;
  for (int64_t j = 0; j < y.numel(); ++j) {
    Tensor pick = zeros(y.shape(), y.options());
    pick.reshape({-1}).slice(0, j, j + 1).fill_(1);
    const Tensor g = grad({y}, {x}, {.grad_outputs = {pick}, .retain_graph = true, .allow_unused = true})[0];
    rows.push_back(g.defined() ? g.to_vector<double>() : std::vector<double>(static_cast<size_t>(x.numel())));
  }
  return rows;
}

/// f with element `i` of `x`, which is `before`, moved up and down by eps, as numbers.
std::pair<std::vector<double>, std::vector<double>> moved(const TensorFunction& f,
                                                          const std::vector<Tensor>& inputs, const Tensor& x,
                                                          int64_t i, double before, double eps) {
  const auto guard = no_grad();
  Tensor element = x.detach().reshape({-1}).slice(0, i, i + 1);
  const auto at = [&](double value) {
    element.fill_(value);
    return f(inputs).to_vector<double>();
  };
  std::vector<double> above = at(before + eps), below = at(before - eps);
  element.fill_(before);
  return {std::move(above), std::move(below)};
}

/// A tensor like x with fixed values in (0.5, 1.5), so that no term vanishes.
Tensor weights_like(const Tensor& x) {
  std::vector<double> values(static_cast<size_t>(x.numel()));
  for (size_t i = 0; i < values.size(); ++i)
    values[i] = 0.5 + std::fmod(0.618033988749895 * static_cast<double>(i + 1), 1.0);
  return from_vector<double>(values, x.shape(), x.device());
}

}  // namespace

bool gradcheck(const TensorFunction& f, const std::vector<Tensor>& inputs, const GradcheckOptions& options) {
  check_arguments("gradcheck", f, inputs, options);
  const Tensor y = output_of("gradcheck", f, inputs);
  check<GradError>(y.requires_grad(), "gradcheck: the function's output does not require grad");
  // All analytic gradients come first: moving an input is an in-place write, after which the tape is invalid.
  std::vector<std::vector<std::vector<double>>> jacobians;
  for (const Tensor& x : inputs)
    jacobians.push_back(x.requires_grad() ? jacobian(y, x) : decltype(jacobian(y, x)){});
  for (size_t k = 0; k < inputs.size(); ++k) {
    const Tensor& x = inputs[k];
    if (!x.requires_grad()) continue;
    const std::vector<double> values = x.to_vector<double>();
    for (int64_t i = 0; i < x.numel(); ++i) {
      const auto [above, below] = moved(f, inputs, x, i, values[static_cast<size_t>(i)], options.eps);
      for (size_t j = 0; j < above.size(); ++j) {
        const double numeric = (above[j] - below[j]) / (2 * options.eps);
        const double got = jacobians[k][j][static_cast<size_t>(i)];
        check<GradError>(std::abs(got - numeric) <= options.atol + options.rtol * std::abs(numeric),
                         "gradcheck: d output[", j, "] / d input ", k, Quoted{x}, "[", i, "] is ", got,
                         " by backward and ", numeric, " by differences (atol ", options.atol, ", rtol ",
                         options.rtol, ")");
      }
    }
  }
  return true;
}

bool gradgradcheck(const TensorFunction& f, const std::vector<Tensor>& inputs,
                   const GradcheckOptions& options) {
  check_arguments("gradgradcheck", f, inputs, options);
  std::vector<Tensor> extended = inputs;
  extended.push_back(weights_like(output_of("gradgradcheck", f, inputs)).set_requires_grad(true));
  std::vector<Tensor> wanted, weights;
  for (const Tensor& x : inputs) {
    if (x.requires_grad()) wanted.push_back(x), weights.push_back(weights_like(x));
  }
  const auto gradients = [&](const std::vector<Tensor>& all) {
    const std::vector<Tensor> xs(all.begin(), all.end() - 1);
    // moved() calls this under no_grad, but the inner gradient needs a tape.
    const bool record = grad_enabled();
    const auto guard = enable_grad();
    const auto gs =
        grad({f(xs)}, wanted, {.grad_outputs = {all.back()}, .create_graph = record, .allow_unused = true});
    Tensor total;
    for (size_t k = 0; k < gs.size(); ++k) {
      if (!gs[k].defined()) continue;
      const Tensor term = mul(gs[k], weights[k]).sum();
      total = total.defined() ? add(total, term) : term;
    }
    check<GradError>(total.defined(), "gradgradcheck: the output depends on no input that requires grad");
    return total;
  };
  return in_the_name_of("gradgradcheck", [&] { return gradcheck(gradients, extended, options); });
}

}  // namespace vox::autograd
