#include <voxgrad/core/factories.h>
#include <voxgrad/nn/data/spatial.h>
#include <voxgrad/ops/elementwise.h>
#include <voxgrad/ops/interpolate.h>

#include <algorithm>
#include <cmath>

namespace vox::data {

namespace {

using Matrix = std::array<std::array<double, 3>, 3>;  // of D, H and W

/// m, followed by a rotation about `axis`.
Matrix rotated(const Matrix& m, size_t axis, double angle) {
  const size_t a = (axis + 1) % 3, b = (axis + 2) % 3;
  Matrix result = m;
  for (size_t k = 0; k < 3; ++k) {
    result[a][k] = std::cos(angle) * m[a][k] - std::sin(angle) * m[b][k];
    result[b][k] = std::sin(angle) * m[a][k] + std::cos(angle) * m[b][k];
  }
  return result;
}

/// The theta of affine_grid(), from steps between voxels of the result to those in the volume. Both are
/// measured in half sizes there, and the order is W, H, D.
Tensor theta_of(const Matrix& steps, const Shape& volume, const Shape& size) {
  std::vector<double> theta(12, 0);
  for (size_t i = 0; i < 3; ++i)
    for (size_t k = 0; k < 3; ++k)
      theta[(2 - i) * 4 + (2 - k)] = steps[i][k] * static_cast<double>(size[static_cast<int64_t>(k)]) /
                                     static_cast<double>(volume[static_cast<int64_t>(i)]);
  return from_vector<double>(theta, {1, 3, 4});
}

/// Displacements in the coordinates of grid_sample(): (1, D, H, W, 3) of size `size`.
Tensor displacements(double deviation, Triple distance, const Shape& volume, const Shape& size,
                     Generator& random) {
  Shape points{1, 3};
  for (int64_t i = 0; i < 3; ++i) points.push_back(2 + (size[i] - 1) / distance[i]);
  const auto half = [&](int64_t i) {
    return 2 * deviation / static_cast<double>(std::max<int64_t>(1, volume[i]));
  };
  const Tensor scale = from_vector<double>({half(2), half(1), half(0)}, {1, 3, 1, 1, 1}).to(f32);
  return interpolate(randn(points, {f32}, random) * scale, {.size = {size[0], size[1], size[2]},
                                                            .mode = InterpolateOptions::Mode::linear,
                                                            .align_corners = true})
      .permute({0, 2, 3, 4, 1});
}

void check_options(const SpatialOptions& o) {
  const char* const function = "random_spatial";
  for (const Range& angle : o.rotation) detail::check_range(function, "rotation", angle);
  detail::check_range(function, "zoom", o.zoom, 1e-6);
  detail::check_range(function, "elastic", o.elastic, 0);
  for (const double spacing : o.spacing)
    check<ValueError>(std::isfinite(spacing) && spacing > 0, function, ": spacing must be positive, got ",
                      spacing);
  check<ValueError>(std::min({o.elastic_distance.d, o.elastic_distance.h, o.elastic_distance.w}) >= 1,
                    function, ": elastic_distance must be >= 1, got ", o.elastic_distance);
}

/// One tensor at the points of the grid.
Tensor resampled(const Tensor& t, const Tensor& grid, GridSampleOptions::Padding padding) {
  const DType wide = t.dtype() == f64 || t.dtype() == i64 ? f64 : f32;
  const Shape volume(t.shape().end() - 3, t.shape().end());
  Shape channels{1, 1}, shape = t.shape();
  for (int64_t i = 0; i < t.rank() - 3; ++i) channels[1] *= t.size(i);
  for (int64_t i = 0; i < 3; ++i) channels.push_back(volume[i]), shape[t.rank() - 3 + i] = grid.size(1 + i);
  using Mode = GridSampleOptions::Mode;
  return grid_sample(t.to(wide).reshape(channels), grid.to(wide).to(t.device()),
                     {.mode = is_floating(t.dtype()) ? Mode::linear : Mode::nearest, .padding = padding})
      .reshape(shape)
      .to(t.dtype());
}

}  // namespace

Sample random_spatial(const Sample& sample, const SpatialOptions& o, Generator& random) {
  const Shape volume = detail::volume_of("random_spatial", sample);
  check_options(o);
  const Shape size = o.size ? Shape{o.size->d, o.size->h, o.size->w} : volume;
  for (int64_t i = 0; i < 3; ++i)
    check<ShapeError>(size[i] >= 1 && volume[i] >= 1, "random_spatial: sizes must be >= 1, got ", size,
                      " of a volume ", volume);
  Matrix steps{};
  const double all_axes = detail::draw(o.zoom, random);
  bool changes = size != volume;
  for (size_t i = 0; i < 3; ++i) {
    const double zoom = o.zoom_axes_alike ? all_axes : detail::draw(o.zoom, random);
    steps[i][i] = o.spacing[i] / zoom;
    changes = changes || zoom != 1;
  }
  for (size_t axis = 0; axis < 3; ++axis) {
    const double angle = detail::draw(o.rotation[axis], random);
    steps = rotated(steps, axis, angle);
    changes = changes || angle != 0;
  }
  for (size_t i = 0; i < 3; ++i)
    for (double& step : steps[i]) step /= o.spacing[i];
  const double deviation = detail::draw(o.elastic, random);
  if (!changes && deviation == 0) return sample;
  Tensor grid = affine_grid(theta_of(steps, volume, size).to(f32), {1, 1, size[0], size[1], size[2]});
  if (deviation > 0) grid = grid + displacements(deviation, o.elastic_distance, volume, size, random);
  Sample result;
  for (const Tensor& t : sample) result.push_back(resampled(t, grid, o.padding));
  return result;
}

}  // namespace vox::data
