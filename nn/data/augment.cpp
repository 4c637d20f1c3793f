#include <voxgrad/core/factories.h>
#include <voxgrad/nn/data/augment.h>
#include <voxgrad/ops/elementwise.h>
#include <voxgrad/ops/shaping.h>

#include <cmath>

namespace vox::data {

namespace {

double uniform(Generator& random, const std::pair<double, double>& range) {
  return range.first + (range.second - range.first) * rand({}, {f64}, random).item<double>();
}

/// The last three sizes, which all tensors of the sample share.
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

}  // namespace

Sample random_crop(const Sample& sample, Triple size, Generator& random) {
  const Shape volume = volume_of("random_crop", sample), box{size.d, size.h, size.w};
  Shape origin{0, 0, 0};
  for (int64_t axis = 0; axis < 3; ++axis)
    check<ShapeError>(box[axis] >= 1 && box[axis] <= volume[axis],
                      "random_crop: the box must fit a volume of ", volume, ", got ", box);
  for (int64_t axis = 0; axis < 3; ++axis)
    origin[axis] = randint(0, volume[axis] - box[axis] + 1, {}, {i64}, random).item<int64_t>();
  Sample result;
  for (Tensor t : sample) {
    for (int64_t axis = 0; axis < 3; ++axis) t = t.slice(axis - 3, origin[axis], origin[axis] + box[axis]);
    result.push_back(t);
  }
  return result;
}

Sample random_flip(const Sample& sample, Generator& random, std::initializer_list<int> axes) {
  const Shape volume = volume_of("random_flip", sample);
  Sample result = sample;
  for (const int axis : axes) {
    check<ValueError>(axis >= 0 && axis < 3, "random_flip: axes are 0, 1 and 2, got ", axis);
    const bool mirrored = randint(0, 2, {}, {i64}, random).item<int64_t>() == 1;
    if (!mirrored || volume[axis] == 0) continue;
    for (Tensor& t : result)
      t = index_select(t, axis - 3, arange(volume[axis] - 1, -1, -1, {i64, t.device()}));
  }
  return result;
}

Tensor random_intensity(const Tensor& x, const IntensityOptions& o, Generator& random) {
  vox::detail::check_floating("random_intensity", "x", x);
  for (const auto& [name, range] : {std::pair{"scale", o.scale}, {"shift", o.shift}, {"gamma", o.gamma}})
    check<ValueError>(
        std::isfinite(range.first) && std::isfinite(range.second) && range.first <= range.second,
        "random_intensity: ", name, " must be a range {low, high}, got {", range.first, ", ", range.second,
        "}");
  check<ValueError>(o.noise >= 0 && std::isfinite(o.noise), "random_intensity: noise must be >= 0, got ",
                    o.noise);
  const double scale = uniform(random, o.scale), shift = uniform(random, o.shift),
               gamma = uniform(random, o.gamma), noise = uniform(random, {0, o.noise});
  Tensor y = gamma == 1 ? x : pow(x, gamma);
  if (scale != 1) y = y * scale;
  if (shift != 0) y = y + shift;
  if (noise != 0) y = y + randn(x.shape(), x.options(), random) * noise;
  return y;
}

}  // namespace vox::data
