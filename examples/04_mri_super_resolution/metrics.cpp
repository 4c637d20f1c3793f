#include "metrics.h"

#include <cmath>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <stdexcept>

namespace mri {
namespace {

constexpr int64_t kWindow = 7;

void check_same_size(const char* function, const Volume& truth, const Volume& image, const Mask* mask) {
  if (truth.size != image.size) throw std::invalid_argument(std::string(function) + ": the sizes differ");
  if (mask && mask->size() != truth.voxels.size()) {
    throw std::invalid_argument(std::string(function) + ": the mask has " + std::to_string(mask->size()) +
                                " voxels, the image " + std::to_string(truth.voxels.size()));
  }
}

/// 1 for the voxels that count.
vox::Tensor to_tensor(const Mask* mask, const Size& size) {
  const vox::Shape shape{1, 1, size[0], size[1], size[2]};
  return mask ? vox::from_vector<uint8_t>(*mask, shape).to(vox::f64) : vox::ones(shape, {.dtype = vox::f64});
}

/// The mean over every window inside the volume, axis by axis.
vox::Tensor window_mean(vox::Tensor x) {
  for (const vox::Triple& window : {vox::Triple(1, 1, kWindow), {1, kWindow, 1}, {kWindow, 1, 1}})
    x = vox::avg_pool3d(x, {.kernel_size = window, .stride = 1});
  return x;
}

}  // namespace

Mask foreground(const Volume& truth) {
  constexpr int64_t kDilation = 2;
  const vox::Tensor head = vox::gt(to_tensor(truth), kAir).to(vox::f32);
  return vox::max_pool3d(head, {.kernel_size = 2 * kDilation + 1, .stride = 1, .padding = kDilation})
      .to(vox::u8)
      .to_vector<uint8_t>();
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
  vox::Tensor counts = to_tensor(mask, truth.size);
  for (int axis = 0; axis < 3; ++axis) {
    if (truth.size[axis] < kWindow) throw std::invalid_argument("ssim: every axis needs at least 7 voxels");
    counts = counts.slice(2 + axis, kWindow / 2, truth.size[axis] - kWindow / 2);  // centres of windows
  }
  const auto count = counts.sum().item<double>();
  if (count == 0) throw std::invalid_argument("ssim: no window counts");

  constexpr double c1 = 0.01 * 0.01, c2 = 0.03 * 0.03;
  constexpr double n = kWindow * kWindow * kWindow, sample = n / (n - 1);
  const vox::Tensor x = to_tensor(truth).to(vox::f64), y = to_tensor(image).to(vox::f64);
  const vox::Tensor mean_x = window_mean(x), mean_y = window_mean(y);
  const vox::Tensor var_x = sample * (window_mean(x * x) - mean_x * mean_x),
                    var_y = sample * (window_mean(y * y) - mean_y * mean_y),
                    cov = sample * (window_mean(x * y) - mean_x * mean_y);
  const vox::Tensor each = (2 * mean_x * mean_y + c1) * (2 * cov + c2) /
                           ((mean_x * mean_x + mean_y * mean_y + c1) * (var_x + var_y + c2));
  return (counts * each).sum().item<double>() / count;
}

Scores score(const Volume& truth, const Volume& image, const Mask* mask) {
  return {psnr(truth, image, mask), ssim(truth, image, mask)};
}

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
