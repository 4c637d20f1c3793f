#include <voxgrad/autograd/grad_mode.h>
#include <voxgrad/core/factories.h>
#include <voxgrad/nn/init.h>
#include <voxgrad/ops/elementwise.h>

#include <cmath>

namespace vox::nn::init {

namespace {

int64_t kernel_volume(const Tensor& weight) {
  check<ShapeError>(weight.rank() >= 2, "init: a weight has at least 2 dimensions, got ", weight.shape());
  int64_t volume = 1;
  for (int64_t i = 2; i < weight.rank(); ++i) volume *= weight.shape()[i];
  return volume;
}

}  // namespace

Tensor& uniform_(Tensor& t, Real low, Real high) {
  check<ValueError>(low <= high, "uniform_: low must be <= high, got ", low, " and ", high);
  const auto guard = no_grad();
  return t.copy_(rand(t.shape(), {opmath(t.dtype()), t.device()}) * (high - low) + low);
}

Tensor& normal_(Tensor& t, Real mean, Real std) {
  check<ValueError>(std >= 0, "normal_: std must be >= 0, got ", std);
  const auto guard = no_grad();
  return t.copy_(randn(t.shape(), {opmath(t.dtype()), t.device()}) * std + mean);
}

int64_t fan_in(const Tensor& weight) { return kernel_volume(weight) * weight.shape()[1]; }
int64_t fan_out(const Tensor& weight) { return kernel_volume(weight) * weight.shape()[0]; }

Tensor& default_uniform_(Tensor& t, Int fan) {
  const double bound = fan > 0 ? 1 / std::sqrt(static_cast<double>(fan)) : 0;
  return uniform_(t, -bound, bound);
}

Tensor& kaiming_normal_(Tensor& weight) {
  return normal_(weight, 0, std::sqrt(2.0 / static_cast<double>(fan_in(weight))));
}

Tensor& xavier_uniform_(Tensor& weight) {
  const double bound = std::sqrt(6.0 / static_cast<double>(fan_in(weight) + fan_out(weight)));
  return uniform_(weight, -bound, bound);
}

}  // namespace vox::nn::init
