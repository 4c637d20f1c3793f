#include <voxgrad/core/factories.h>
#include <voxgrad/nn/data/augment.h>
#include <voxgrad/ops/elementwise.h>
#include <voxgrad/ops/shaping.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <optional>

namespace vox::data {

namespace detail {

double draw(const Range& range, Generator& random) {
  return range.first + (range.second - range.first) * rand({}, {f64}, random).item<double>();
}

void check_range(const char* function, const char* name, const Range& range, double least) {
  const auto [low, high] = range;
  check<ValueError>(std::isfinite(low) && std::isfinite(high) && low <= high && low >= least, function, ": ",
                    name, " must be a range {low, high}", least > -1e300 ? str(" from ", least) : "",
                    ", got {", low, ", ", high, "}");
}

Shape volume_of(const char* function, const Sample& sample) {
  check<ValueError>(!sample.empty(), function, ": the sample has no tensors");
  Shape volume;
  for (const Tensor& t : sample) {
    vox::detail::check_defined(function, "sample", t);
    check<ShapeError>(t.rank() >= 3, function, ": needs tensors (..., D, H, W), got shape ", t.shape());
    const Shape own(t.shape().end() - 3, t.shape().end());
    if (volume.empty()) volume = own;
    check<ShapeError>(own == volume, function,
                      ": the last three sizes of a sample's tensors must be equal, got ", sample[0].shape(),
                      " and ", t.shape());
  }
  return volume;
}

}  // namespace detail

namespace {

using detail::check_range;
using detail::draw;
using detail::volume_of;

int64_t whole(int64_t count, Generator& random) {
  return randint(0, count, {}, {i64}, random).item<int64_t>();
}

Shape checked_box(const char* function, const Shape& volume, Triple size) {
  const Shape box{size.d, size.h, size.w};
  for (int64_t axis = 0; axis < 3; ++axis)
    check<ShapeError>(box[axis] >= 1 && box[axis] <= volume[axis], function,
                      ": the box must fit a volume of ", volume, ", got ", box);
  return box;
}

Sample crop(const Sample& sample, const Shape& origin, const Shape& box) {
  Sample result;
  for (Tensor t : sample) {
    for (int64_t axis = 0; axis < 3; ++axis) t = t.slice(axis - 3, origin[axis], origin[axis] + box[axis]);
    result.push_back(t);
  }
  return result;
}

/// The number of a random voxel of a random class that is above 0, or of class 0; nothing if there is none.
std::optional<int64_t> random_voxel(const std::vector<int64_t>& classes, bool background, Generator& random) {
  std::map<int64_t, int64_t> counts;
  for (const int64_t c : classes)
    if (background ? c == 0 : c > 0) ++counts[c];
  if (counts.empty()) return std::nullopt;
  const auto [chosen, count] = *std::next(counts.begin(), whole(std::ssize(counts), random));
  int64_t left = whole(count, random), voxel = 0;
  while (classes[static_cast<size_t>(voxel)] != chosen || left-- > 0) ++voxel;
  return voxel;
}

}  // namespace

bool chance(Real probability, Generator& random) {
  check<ValueError>(probability >= 0 && probability <= 1, "chance: the probability must be from 0 to 1, got ",
                    probability);
  return draw({0, 1}, random) < probability;
}

Sample random_crop(const Sample& sample, Triple size, Generator& random) {
  const Shape volume = volume_of("random_crop", sample), box = checked_box("random_crop", volume, size);
  Shape origin{0, 0, 0};
  for (int64_t axis = 0; axis < 3; ++axis) origin[axis] = whole(volume[axis] - box[axis] + 1, random);
  return crop(sample, origin, box);
}

Sample random_foreground_crop(const Sample& sample, Triple size, const ForegroundCropOptions& options,
                              Generator& random) {
  const char* const function = "random_foreground_crop";
  const Shape volume = volume_of(function, sample), box = checked_box(function, volume, size);
  check<ValueError>(options.label >= 0 && options.label < std::ssize(sample), function,
                    ": label must be the number of one of ", sample.size(), " tensors, got ", options.label);
  const Tensor& label = sample[static_cast<size_t>(options.label)];
  check<ShapeError>(label.numel() == volume[0] * volume[1] * volume[2], function,
                    ": the label must have one channel, got shape ", label.shape());
  const bool foreground = chance(options.foreground, random);
  std::optional<int64_t> voxel;
  if (foreground || options.else_background)
    voxel = random_voxel(label.to(i64).to_vector<int64_t>(), !foreground, random);
  if (!voxel) return random_crop(sample, size, random);
  Shape origin{0, 0, 0};
  for (int64_t axis = 2, rest = *voxel; axis >= 0; rest /= volume[axis--])
    origin[axis] = std::clamp<int64_t>(rest % volume[axis] - box[axis] / 2, 0, volume[axis] - box[axis]);
  return crop(sample, origin, box);
}

Sample random_flip(const Sample& sample, Generator& random, std::initializer_list<int> axes) {
  volume_of("random_flip", sample);
  Sample result = sample;
  for (const int axis : axes) {
    check<ValueError>(axis >= 0 && axis < 3, "random_flip: axes are 0, 1 and 2, got ", axis);
    if (whole(2, random) == 0) continue;
    for (Tensor& t : result) t = flip(t, axis - 3);
  }
  return result;
}

Sample random_turn(const Sample& sample, Generator& random, std::initializer_list<int> axes) {
  const Shape volume = volume_of("random_turn", sample);
  std::vector<int> rest = axes;
  for (const int axis : rest)
    check<ValueError>(axis >= 0 && axis < 3 && std::count(rest.begin(), rest.end(), axis) == 1,
                      "random_turn: axes are different ones of 0, 1 and 2, got ", axis);
  check<ValueError>(rest.size() >= 2, "random_turn: needs at least two axes, got ", rest.size());
  const auto take = [&] {
    const auto place = rest.begin() + whole(std::ssize(rest), random);
    const int axis = *place;
    rest.erase(place);
    return axis;
  };
  const int a = take(), b = take();
  int64_t turns = whole(4, random);
  if (volume[a] != volume[b]) turns -= turns % 2;
  Sample result;
  for (Tensor t : sample) {
    if (turns == 2) t = flip(t, {a - 3, b - 3});
    if (turns == 1 || turns == 3) t = flip(t, turns == 1 ? b - 3 : a - 3).transpose(a - 3, b - 3);
    result.push_back(t);
  }
  return result;
}

Tensor random_intensity(const Tensor& x, const IntensityOptions& o, Generator& random) {
  vox::detail::check_floating("random_intensity", "x", x);
  check_range("random_intensity", "scale", o.scale);
  check_range("random_intensity", "shift", o.shift);
  check_range("random_intensity", "gamma", o.gamma);
  check<ValueError>(o.noise >= 0 && std::isfinite(o.noise), "random_intensity: noise must be >= 0, got ",
                    o.noise);
  const double scale = draw(o.scale, random), shift = draw(o.shift, random), gamma = draw(o.gamma, random),
               noise = draw({0, o.noise}, random);
  Tensor y = gamma == 1 ? x : pow(x, gamma);
  if (scale != 1) y = y * scale;
  if (shift != 0) y = y + shift;
  if (noise != 0) y = y + randn(x.shape(), x.options(), random) * noise;
  return y;
}

}  // namespace vox::data
