#include <voxgrad/autograd/grad_mode.h>
#include <voxgrad/core/factories.h>
#include <voxgrad/nn/init.h>
#include <voxgrad/ops/elementwise.h>

#include <algorithm>
#include <cmath>
#include <numbers>

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

namespace {

double normal_distribution(double x) { return 0.5 * std::erfc(-x / std::numbers::sqrt2); }

/// The x below which the normal distribution has the share p. Newton's method from 0 never goes past x,
/// because below 0 the distribution is convex; its last step is one that rounding undoes.
double normal_quantile(double p) {
  if (p > 0.5) return -normal_quantile(1 - p);
  for (double x = 0;;) {
    const double density = std::exp(-0.5 * x * x) / std::sqrt(2 * std::numbers::pi);
    const double next = x + (p - normal_distribution(x)) / density;
    if (!(next < x)) return x;
    x = next;
  }
}

}  // namespace

Tensor& trunc_normal_(Tensor& t, Real mean, Real std, Real a, Real b) {
  check<ValueError>(std > 0 && a <= b, "trunc_normal_: needs std > 0 and a <= b, got std ", std, ", a ", a,
                    " and b ", b);
  const auto guard = no_grad();
  const double low = normal_distribution((a - mean) / std), high = normal_distribution((b - mean) / std);
  std::vector<double> values = rand(t.shape(), {.dtype = f64}).to_vector<double>();
  for (double& v : values) v = std::clamp<double>(mean + std * normal_quantile(low + (high - low) * v), a, b);
  return t.copy_(from_vector(values, t.shape()));
}

Tensor& icnr_(Tensor& weight, Int upscale_factor, Tensor& (*initialise)(Tensor& weight)) {
  int64_t copies = 1;
  check<ValueError>(upscale_factor > 0, "icnr_: upscale_factor must be positive, got ", upscale_factor);
  for (int64_t axis = 2; axis < weight.rank(); ++axis) copies *= upscale_factor;
  check<ShapeError>(weight.rank() >= 2 && weight.shape()[0] % copies == 0, "icnr_: weight.shape[0] must be ",
                    "divisible by ", copies, ", the number of cells that become one, got ", weight.shape());
  const auto guard = no_grad();
  Shape shape = weight.shape();
  shape[0] /= copies;
  Tensor one = empty(shape, weight.options());
  initialise(one);
  shape.insert(1, copies);
  return weight.copy_(one.unsqueeze(1).expand(shape).reshape(weight.shape()));
}

}  // namespace vox::nn::init
