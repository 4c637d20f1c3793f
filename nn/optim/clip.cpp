#include <voxgrad/autograd/grad_mode.h>
#include <voxgrad/nn/optim/optimizer.h>
#include <voxgrad/ops/elementwise.h>
#include <voxgrad/ops/reduce.h>
#include <voxgrad/ops/shaping.h>

#include <algorithm>
#include <cmath>

namespace vox::optim {

namespace {

std::vector<Tensor> gradients_of(const char* function, const std::vector<Tensor>& parameters) {
  std::vector<Tensor> gradients;
  for (const Tensor& p : parameters) {
    detail::check_defined(function, "parameters", p);
    if (const Tensor g = p.grad(); g.defined()) gradients.push_back(g);
  }
  return gradients;
}

}  // namespace

double clip_grad_norm_(const std::vector<Tensor>& parameters, Real max_norm, const ClipOptions& options) {
  check<ValueError>(max_norm > 0, "clip_grad_norm_: max_norm must be > 0, got ", max_norm);
  const auto guard = no_grad();
  std::vector<Tensor> gradients = gradients_of("clip_grad_norm_", parameters);
  std::vector<Tensor> norms;  // they stay on the device: one wait instead of one per parameter
  if (gradients.empty()) return 0;
  const bool wide =
      std::any_of(gradients.begin(), gradients.end(), [](const Tensor& g) { return g.dtype() == f64; });
  for (const Tensor& g : gradients)
    norms.push_back(vox::norm(g.to(wide ? f64 : f32)).to(gradients[0].device()));
  const double total = vox::norm(stack(norms).to(f64)).item<double>();
  check<ValueError>(!options.error_if_nonfinite || std::isfinite(total), "clip_grad_norm_: the norm of the ",
                    gradients.size(), " gradients is ", total);
  const double scale = max_norm / (total + 1e-6);
  if (scale >= 1) return total;
  for (Tensor& g : gradients) g.mul_(scale);
  return total;
}

void clip_grad_value_(const std::vector<Tensor>& parameters, Real clip_value) {
  check<ValueError>(clip_value >= 0, "clip_grad_value_: clip_value must be >= 0, got ", clip_value);
  const auto guard = no_grad();
  for (Tensor& g : gradients_of("clip_grad_value_", parameters)) g.copy_(clamp(g, -clip_value, clip_value));
}

}  // namespace vox::optim
