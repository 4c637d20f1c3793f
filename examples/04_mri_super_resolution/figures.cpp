#include "figures.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "../common/pictures.h"

namespace mri {
namespace {

// A row of six panels that show the part `box` of the planes. `width` and `height` are in millimetres,
// `scale` in pixels per millimetre, `top` in pixels from the top of the picture.
struct Row {
  Plane plane;
  std::string label;
  Box box;
  double width, height, scale, top;
};

constexpr double kColumnGap = 10, kRowGap = 12, kLeft = 46, kTop = 112, kRight = 96, kBottom = 42;
constexpr int kColumns = 6;
constexpr double kColumnWidth = 300;

// The smallest box around the foreground, with a margin. Its edges are even, so that they are edges of
// low-resolution voxels too.
Box box_around_head(const Volume& truth) {
  Box box = bounding_box(foreground(truth), truth.size);
  for (int axis = 0; axis < 3; ++axis) {
    if (box.length(axis) == 0) return {{0, 0, 0}, truth.size};
    box.begin[axis] = std::max<int64_t>(box.begin[axis] / 2 * 2 - 2, 0);
    box.end[axis] = std::min((box.end[axis] + 1) / 2 * 2 + 2, truth.size[axis]);
  }
  return box;
}

// The square window that is shown as the detail: that in which trilinear interpolation has the largest error.
// Windows inside the head come first, because otherwise the rim of a cut-out brain would always be chosen.
Box detail_box(const Comparison& c, const Box& head, int64_t d, int64_t edge) {
  Box best = head;
  double most = -1;
  for (int64_t h = head.begin[1]; h + edge <= head.end[1]; h += 8) {
    for (int64_t w = head.begin[2]; w + edge <= head.end[2]; w += 8) {
      double sum = 0;
      int64_t outside = 0;
      const Box box{{d, h, w}, {d + 1, h + edge, w + edge}};
      for_each_voxel(box, [&](int64_t, int64_t i, int64_t j) {
        sum += std::abs(c.trilinear.at(d, i, j) - c.truth.at(d, i, j));
        outside += c.truth.at(d, i, j) <= kAir;
      });
      if (outside * 50 > edge * edge) sum *= 1e-6;
      if (sum <= most) continue;
      most = sum;
      best = box;
    }
  }
  return best;
}

std::vector<float> absolute_difference(std::vector<float> a, const std::vector<float>& b) {
  for (size_t i = 0; i < a.size(); ++i) a[i] = std::abs(a[i] - b[i]);
  return a;
}

// The end of a colour scale: the 99.7th percentile, rounded up, so that a few outliers do not darken the
// rest.
double colour_range(std::vector<float> values) {
  if (values.empty()) return 1;
  const auto rank = values.begin() + static_cast<int64_t>(0.997 * static_cast<double>(values.size() - 1));
  std::nth_element(values.begin(), rank, values.end());
  return std::max(0.02, std::ceil(*rank * 50.0) / 50);
}

}  // namespace

void draw_slices(const Comparison& c, const SliceFigure& figure, const std::filesystem::path& png) {
  Gnuplot gnuplot;
  const Box head = box_around_head(c.truth);
  const auto& mm = c.truth.spacing;
  const int64_t edge = std::min({head.length(1) / 6 * 2, head.length(2) / 6 * 2});

  std::vector<Row> rows;
  double top = kTop;
  const double widest = std::max(head.length(2) * mm[2], head.length(1) * mm[1]);
  const auto add_row = [&](Plane plane, std::string label, const Box& box, double scale) {
    const double width = box.length(plane.x) * mm[plane.x], height = box.length(plane.y) * mm[plane.y];
    rows.push_back({plane, std::move(label), box, width, height, scale, top});
    top += height * scale + kRowGap;
  };
  for (const Plane& plane : {kAxial, kCoronal, kSagittal})
    add_row(plane, plane.name, head, kColumnWidth / widest);
  const Box detail = detail_box(c, head, figure.centre[0], edge);
  add_row(kAxial, "axial, detail", detail,
          kColumnWidth / std::max(detail.length(2) * mm[2], detail.length(1) * mm[1]));

  const double canvas_width = kLeft + kColumns * (kColumnWidth + kColumnGap) + kRight;
  const double canvas_height = top - kRowGap + kBottom;
  std::string script = format(
      "set terminal pngcairo size %.0f,%.0f font 'Sans,15' background rgb '#ffffff'\n"
      "set output 'figure.png'\n"
      "set multiplot\nunset key; unset tics; unset colorbox; set border lw 0.6 lc rgb '#9a9a9a'\n",
      canvas_width, canvas_height);
  const auto label = [&](const std::string& text, double x, double y, const std::string& style) {
    script += "set label " + quoted(text) +
              format(" at screen %.5f,%.5f ", x / canvas_width, 1 - y / canvas_height) + style + "\n";
  };

  // All labels are attached to the first panel.
  label(figure.title, canvas_width / 2, 24, "center noenhanced font 'Sans:Bold,18'");
  const auto dB = [](const char* name, const RegionScores& s) {
    return format("%s\n%.2f dB", name, s.foreground.psnr);
  };
  const std::array<std::string, kColumns> columns{format("low resolution\n%.3g mm", 2 * mm[2]),
                                                  dB("trilinear", figure.scores.trilinear),
                                                  dB("ours", figure.scores.ours),
                                                  format("truth\n%.3g mm", mm[2]),
                                                  "|error| trilinear\n",
                                                  "|error| ours\n"};
  const bool has_slab = figure.slab_begin > 0 || figure.slab_end < c.truth.size[0];
  label(has_slab ? "dB: PSNR in the foreground between the dashed lines, which training never saw"
                 : "dB: PSNR in the foreground of the whole volume",
        kLeft, canvas_height - 16, "left noenhanced tc rgb '#707070'");
  const auto column_left = [](int column) {
    return kLeft + column * (kColumnWidth + kColumnGap) + (column >= 4 ? kColumnGap : 0);
  };
  for (int column = 0; column < kColumns; ++column) {
    label(columns[column], column_left(column) + kColumnWidth / 2, 66, "center noenhanced");
  }
  for (const Row& row : rows) {
    label(row.label, 20, row.top + row.height * row.scale / 2, "center rotate by 90 noenhanced");
  }

  std::vector<float> all_errors;
  for (size_t r = 0; r < rows.size(); ++r) {
    const Row& row = rows[r];
    const int64_t at = figure.centre[row.plane.fixed];
    const std::vector<float> truth = pixels(c.truth, row.plane, row.box, at);
    const std::vector<float> trilinear = pixels(c.trilinear, row.plane, row.box, at);
    const std::vector<float> ours = pixels(c.ours, row.plane, row.box, at);
    const std::vector<float> errors = absolute_difference(trilinear, truth);
    all_errors.insert(all_errors.end(), errors.begin(), errors.end());
    const std::array<std::vector<float>, kColumns> panels{
        pixels(c.low, row.plane, row.box, at, 2), trilinear, ours, truth, errors,
        absolute_difference(ours, truth)};
    for (int column = 0; column < kColumns; ++column)
      gnuplot.add_data(format("%zu_%d", r, column), panels[column]);
  }
  const double worst = colour_range(std::move(all_errors)), white = 1.15 * colour_range(c.truth.voxels);
  for (size_t r = 0; r < rows.size(); ++r) {
    const Row& row = rows[r];
    const double width = row.width * row.scale, height = row.height * row.scale;
    const bool shows_slab = has_slab && row.plane.fixed != 0;
    for (int column = 0; column < kColumns; ++column) {
      const double left = column_left(column) + (kColumnWidth - width) / 2;
      script += format("set lmargin at screen %.5f\nset rmargin at screen %.5f\n", left / canvas_width,
                       (left + width) / canvas_width);
      script += format("set tmargin at screen %.5f\nset bmargin at screen %.5f\n",
                       1 - row.top / canvas_height, 1 - (row.top + height) / canvas_height);
      script += format("set xrange [0:%.6g]\nset yrange [0:%.6g]\n", row.width, row.height);
      if (shows_slab) {
        for (const int64_t plane : {figure.slab_begin, figure.slab_end}) {
          const double y = static_cast<double>(plane - row.box.begin[0]) * mm[0];
          script +=
              format("set arrow from 0,%.6g to %.6g,%.6g nohead front dt (6,5) lw 1.2 lc rgb '#60ffb000'\n",
                     y, row.width, y);
        }
      }
      if (column < 4) {
        script += "set palette gray\n" + format("set cbrange [0:%.4g]\n", white);
      } else {
        script += format(
            "set palette defined (0 '#000004', 0.25 '#57106e', 0.5 '#bc3754', 0.75 '#f98e09', "
            "1 '#fcffa4')\nset cbrange [0:%.4g]\n",
            worst);
      }
      if (column == 5 && r == 0) {
        const double bar = column_left(5) + kColumnWidth + 18;
        const double bottom = rows.back().top + rows.back().height * rows.back().scale;
        script +=
            format("set colorbox user origin %.5f,%.5f size %.5f,%.5f noborder\n", bar / canvas_width,
                   1 - bottom / canvas_height, 16 / canvas_width, (bottom - rows[0].top) / canvas_height);
        script += "set cbtics scale 0.4 format '%.2f' offset -0.6,0\n";
      }
      const int64_t shrink = column == 0 ? 2 : 1;
      const int x = row.plane.x, y = row.plane.y;
      script += format(
          "plot '%zu_%d' binary array=(%lld,%lld) format='%%float32' dx=%.6g dy=%.6g "
          "origin=(%.6g,%.6g) with image\n",
          r, column, static_cast<long long>(row.box.length(x) / shrink),
          static_cast<long long>(row.box.length(y) / shrink), mm[x] * shrink, mm[y] * shrink,
          mm[x] * shrink / 2, mm[y] * shrink / 2);
      script += "unset label\nunset arrow\nunset colorbox\n";
    }
  }
  gnuplot.draw(script + "unset multiplot\n", png);
}

}  // namespace mri
