#include "preprocess.h"

#include <algorithm>
#include <cmath>
#include <tuple>

#include <voxgrad/image/resample.h>
#include <voxgrad/voxgrad.h>

#include "../common/regions.h"

namespace nnunet {
namespace {

using mri::Size;
using vox::check;

Size size_of(const vox::Tensor& x) { return {x.size(-3), x.size(-2), x.size(-1)}; }

template <class T>
std::array<T, 3> permuted(const std::array<T, 3>& x, const Size& order) {
  return {x[static_cast<size_t>(order[0])], x[static_cast<size_t>(order[1])],
          x[static_cast<size_t>(order[2])]};
}

// Sets the zeros that no way of zeros joins with the border.
void fill_holes(mri::Mask& mask, const Size& size) {
  mri::Mask empty(mask.size()), outside(mask.size());
  for (size_t i = 0; i < mask.size(); ++i) {
    if (mask[i]) continue;
    int neighbours = 0;
    mri::for_each_neighbour(size, i, [&](size_t) { ++neighbours; });
    empty[i] = 1, outside[i] = neighbours < 6;
  }
  outside = mri::grow(std::move(outside), empty, size);
  for (size_t i = 0; i < mask.size(); ++i) mask[i] = !outside[i];
}

// Mean and standard deviation, in double, of the voxels where mask is not 0, or of all if it is empty.
std::pair<double, double> moments(const std::vector<float>& x, const std::vector<uint8_t>& mask) {
  double n = 0, sum = 0, squares = 0;
  for (size_t i = 0; i < x.size(); ++i)
    if (mask.empty() || mask[i]) ++n, sum += x[i];
  const double mean = sum / n;
  for (size_t i = 0; i < x.size(); ++i)
    if (mask.empty() || mask[i]) squares += (x[i] - mean) * (x[i] - mean);
  return {mean, std::sqrt(squares / n)};
}

bool is_coarse(const Spacing& spacing) {
  const auto [least, most] = std::minmax_element(spacing.begin(), spacing.end());
  return *most / *least > 3;
}
// The axis with the largest spacing, if there is only one.
std::optional<int64_t> coarsest(const Spacing& spacing) {
  const auto most = std::max_element(spacing.begin(), spacing.end());
  if (std::count(spacing.begin(), spacing.end(), *most) > 1) return std::nullopt;
  return most - spacing.begin();
}
vox::ResampleOptions options_for(const Spacing& from, const Spacing& to, const Resampling& rule) {
  vox::ResampleOptions options{.order = rule.order, .separate_order = rule.order_z};
  if (rule.force_separate_z.value_or(is_coarse(from)))
    options.separate_axis = coarsest(from);
  else if (!rule.force_separate_z && is_coarse(to))
    options.separate_axis = coarsest(to);
  return options;
}

}  // namespace

vox::Tensor resample(const vox::Tensor& x, const Size& size, const Spacing& from, const Spacing& to,
                     const Resampling& rule) {
  if (size_of(x) == size) return x;
  return vox::resample(x, {size[0], size[1], size[2]}, options_for(from, to, rule));
}

vox::Tensor resample_labels(const vox::Tensor& x, const Size& size, const Spacing& from, const Spacing& to,
                            const Resampling& rule) {
  if (size_of(x) == size) return x;
  return vox::resample_labels(x, {size[0], size[1], size[2]}, options_for(from, to, rule));
}

vox::Tensor nonzero_mask(const vox::Tensor& image) {
  vox::Tensor nonzero = vox::ne(image[0], 0);
  for (int64_t c = 1; c < image.size(0); ++c) nonzero = vox::logical_or(nonzero, image[c]);
  std::vector<uint8_t> mask = nonzero.to(vox::u8).to_vector<uint8_t>();
  fill_holes(mask, size_of(image));
  return vox::from_vector(mask, image[0].shape());
}

Box bounding_box(const vox::Tensor& mask) {
  const Box box = mri::bounding_box(mask.to_vector<uint8_t>(), size_of(mask));
  return box.length(0) > 0 ? box : mri::whole(size_of(mask));
}

vox::Tensor crop(const vox::Tensor& x, const Box& box) {
  vox::Tensor part = x;
  for (int64_t axis = 0; axis < 3; ++axis)
    part = part.slice(axis - 3, box.begin[static_cast<size_t>(axis)], box.end[static_cast<size_t>(axis)]);
  return part;
}

vox::Tensor normalise(const vox::Tensor& x, const vox::Tensor& mask, const Channel& channel) {
  using enum Channel::Scheme;
  const bool masked = channel.scheme == z_score && channel.use_mask;
  vox::Tensor y;
  double shift = 0, scale = 1;
  switch (channel.scheme) {
    case z_score:
      std::tie(shift, scale) =
          moments(x.to_vector<float>(), masked ? mask.to_vector<uint8_t>() : std::vector<uint8_t>());
      break;
    case ct:
      y = vox::clamp(x, channel.low, channel.high);
      shift = channel.mean, scale = channel.deviation;
      break;
    case rescale_to_01:
      shift = vox::min(x).item(), scale = vox::max(x).item() - shift;
      break;
    case rgb_to_01:
      scale = 255;
      break;
    case none:
      return x;
  }
  if (!y.defined()) y = x.clone();
  y.sub_(shift).div_(std::max(scale, 1e-8));
  return masked ? vox::where(mask.to(vox::boolean), y, x) : y;
}

Case preprocess(const Model& model, vox::Tensor image, const Spacing& spacing, vox::Tensor previous,
                vox::Tensor labels) {
  check<ModelError>(image.size(0) == std::ssize(model.channels), "the scan has ", image.size(0),
                    " channels; the model needs ", model.channels.size());
  check<ModelError>(!model.is_cascade || previous.defined(), "configuration ", model.configuration,
                    " needs the masks of the previous stage");
  if (previous.defined())
    check<ModelError>(previous.shape() == image[0].shape(), "the mask of the previous stage has shape ",
                      previous.shape(), ", the scan ", image[0].shape());
  const Size& order = model.transpose_forward;
  image = image.permute({0, order[0] + 1, order[1] + 1, order[2] + 1}).contiguous();
  Case scan;
  scan.whole = size_of(image), scan.spacing = permuted(spacing, order);

  const vox::Tensor mask = nonzero_mask(image);
  scan.box = bounding_box(mask);
  const vox::Tensor kept = crop(image, scan.box), kept_mask = crop(mask, scan.box);
  scan.cropped = size_of(kept);
  scan.target = scan.spacing;  // of a 2-D model, the distance of planes stays
  std::copy(model.spacing.begin(), model.spacing.end(),
            scan.target.end() - static_cast<int64_t>(model.spacing.size()));
  Size size;
  for (size_t axis = 0; axis < 3; ++axis)
    size[axis] = static_cast<int64_t>(
        std::nearbyint(scan.spacing[axis] / scan.target[axis] * static_cast<double>(scan.cropped[axis])));

  std::vector<vox::Tensor> channels;
  for (int64_t c = 0; c < image.size(0); ++c)
    channels.push_back(normalise(kept[c], kept_mask, model.channels[static_cast<size_t>(c)]));
  scan.input = resample(vox::stack(channels), size, scan.spacing, scan.target, model.data);
  if (labels.defined()) {
    labels = crop(labels.permute({order[0], order[1], order[2]}), scan.box).to(vox::i64);
    labels = vox::where(vox::eq(labels + kept_mask.to(vox::i64), 0), -1, labels);
    scan.labels = resample_labels(labels, size, scan.spacing, scan.target, model.segmentation);
  }
  if (model.is_cascade) {
    previous = crop(previous.permute({order[0], order[1], order[2]}), scan.box).to(vox::i64);
    previous = resample_labels(previous, size, scan.spacing, scan.target, model.segmentation);
    std::vector<vox::Tensor> inputs{scan.input};
    for (const int64_t label : model.labels.foreground)
      inputs.push_back(vox::eq(previous, label).to(vox::f32).unsqueeze(0));
    scan.input = vox::cat(inputs, 0);
  }
  return scan;
}

vox::Tensor mask_of(const Model& model, const Case& scan, const vox::Tensor& logits) {
  const auto& foreground = model.labels.foreground;
  const vox::DType dtype = foreground.empty() || foreground.back() < 256 ? vox::u8 : vox::i64;
  vox::Tensor best, labels = vox::zeros({scan.cropped[0], scan.cropped[1], scan.cropped[2]}, {dtype});
  for (int64_t head = 0; head < logits.size(0); ++head) {  // one by one, because all may be large
    const vox::Tensor x =
        resample(logits.slice(0, head, head + 1), scan.cropped, scan.target, scan.spacing, model.logits)[0];
    if (model.labels.has_regions()) {  // sigmoid(x) > 0.5 is x > 0
      labels = vox::where(vox::gt(x, 0), model.labels.region_order[static_cast<size_t>(head)], labels);
    } else {
      if (head > 0) labels = vox::where(vox::gt(x, best), head, labels);
      best = head > 0 ? vox::maximum(best, x) : x;
    }
  }
  vox::Tensor whole = vox::zeros({scan.whole[0], scan.whole[1], scan.whole[2]}, {dtype});
  crop(whole, scan.box).copy_(labels);
  const Size& order = model.transpose_backward;
  return whole.permute({order[0], order[1], order[2]}).contiguous();
}

}  // namespace nnunet
