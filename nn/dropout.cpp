#include <voxgrad/core/factories.h>
#include <voxgrad/nn/dropout.h>
#include <voxgrad/ops/elementwise.h>

namespace vox::nn {

Dropout::Dropout(const Options& o) : options(o) {
  check<ValueError>(o.p >= 0 && o.p <= 1, "nn::Dropout: p must be in [0, 1], got ", o.p);
}

Tensor Dropout::forward(const Tensor& input) {
  vox::detail::check_defined("nn::Dropout", "input", input);
  check<DTypeError>(is_floating(input.dtype()), "nn::Dropout: needs a floating dtype, got ", input.dtype(),
                    "; allowed are f32 and f64 (use to(dtype))");
  const double p = options.p;
  if (!is_training() || p == 0) return input;
  if (p == 1) return input * 0;
  const Tensor kept = ge(rand(input.shape(), {.device = input.device()}), p);
  return input * (kept.to(input.dtype()) * (1 / (1 - p)));
}

}  // namespace vox::nn
