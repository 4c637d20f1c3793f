#include <voxgrad/core/factories.h>
#include <voxgrad/nn/dropout.h>
#include <voxgrad/ops/elementwise.h>

namespace vox::nn {

Dropout::Dropout(const Options& o) : options(o) {
  check<ValueError>(o.p >= 0 && o.p <= 1, "nn::Dropout: p must be in [0, 1], got ", o.p);
}

Tensor Dropout::forward(const Tensor& input) {
  vox::detail::check_floating("nn::Dropout", "input", input);
  const double p = options.p;
  if (!is_training() || p == 0) return input;
  if (p == 1) return input * 0;
  const Tensor kept = ge(rand(input.shape(), {.device = input.device()}), p);
  const DType wide = opmath(input.dtype());  // 16-bit numbers are rounded once
  return (input.to(wide) * (kept.to(wide) * (1 / (1 - p)))).to(input.dtype());
}

}  // namespace vox::nn
