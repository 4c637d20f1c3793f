#pragma once

#include <initializer_list>
#include <utility>

#include <voxgrad/nn/data/loader.h>
#include <voxgrad/ops/triple.h>

// Random changes of volumes, for Loader::Get. The tensors are (..., D, H, W) on any device; those of a sample
// have the same last three sizes and are changed in the same way, so that a label stays where its scan is.
// What is drawn comes from `random`, whatever the data. Nothing is recorded that the inputs do not require.
namespace vox::data {

/// The box of `size` at a random place: views.
Sample random_crop(const Sample& sample, Triple size, Generator& random);

/// Mirrors each of the last three dimensions that `axes` names (0 is D) with probability 1/2.
Sample random_flip(const Sample& sample, Generator& random, std::initializer_list<int> axes = {0, 1, 2});

struct IntensityOptions {
  std::pair<double, double> scale = {1, 1}, shift = {0, 0};  ///< ranges
  std::pair<double, double> gamma = {1, 1};  ///< range of the exponent; x must not be negative
  double noise = 0;                          ///< its largest standard deviation
};
/// x^gamma * scale + shift + noise, of floating dtype. The numbers are uniform in their ranges; the noise is
/// normal, and its standard deviation uniform from 0.
Tensor random_intensity(const Tensor& x, const IntensityOptions& options, Generator& random);

}  // namespace vox::data
