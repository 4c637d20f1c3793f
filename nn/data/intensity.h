#pragma once

#include <array>

#include <voxgrad/nn/data/augment.h>

// Random changes of the numbers of a scan x, (..., D, H, W) of floating dtype. The whole tensor is changed
// alike; for changes by channel, call for x.select(0, c). Ranges are as in random_intensity(), and throw the
// same errors.
namespace vox::data {

/// x, convolved along D, H and W with a normal distribution of these standard deviations in voxels, cut at 4
/// of them; 0 leaves an axis as it is. Beyond the volume, its border goes on.
Tensor gaussian_blur(const Tensor& x, const std::array<double, 3>& sigma);
/// The same with one standard deviation, uniform in the range.
Tensor random_blur(const Tensor& x, const Range& sigma, Generator& random);

struct GammaOptions {
  vox::detail::ByName by_name{};
  Range gamma = {0.7, 1.5};
  bool invert = false;           ///< changes -x
  bool keep_statistics = false;  ///< the result gets the mean and the standard deviation of x
};
/// x, brought to 0..1 by its extrema, to the power gamma, and back. If the range is around 1, half of the
/// exponents are below 1.
Tensor random_gamma(const Tensor& x, const GammaOptions& options, Generator& random);

/// (x - mean) * factor + mean, limited to the extrema of x. If the range is around 1, half of the factors are
/// below 1.
Tensor random_contrast(const Tensor& x, const Range& factor, Generator& random);

/// x * exp(p), where p is a polynomial of the coordinates along D, H and W, which go from -1 to 1. Its
/// coefficients are uniform in the range. ValueError unless the order is from 0 to 8.
Tensor random_bias_field(const Tensor& x, const Range& coefficients, Generator& random, Int order = 3);

/// x, resized by a factor <= 1 (nearest) and back to its size (linear): a scan with larger voxels.
Tensor random_low_resolution(const Tensor& x, const Range& zoom, Generator& random);

}  // namespace vox::data
