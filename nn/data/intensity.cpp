#include <voxgrad/core/factories.h>
#include <voxgrad/nn/data/intensity.h>
#include <voxgrad/ops/conv3d.h>
#include <voxgrad/ops/elementwise.h>
#include <voxgrad/ops/interpolate.h>
#include <voxgrad/ops/reduce.h>
#include <voxgrad/ops/shaping.h>
#include <voxgrad/ops/sum.h>

#include <algorithm>
#include <cmath>

namespace vox::data {

namespace {

void check_scan(const char* function, const Tensor& x) {
  vox::detail::check_floating(function, "x", x);
  check<ShapeError>(x.rank() >= 3, function, ": x must be (..., D, H, W), got shape ", x.shape());
}

/// x as volumes of one channel: (number, 1, D, H, W).
Tensor as_volumes(const Tensor& x) {
  int64_t count = 1;
  for (int64_t i = 0; i < x.rank() - 3; ++i) count *= x.size(i);
  return x.reshape({count, 1, x.size(-3), x.size(-2), x.size(-1)});
}

/// Half of the numbers are below 1 if the range is around 1.
double draw_around_1(const Range& range, Generator& random) {
  const bool below = chance(0.5, random);
  if (range.first >= 1 || range.second <= 1) return detail::draw(range, random);
  return detail::draw(below ? Range{range.first, 1} : Range{1, range.second}, random);
}

/// The normal distribution, along dimension `dim` of a convolution's weight.
Tensor bell(double sigma, int64_t radius, int64_t dim, const Tensor& like) {
  std::vector<double> weights;
  double total = 0;
  for (int64_t i = -radius; i <= radius; ++i) {
    const double at = static_cast<double>(i) / sigma;
    total += weights.emplace_back(std::exp(-at * at / 2));
  }
  for (double& weight : weights) weight /= total;
  Shape shape = Shape::filled(5, 1);
  shape[dim] = 2 * radius + 1;
  return from_vector<double>(weights, shape).to(like.dtype()).to(like.device());
}

/// A polynomial of the coordinates from `axis` on, by Horner's rule: W is first, so that only its terms are
/// as large as the volume.
Tensor polynomial(const std::vector<Tensor>& coordinates, size_t axis, int64_t order,
                  const Range& coefficients, Generator& random) {
  const auto inner = [&](int64_t rest) {
    return axis + 1 < coordinates.size()
               ? polynomial(coordinates, axis + 1, rest, coefficients, random)
               : full({}, detail::draw(coefficients, random), coordinates[axis].options());
  };
  Tensor sum = inner(0);
  for (int64_t power = order - 1; power >= 0; --power) sum = sum * coordinates[axis] + inner(order - power);
  return sum;
}

}  // namespace

Tensor gaussian_blur(const Tensor& x, const std::array<double, 3>& sigma) {
  check_scan("gaussian_blur", x);
  for (const double s : sigma)
    check<ValueError>(s >= 0 && s <= 1e6, "gaussian_blur: sigma must be from 0 to 10^6, got ", s);
  if (x.numel() == 0) return x;
  return in_the_name_of("gaussian_blur", [&] {
    Tensor y = as_volumes(x);
    for (int64_t axis = 0; axis < 3; ++axis) {
      const double s = sigma[static_cast<size_t>(axis)];
      if (s == 0) continue;
      const auto radius = static_cast<int64_t>(std::ceil(4 * s));
      std::vector<int64_t> padding(static_cast<size_t>(2 * (3 - axis)), 0);
      padding[padding.size() - 1] = padding[padding.size() - 2] = radius;
      y = conv3d(pad(y, padding, PadMode::replicate), bell(s, radius, axis + 2, y));
    }
    return y.reshape(x.shape());
  });
}

Tensor random_blur(const Tensor& x, const Range& sigma, Generator& random) {
  detail::check_range("random_blur", "sigma", sigma, 0);
  const double s = detail::draw(sigma, random);
  return in_the_name_of("random_blur", [&] { return gaussian_blur(x, {s, s, s}); });
}

Tensor random_gamma(const Tensor& x, const GammaOptions& options, Generator& random) {
  check_scan("random_gamma", x);
  detail::check_range("random_gamma", "gamma", options.gamma, 0);
  const double gamma = draw_around_1(options.gamma, random);
  if (x.numel() == 0) return x;
  const Tensor from = options.invert ? -x : x, low = min(from), range = maximum(max(from) - low, 1e-7);
  Tensor y = pow((from - low) / range, gamma) * range + low;
  if (options.keep_statistics && x.numel() > 1)
    y = (y - mean(y)) / maximum(std(y), 1e-7) * std(from) + mean(from);
  return options.invert ? -y : y;
}

Tensor random_contrast(const Tensor& x, const Range& factor, Generator& random) {
  check_scan("random_contrast", x);
  detail::check_range("random_contrast", "factor", factor, 0);
  const double f = draw_around_1(factor, random);
  if (x.numel() == 0) return x;
  const Tensor middle = mean(x);
  return clamp((x - middle) * f + middle, min(x), max(x));
}

Tensor random_bias_field(const Tensor& x, const Range& coefficients, Generator& random, Int order) {
  check_scan("random_bias_field", x);
  detail::check_range("random_bias_field", "coefficients", coefficients);
  check<ValueError>(order >= 0 && order <= 8, "random_bias_field: the order must be from 0 to 8, got ",
                    order);
  std::vector<Tensor> coordinates;
  for (int64_t dim : {-1, -2, -3}) {
    Shape shape = Shape::filled(3, 1);
    shape[3 + dim] = x.size(dim);
    coordinates.push_back(linspace(-1, 1, x.size(dim), x.options()).reshape(shape));
  }
  return x * exp(polynomial(coordinates, 0, order, coefficients, random));
}

Tensor random_low_resolution(const Tensor& x, const Range& zoom, Generator& random) {
  check_scan("random_low_resolution", x);
  detail::check_range("random_low_resolution", "zoom", zoom, 1e-6);
  check<ValueError>(zoom.second <= 1, "random_low_resolution: zoom must be at most 1, got ", zoom.second);
  const double factor = detail::draw(zoom, random);
  if (x.numel() == 0) return x;
  Triple size, small;
  for (int64_t axis = 0; axis < 3; ++axis) {
    size[axis] = x.size(axis - 3);
    small[axis] = std::max<int64_t>(1, std::llround(static_cast<double>(size[axis]) * factor));
  }
  const Tensor low = interpolate(as_volumes(x), {.size = small});
  return interpolate(low, {.size = size, .mode = InterpolateOptions::Mode::linear}).reshape(x.shape());
}

}  // namespace vox::data
