#include <algorithm>
#include <cmath>
#include <cstdio>

#include "figures.h"
#include "gnuplot.h"

namespace mri {
namespace {

// Patches differ, so single losses jump; a running mean over about a fiftieth of the run shows the trend.
std::vector<float> running_mean(const std::vector<float>& values) {
  const auto half = static_cast<int64_t>(values.size() / 100);
  const auto count = static_cast<int64_t>(values.size());
  std::vector<float> means;
  for (int64_t i = 0; i < count; ++i) {
    const int64_t begin = std::max<int64_t>(i - half, 0), end = std::min(i + half + 1, count);
    double sum = 0;
    for (int64_t j = begin; j < end; ++j) sum += values[j];
    means.push_back(static_cast<float>(sum / static_cast<double>(end - begin)));
  }
  return means;
}

}  // namespace

void draw_curves(const History& history, double psnr_trilinear, const std::filesystem::path& png) {
  Gnuplot gnuplot;
  const std::vector<float> smooth = running_mean(history.loss);
  std::vector<float> losses, scores;
  for (size_t i = 0; i < history.loss.size(); ++i) {
    losses.insert(losses.end(), {static_cast<float>(i + 1), history.loss[i], smooth[i]});
  }
  for (size_t i = 0; i < history.evaluated_psnr.size(); ++i) {
    scores.insert(scores.end(), {static_cast<float>(history.evaluated_steps[i]), history.evaluated_psnr[i]});
  }
  gnuplot.add_data("losses", losses);
  gnuplot.add_data("scores", scores);

  char trilinear[200];
  std::snprintf(trilinear, sizeof trilinear,
                "%.6g with lines lw 2 dt (8,6) lc rgb '#888888' title 'trilinear'", psnr_trilinear);
  const std::string script =
      "set terminal pngcairo size 1500,560 font 'Sans,15' background rgb '#ffffff'\n"
      "set output 'figure.png'\n"
      "set multiplot layout 1,2 margins 0.075,0.975,0.14,0.9 spacing 0.09\n"
      "set border 3 lc rgb '#555555'; set tics nomirror; set grid lc rgb '#dddddd' lw 1 dt 1\n"
      "set xlabel 'step'; set xrange [0:" +
      std::to_string(std::max<size_t>(history.loss.size(), 1)) +
      "]\n"
      "set title 'training loss (mean squared error of a batch of patches)'\n"
      "set yrange [0:*]; set format y '%.4f'; set key top right\n"
      "plot 'losses' binary format='%3float32' using 1:2 with lines lw 1 lc rgb '#b8cfe8' title 'one batch', "
      "'' binary format='%3float32' using 1:3 with lines lw 3 lc rgb '#1f5fa8' title 'running mean'\n"
      "set title 'PSNR in the foreground of the evaluation slab (dB)'\n"
      "set yrange [*:*]; set format y '%.1f'; set key right center; set offsets 0, 0, 0.3, 0.3\n"
      "plot 'scores' binary format='%2float32' using 1:2 with linespoints lw 3 pt 7 ps 1.1 lc rgb '#c2481c' "
      "title 'ours', " +
      std::string(trilinear) + "\nunset multiplot\n";
  gnuplot.draw(script, png);
}

}  // namespace mri
