#pragma once

#include <initializer_list>
#include <utility>

#include <voxgrad/nn/data/loader.h>
#include <voxgrad/ops/triple.h>

// Random changes of volumes, for Loader::Get. The tensors are (..., D, H, W) on any device; those of a sample
// have the same last three sizes and are changed in the same way, so that a label stays where its scan is.
// All random numbers come from `random`; which ones are drawn depends on sizes and options, not on elements.
// As with all ops, nothing is recorded unless an input requires grad.
namespace vox::data {

/// Views of the box of `size` at a random place. ShapeError unless the box fits.
Sample random_crop(const Sample& sample, Triple size, Generator& random);

/// Mirrors each of the last three dimensions that `axes` names (0 is D) with probability 1/2.
Sample random_flip(const Sample& sample, Generator& random, std::initializer_list<int> axes = {0, 1, 2});

struct IntensityOptions {
  vox::detail::ByName by_name{};
  std::pair<double, double> scale = {1, 1}, shift = {0, 0};  ///< ranges
  std::pair<double, double> gamma = {1, 1};  ///< range of the exponent; x must not be negative
  double noise = 0;                          ///< the largest standard deviation of the noise
};
/// x^gamma * scale + shift + noise, for x of any shape and floating dtype. gamma, scale and shift are uniform
/// in their ranges. The noise is normal with mean 0; its standard deviation is uniform in [0, options.noise].
/// Throws ValueError for ranges that are not finite or in the wrong order.
Tensor random_intensity(const Tensor& x, const IntensityOptions& options, Generator& random);

}  // namespace vox::data
