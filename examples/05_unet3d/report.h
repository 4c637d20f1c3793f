// Dice scores, the report and the pictures.
#pragma once

#include <algorithm>
#include <array>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "../common/pictures.h"
#include "../common/program.h"

namespace unet {

/// A scan, its labels and the network's result.
struct Segmented {
  mri::Volume scan;
  mri::Mask label, dark, ours;
  mri::Box box;  ///< the part that is scored
};

/// vox::nn::dice_score of two masks inside `box`.
inline double dice(const mri::Mask& a, const mri::Mask& b, const mri::Size& size, const mri::Box& box) {
  const auto part = [&](const mri::Mask& mask) {
    vox::Tensor t = vox::from_vector<uint8_t>(mask, {size[0], size[1], size[2]});
    for (int axis = 0; axis < 3; ++axis) t = t.slice(axis, box.begin[axis], box.end[axis]);
    return t;
  };
  return vox::nn::dice_score(part(a), part(b));
}

struct Scores {
  double threshold = 0;  ///< for the mask of all dark voxels, the result of intensity alone
  double ours = 0;
};
inline Scores score(const Segmented& head) {
  return {dice(head.dark, head.label, head.scan.size, head.box),
          dice(head.ours, head.label, head.scan.size, head.box)};
}

struct Report : mri::RunFacts {
  std::string dtype;
  Scores scores;
  std::optional<Scores> unseen;
};

/// The report as JSON (metrics.json).
inline std::string to_json(const Report& r) {
  using Json = nlohmann::ordered_json;
  Json json{{"device", r.device},         {"dtype", r.dtype},   {"threads", r.threads},
            {"seconds", r.seconds},       {"steps", r.steps},   {"seed", r.seed},
            {"parameters", r.parameters}, {"volume", r.volume}, {"dice_threshold", r.scores.threshold},
            {"dice_ours", r.scores.ours}};
  if (r.unseen) {
    json["unseen"] = {
        {"volume", r.unseen_volume}, {"dice_threshold", r.unseen->threshold}, {"dice_ours", r.unseen->ours}};
  }
  return json.dump(2, ' ', /*ensure_ascii=*/false, Json::error_handler_t::replace) + "\n";
}

/// Pixels of a scan in grey (red, green, blue up to 255), with colours where label or result is 1: green
/// where both are, red for the label alone, blue for the result alone.
inline std::vector<float> overlay(const std::vector<float>& grey, const std::vector<float>& label,
                                  const std::vector<float>& ours, float white) {
  constexpr float kGreen[] = {40, 200, 80}, kRed[] = {235, 50, 40}, kBlue[] = {70, 120, 255};
  std::vector<float> rgb;
  for (size_t i = 0; i < grey.size(); ++i) {
    const float value = std::min(grey[i] / white, 1.0f) * 255;
    const float* colour = label[i] > 0 ? (ours[i] > 0 ? kGreen : kRed) : kBlue;
    const bool marked = label[i] > 0 || ours[i] > 0;
    for (int c = 0; c < 3; ++c) rgb.push_back(marked ? 0.35f * value + 0.65f * colour[c] : value);
  }
  return rgb;
}

/// Draws axial, coronal and sagittal planes that cross in the structure as rows; the scan, the label and the
/// result as columns. Dashed lines bound the scored part, unless it is the whole volume. Throws
/// std::runtime_error if gnuplot is missing or fails.
inline void draw_overlays(const Segmented& head, const std::string& title, const std::filesystem::path& png) {
  const mri::Volume& scan = head.scan;
  mri::Volume label(scan.size), ours(scan.size);
  std::copy(head.label.begin(), head.label.end(), label.voxels.begin());
  std::copy(head.ours.begin(), head.ours.end(), ours.voxels.begin());
  mri::Mask visible;
  for (const float voxel : scan.voxels) visible.push_back(voxel > mri::kAir);
  const mri::Box shown = mri::bounding_box(visible, scan.size);
  std::vector<mri::Size> structure{{0, 0, 0}};
  for_each_voxel(head.box, [&](int64_t d, int64_t h, int64_t w) {
    if (label.at(d, h, w) > 0) structure.push_back({d, h, w});
  });
  const mri::Size crossing = structure[structure.size() / 2];

  mri::Gnuplot gnuplot;
  std::string script =
      "set terminal pngcairo size 1200,1240 font 'Sans,15' background rgb '#ffffff'\n"
      "set output 'figure.png'\n"
      "set multiplot layout 3,3 margins 0.02,0.98,0.02,0.92 spacing 0.01,0.035 title " +
      mri::quoted(title) +
      " noenhanced font 'Sans:Bold,17'\n"
      "unset key; unset tics; unset border; unset colorbox; set size ratio -1\n";
  const float white = mri::percentile(scan, 99.5);
  for (const mri::Plane& plane : {mri::kAxial, mri::kCoronal, mri::kSagittal}) {
    const auto part = [&](const mri::Volume& volume) {
      return pixels(volume, plane, shown, crossing[plane.fixed]);
    };
    const std::vector<float> grey = part(scan), truth = part(label), none(grey.size());
    const double dx = scan.spacing[plane.x], dy = scan.spacing[plane.y];
    const auto nx = shown.length(plane.x), ny = shown.length(plane.y);
    const auto panel = [&](const char* column, const std::vector<float>& rgb) {
      const std::string name = std::string(plane.name) + column;
      gnuplot.add_data(name, rgb);
      script += "set title " + mri::quoted(plane.fixed == 0 ? column : "") +
                mri::format("\nset xrange [0:%g]; set yrange [0:%g]\n", static_cast<double>(nx) * dx,
                            static_cast<double>(ny) * dy);
      for (const int64_t edge : {head.box.begin[1], head.box.end[1]}) {  // H runs up or to the right
        if (plane.fixed == 1 || head.box.length(1) == scan.size[1]) continue;
        const double at = static_cast<double>(edge - shown.begin[1]) * scan.spacing[1];
        script += mri::format(plane.y == 1 ? "set arrow from graph 0,first %g to graph 1,first %g"
                                           : "set arrow from first %g,graph 0 to first %g,graph 1",
                              at, at) +
                  " nohead front dt (6,5) lw 1.2 lc rgb '#60ffb000'\n";
      }
      script += "plot " + mri::quoted(name) +
                mri::format(
                    " binary array=(%lld,%lld) format='%%3float32' dx=%g dy=%g origin=(%g,%g) "
                    "with rgbimage\nunset arrow\n",
                    static_cast<long long>(nx), static_cast<long long>(ny), dx, dy, dx / 2, dy / 2);
    };
    panel("the scan", overlay(grey, none, none, white));
    panel("its label", overlay(grey, truth, truth, white));
    panel("the network: green right, red missed, blue too much", overlay(grey, truth, part(ours), white));
  }
  gnuplot.draw(script + "unset multiplot\n", png);
}

}  // namespace unet
