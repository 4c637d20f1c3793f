#include "metrics.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <stdexcept>

namespace mri {
namespace {

constexpr int64_t kDilation = 2;
constexpr int64_t kWindow = 7;

void check_same_size(const char* function, const Volume& truth, const Volume& image, const Mask* mask) {
  if (truth.size != image.size) throw std::invalid_argument(std::string(function) + ": the sizes differ");
  if (mask && mask->size() != truth.voxels.size()) {
    throw std::invalid_argument(std::string(function) + ": the mask has " + std::to_string(mask->size()) +
                                " voxels, the image " + std::to_string(truth.voxels.size()));
  }
}

// Windows are cubes, so their sums and maxima are computed axis by axis. A volume is `outer` blocks of
// `length` rows of `inner` voxels each; neighbours along the axis are `inner` voxels apart.
struct Axis {
  int64_t outer, length, inner;
};
Axis axis_of(const Size& size, int axis) {
  Axis a{1, size[axis], 1};
  for (int i = 0; i < axis; ++i) a.outer *= size[i];
  for (int i = axis + 1; i < 3; ++i) a.inner *= size[i];
  return a;
}

Mask dilate_axis(const Mask& mask, Axis axis) {
  Mask wider(mask.size(), 0);
  for (int64_t o = 0; o < axis.outer; ++o) {
    for (int64_t i = 0; i < axis.length; ++i) {
      uint8_t* out = wider.data() + (o * axis.length + i) * axis.inner;
      const int64_t last = std::min(i + kDilation, axis.length - 1);
      for (int64_t n = std::max<int64_t>(i - kDilation, 0); n <= last; ++n) {
        const uint8_t* in = mask.data() + (o * axis.length + n) * axis.inner;
        for (int64_t j = 0; j < axis.inner; ++j) out[j] |= in[j];
      }
    }
  }
  return wider;
}

// Sums of kWindow neighbours; the axis gets shorter by kWindow - 1.
std::vector<double> window_sum_axis(const std::vector<double>& values, Axis axis) {
  const int64_t shorter = axis.length - kWindow + 1;
  std::vector<double> sums(static_cast<size_t>(axis.outer * shorter * axis.inner), 0.0);
  for (int64_t o = 0; o < axis.outer; ++o) {
    for (int64_t i = 0; i < shorter; ++i) {
      double* out = sums.data() + (o * shorter + i) * axis.inner;
      for (int64_t k = 0; k < kWindow; ++k) {
        const double* in = values.data() + (o * axis.length + i + k) * axis.inner;
        for (int64_t j = 0; j < axis.inner; ++j) out[j] += in[j];
      }
    }
  }
  return sums;
}

// The mean of `a * b`, or of `a` if `b` is null, over every window inside the volume.
std::vector<double> window_mean(const Volume& a, const Volume* b) {
  std::vector<double> values(a.voxels.begin(), a.voxels.end());
  if (b) {
    for (size_t i = 0; i < values.size(); ++i) values[i] *= b->voxels[i];
  }
  Size size = a.size;
  for (int axis = 2; axis >= 0; --axis) {
    values = window_sum_axis(values, axis_of(size, axis));
    size[axis] -= kWindow - 1;
  }
  for (double& value : values) value /= kWindow * kWindow * kWindow;
  return values;
}

}  // namespace

Mask foreground(const Volume& truth) {
  Mask mask(truth.voxels.size());
  for (size_t i = 0; i < mask.size(); ++i) mask[i] = truth.voxels[i] > kAir;
  for (int axis = 0; axis < 3; ++axis) mask = dilate_axis(mask, axis_of(truth.size, axis));
  return mask;
}

double psnr(const Volume& truth, const Volume& image, const Mask* mask) {
  check_same_size("psnr", truth, image, mask);
  double sum = 0;
  int64_t count = 0;
  for (size_t i = 0; i < truth.voxels.size(); ++i) {
    if (mask && !(*mask)[i]) continue;
    const double error = static_cast<double>(image.voxels[i]) - truth.voxels[i];
    sum += error * error;
    ++count;
  }
  if (count == 0) throw std::invalid_argument("psnr: no voxel counts");
  return -10 * std::log10(sum / static_cast<double>(count));
}

double ssim(const Volume& truth, const Volume& image, const Mask* mask) {
  check_same_size("ssim", truth, image, mask);
  Size windows{};
  for (int axis = 0; axis < 3; ++axis) {
    windows[axis] = truth.size[axis] - kWindow + 1;
    if (windows[axis] < 1) throw std::invalid_argument("ssim: every axis needs at least 7 voxels");
  }
  const std::vector<double> mean_x = window_mean(truth, nullptr), mean_y = window_mean(image, nullptr);
  const std::vector<double> mean_xx = window_mean(truth, &truth), mean_yy = window_mean(image, &image);
  const std::vector<double> mean_xy = window_mean(truth, &image);

  constexpr double c1 = 0.01 * 0.01, c2 = 0.03 * 0.03;
  constexpr double n = kWindow * kWindow * kWindow, sample = n / (n - 1);
  constexpr int64_t margin = kWindow / 2;
  double sum = 0;
  int64_t count = 0;
  size_t i = 0;
  for (int64_t d = 0; d < windows[0]; ++d) {
    for (int64_t h = 0; h < windows[1]; ++h) {
      for (int64_t w = 0; w < windows[2]; ++w, ++i) {
        if (mask && !(*mask)[truth.index(d + margin, h + margin, w + margin)]) continue;
        const double x = mean_x[i], y = mean_y[i];
        const double var_x = sample * (mean_xx[i] - x * x), var_y = sample * (mean_yy[i] - y * y);
        const double cov = sample * (mean_xy[i] - x * y);
        sum += (2 * x * y + c1) * (2 * cov + c2) / ((x * x + y * y + c1) * (var_x + var_y + c2));
        ++count;
      }
    }
  }
  if (count == 0) throw std::invalid_argument("ssim: no window counts");
  return sum / static_cast<double>(count);
}

Scores score(const Volume& truth, const Volume& image, const Mask* mask) {
  return {psnr(truth, image, mask), ssim(truth, image, mask)};
}

// ---- Ours against trilinear interpolation --------------------------------------------------------------

Comparison planes(const Comparison& all, int64_t begin, int64_t slab) {
  const auto cut = [&](const Volume& volume, int64_t scale) {
    return crop(volume, {begin / scale, 0, 0}, {slab / scale, volume.size[1], volume.size[2]});
  };
  return {cut(all.low, 2), cut(all.trilinear, 1), cut(all.ours, 1), cut(all.truth, 1)};
}

ComparisonScores score(const Comparison& comparison) {
  const Mask mask = foreground(comparison.truth);
  const auto both = [&](const Volume& image) {
    return RegionScores{score(comparison.truth, image, &mask), score(comparison.truth, image)};
  };
  return {both(comparison.trilinear), both(comparison.ours)};
}

namespace {

using Json = nlohmann::ordered_json;

void add_scores(Json& json, const ComparisonScores& scores) {
  const auto pair = [](double foreground, double whole) {
    return Json{{"foreground", foreground}, {"whole", whole}};
  };
  const RegionScores& t = scores.trilinear;
  const RegionScores& o = scores.ours;
  json["psnr_trilinear"] = pair(t.foreground.psnr, t.whole.psnr);
  json["psnr_ours"] = pair(o.foreground.psnr, o.whole.psnr);
  json["ssim_trilinear"] = pair(t.foreground.ssim, t.whole.ssim);
  json["ssim_ours"] = pair(o.foreground.ssim, o.whole.ssim);
}

}  // namespace

std::string to_json(const Report& report) {
  Json json{{"device", report.device}, {"threads", report.threads}, {"seconds", report.seconds},
            {"steps", report.steps},   {"seed", report.seed},       {"parameters", report.parameters},
            {"volume", report.volume}};
  add_scores(json, report.scores);
  if (report.unseen) {
    json["unseen"]["volume"] = report.unseen_volume;
    add_scores(json["unseen"], *report.unseen);
  }
  return json.dump(2, ' ', /*ensure_ascii=*/false, Json::error_handler_t::replace) + "\n";
}

std::string to_table(const ComparisonScores& scores) {
  const auto line = [](const char* name, const RegionScores& s) {
    char text[120];
    std::snprintf(text, sizeof text, "  %-10s %8.2f dB %8.4f %12.2f dB %8.4f\n", name, s.foreground.psnr,
                  s.foreground.ssim, s.whole.psnr, s.whole.ssim);
    return std::string(text);
  };
  return "             foreground: PSNR, SSIM      whole: PSNR, SSIM\n" +
         line("trilinear", scores.trilinear) + line("ours", scores.ours);
}

}  // namespace mri
