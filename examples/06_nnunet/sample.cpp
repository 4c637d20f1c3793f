#include "sample.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <numbers>

#include <voxgrad/nn/data/intensity.h>
#include <voxgrad/nn/data/spatial.h>
#include <voxgrad/voxgrad.h>

namespace nnunet {

namespace data = vox::data;
using vox::Generator;
using vox::Tensor;

namespace {

int64_t whole(int64_t low, int64_t high, Generator& random) {  // from low to high
  return vox::randint(low, high + 1, {}, {vox::i64}, random).item<int64_t>();
}

}  // namespace

Volume make_volume(const Tensor& image, const Tensor& label, const Labels& labels) {
  constexpr size_t most = 10000;
  Volume volume{.image = image, .label = {}, .voxels = {}};
  std::vector<uint8_t> small;
  std::map<int64_t, std::vector<int64_t>> places;
  for (const int64_t l : label.to_vector<int64_t>()) {
    if (l > 0) places[l].push_back(std::ssize(small));
    small.push_back(static_cast<uint8_t>(l < 0 ? Volume::kOutside : l));
  }
  for (auto& [l, all] : places) {
    if (l == labels.ignore) continue;
    std::vector<int64_t> some;
    for (size_t i = 0, n = std::min(most, all.size()); i < n; ++i) some.push_back(all[i * all.size() / n]);
    volume.voxels.push_back(std::move(some));
  }
  volume.label = vox::from_vector(small, label.shape());
  return volume;
}

data::Sample random_box(const Volume& volume, vox::Triple size, vox::Triple margin, bool foreground,
                        Generator& random) {
  std::array<int64_t, 3> near{-1, -1, -1};
  if (foreground && !volume.voxels.empty()) {
    const auto& voxels = volume.voxels[static_cast<size_t>(whole(0, std::ssize(volume.voxels) - 1, random))];
    int64_t rest = voxels[static_cast<size_t>(whole(0, std::ssize(voxels) - 1, random))];
    for (int64_t axis = 2; axis >= 0; rest /= volume.label.size(axis--))
      near[static_cast<size_t>(axis)] = rest % volume.label.size(axis);
  }
  Tensor image = volume.image, label = volume.label;
  std::vector<int64_t> padding;
  for (int64_t axis = 2; axis >= 0; --axis) {
    const int64_t have = label.size(axis), beyond = std::max(margin[axis], size[axis] - have),
                  low = -beyond / 2, high = have + beyond - beyond / 2 - size[axis],
                  voxel = near[static_cast<size_t>(axis)],
                  origin =
                      voxel < 0 ? whole(low, high, random) : std::clamp(voxel - size[axis] / 2, low, high),
                  begin = std::max<int64_t>(origin, 0), end = std::min(origin + size[axis], have);
    image = image.slice(axis + 1, begin, end), label = label.slice(axis, begin, end);
    padding.push_back(begin - origin), padding.push_back(origin + size[axis] - end);
  }
  if (std::any_of(padding.begin(), padding.end(), [](int64_t n) { return n > 0; })) {
    image = vox::pad(image, padding), label = vox::pad(label, padding, Volume::kOutside);
  }
  return {image, label};
}

// configure_rotation_dummyDA_mirroring_and_inital_patch_size
Augmentation::Augmentation(const Model& model) : size(model.patch), mirror_first(!model.is_2d()) {
  const double degree = std::numbers::pi / 180;
  const double plane =
      static_cast<double>(std::max(size.h, size.w)) / static_cast<double>(std::min(size.h, size.w));
  is_flat = model.is_2d() || std::max(size.h, size.w) > 3 * size.d;
  angle = !is_flat ? 30 * degree : model.is_2d() && plane > 1.5 ? 15 * degree : 180 * degree;
  // The extent along each axis of the patch, turned by the largest angle about each axis, and zoomed by 0.85.
  std::array<double, 3> extent{static_cast<double>(size.d), static_cast<double>(size.h),
                               static_cast<double>(size.w)};
  const auto own = extent;
  const double turn = std::min(angle, 90 * degree);
  const auto rotate = [&](size_t a, size_t b) {
    std::array<double, 3> x = own;  // nnU-Net turns the half diagonal about one axis at a time
    x[a] = own[a] * std::cos(turn) + own[b] * std::sin(turn),
    x[b] = own[b] * std::cos(turn) + own[a] * std::sin(turn);
    for (size_t i : {a, b}) extent[i] = std::max(extent[i], x[i]);
  };
  rotate(1, 2);
  if (!is_flat) rotate(0, 1), rotate(0, 2);
  for (int64_t axis = 0; axis < 3; ++axis)
    rotated[axis] = static_cast<int64_t>(extent[static_cast<size_t>(axis)] / 0.85);
  if (is_flat) rotated.d = size.d;
  for (const Channel& channel : model.channels) use_mask.push_back(channel.use_mask);
}

namespace {

// kOutside becomes 0, and so does the image there in the channels of `use_mask`.
data::Sample without_outside(data::Sample sample, const std::vector<bool>& use_mask) {
  const Tensor outside = vox::eq(sample[1], Volume::kOutside);
  std::vector<Tensor> channels;
  for (size_t c = 0; c < use_mask.size(); ++c) {
    const Tensor channel = sample[0][static_cast<int64_t>(c)];
    channels.push_back(use_mask[c] ? vox::where(outside, 0, channel) : channel);
  }
  return {vox::stack(channels), vox::where(outside, 0, sample[1])};
}

}  // namespace

data::Sample Augmentation::plain_patch(const Volume& volume, bool foreground, Generator& random) const {
  return without_outside(random_box(volume, size, 0, foreground, random), use_mask);
}

// get_training_transforms
data::Sample Augmentation::patch(const Volume& volume, bool foreground, Generator& random) const {
  const bool turns = data::chance(0.2, random), zooms = data::chance(0.2, random);
  const vox::Triple box = turns || zooms ? rotated : size;
  vox::Triple margin;
  for (int64_t axis = 0; axis < 3; ++axis) margin[axis] = box[axis] - size[axis];
  data::Sample sample = random_box(volume, box, margin, foreground, random);
  if (is_flat)  // (..., D, H, W) to (..., D, 1, H, W)
    for (Tensor& x : sample) x = x.unsqueeze(-3);
  if (turns || zooms) {
    data::SpatialOptions options{.size = is_flat ? vox::Triple(1, size.h, size.w) : size};
    const data::Range range = turns ? data::Range(-angle, angle) : data::Range(0, 0);
    options.rotation = {range, is_flat ? data::Range(0, 0) : range, is_flat ? data::Range(0, 0) : range};
    const double scale = zooms ? 0.7 + 0.7 * vox::rand({}, {vox::f64}, random).item() : 1;
    options.zoom = {1 / scale, 1 / scale};
    sample = data::random_spatial(sample, options, random);
  }
  Tensor& image = sample[0];
  using Options = data::IntensityOptions;
  if (data::chance(0.1, random)) image = data::random_intensity(image, Options{.noise = 0.1}, random);
  // With this probability, each channel with the second one.
  const auto change = [&](double probability, double of_channel, const auto& f) {
    if (!data::chance(probability, random)) return;
    std::vector<Tensor> channels;
    for (int64_t c = 0; c < image.size(0); ++c)
      channels.push_back(data::chance(of_channel, random) ? f(image[c]) : image[c]);
    image = vox::stack(channels);
  };
  change(0.2, 0.5, [&](const Tensor& x) { return data::random_blur(x, {0.5, 1}, random); });
  change(0.15, 1, [&](const Tensor& x) {
    return data::random_intensity(x, Options{.scale = {0.75, 1.25}}, random);
  });
  change(0.15, 1, [&](const Tensor& x) { return data::random_contrast(x, {0.75, 1.25}, random); });
  change(0.25, 0.5, [&](const Tensor& x) { return data::random_low_resolution(x, {0.5, 1}, random); });
  for (const bool invert : {true, false})
    change(invert ? 0.1 : 0.3, 1, [&](const Tensor& x) {
      return data::random_gamma(x, {.invert = invert, .keep_statistics = true}, random);
    });
  if (is_flat)
    for (Tensor& x : sample) x = x.squeeze(-3);
  sample = mirror_first ? data::random_flip(sample, random) : data::random_flip(sample, random, {1, 2});
  return without_outside(std::move(sample), use_mask);
}

}  // namespace nnunet
