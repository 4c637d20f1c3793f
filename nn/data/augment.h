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

using Range = std::pair<double, double>;  ///< low and high

/// True with this probability: `if (chance(0.15, random)) scan = random_blur(scan, {0.5, 1}, random);`
bool chance(Real probability, Generator& random);

/// Views of the box of `size` at a random place. ShapeError unless the box fits.
Sample random_crop(const Sample& sample, Triple size, Generator& random);

struct ForegroundCropOptions {
  vox::detail::ByName by_name{};
  int64_t label = 1;             ///< which tensor of the sample has the classes
  double foreground = 1.0 / 3;   ///< probability of a box around a voxel of a class above 0
  bool else_background = false;  ///< the other boxes are around a voxel of class 0, not at any place
};
/// The same, more often where something is: around a voxel, as far as the volume allows. The class is one of
/// those present, each with the same probability, and then the voxel one of its voxels. Without such a class
/// it is random_crop(). The label is (D, H, W), with any leading dimensions of size 1; it is read on the CPU.
/// ShapeError unless the box fits, ValueError for a number of a label that is not in the sample.
Sample random_foreground_crop(const Sample& sample, Triple size, const ForegroundCropOptions& options,
                              Generator& random);

/// Mirrors each of the last three dimensions that `axes` names (0 is D) with probability 1/2.
Sample random_flip(const Sample& sample, Generator& random, std::initializer_list<int> axes = {0, 1, 2});

/// Turns by a random number of quarter turns in a random plane of two of the `axes`; by half turns if its two
/// sizes differ, so that the shape stays.
Sample random_turn(const Sample& sample, Generator& random, std::initializer_list<int> axes = {0, 1, 2});

struct IntensityOptions {
  vox::detail::ByName by_name{};
  Range scale = {1, 1}, shift = {0, 0};
  Range gamma = {1, 1};  ///< of the exponent; x must not be negative
  double noise = 0;      ///< the largest standard deviation of the noise
};
/// x^gamma * scale + shift + noise, for x of any shape and floating dtype. gamma, scale and shift are uniform
/// in their ranges. The noise is normal with mean 0; its standard deviation is uniform in [0, options.noise].
/// Throws ValueError for ranges that are not finite or in the wrong order.
Tensor random_intensity(const Tensor& x, const IntensityOptions& options, Generator& random);

namespace detail {
double draw(const Range& range, Generator& random);  ///< uniform
/// ValueError, naming `function` and `name`, unless the range is finite, in order, and not below `least`.
void check_range(const char* function, const char* name, const Range& range, double least = -1e300);
/// The last three sizes, which all tensors of the sample must share.
Shape volume_of(const char* function, const Sample& sample);
}  // namespace detail

}  // namespace vox::data
