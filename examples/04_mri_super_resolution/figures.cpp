#include "figures.h"

#include <fcntl.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <sstream>
#include <stdexcept>

extern char** environ;

namespace mri {

// ---- Files ---------------------------------------------------------------------------------------------

void write_atomically(const std::filesystem::path& path,
                      const std::function<void(const std::filesystem::path&)>& write) {
  const std::string name =
      path.stem().string() + ".tmp" + std::to_string(getpid()) + path.extension().string();
  const std::filesystem::path temporary = path.parent_path() / name;
  std::error_code ignored;
  try {
    write(temporary);
  } catch (...) {
    std::filesystem::remove(temporary, ignored);
    throw;
  }
  std::error_code error;
  std::filesystem::rename(temporary, path, error);
  if (!error) return;
  std::filesystem::remove(temporary, ignored);
  throw std::runtime_error("write_atomically: cannot rename to " + path.string() + ": " + error.message());
}

void write_text(const std::filesystem::path& path, const std::string& text) {
  write_atomically(path, [&](const std::filesystem::path& temporary) {
    std::ofstream file(temporary, std::ios::binary);
    file << text;
    file.close();
    if (!file) throw std::runtime_error("write_text: cannot write " + temporary.string());
  });
}

// ---- Gnuplot -------------------------------------------------------------------------------------------

namespace {

// Runs `gnuplot script` in `folder` and collects its messages in `log`. Without a shell, names need no
// quoting.
int run_gnuplot(const std::filesystem::path& folder) {
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_addchdir_np(&actions, folder.c_str());
  posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
  posix_spawn_file_actions_addopen(&actions, STDOUT_FILENO, "log", O_WRONLY | O_CREAT | O_TRUNC, 0600);
  posix_spawn_file_actions_adddup2(&actions, STDOUT_FILENO, STDERR_FILENO);
  char name[] = "gnuplot", script[] = "script";
  char* const argv[] = {name, script, nullptr};
  pid_t child = 0;
  const int error = posix_spawnp(&child, name, &actions, nullptr, argv, environ);
  posix_spawn_file_actions_destroy(&actions);
  if (error == ENOENT) {
    throw std::runtime_error("gnuplot is not installed; on Debian and Ubuntu: apt install gnuplot-nox");
  }
  if (error != 0)
    throw std::runtime_error("gnuplot could not be started (error " + std::to_string(error) + ")");
  int status = 0;
  while (waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  return status;
}

std::string content(const std::filesystem::path& path) {
  std::ifstream file(path);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

/// A working folder for gnuplot: data files go in, one picture comes out, the folder disappears.
class Gnuplot {
 public:
  Gnuplot() {
    std::string pattern = (std::filesystem::temp_directory_path() / "voxgrad_gnuplot_XXXXXX").string();
    if (!mkdtemp(pattern.data()))
      throw std::runtime_error("gnuplot: cannot make the temporary folder " + pattern);
    folder_ = pattern;
  }
  ~Gnuplot() {
    std::error_code ignored;
    std::filesystem::remove_all(folder_, ignored);
  }
  Gnuplot(const Gnuplot&) = delete;
  Gnuplot& operator=(const Gnuplot&) = delete;

  /// Stores rows of float32 for `plot 'name' binary ...`.
  void add_data(const std::string& name, const std::vector<float>& values) {
    std::ofstream file(folder_ / name, std::ios::binary);
    file.write(reinterpret_cast<const char*>(values.data()),
               static_cast<std::streamsize>(values.size() * sizeof(float)));
    file.close();
    if (!file) throw std::runtime_error("gnuplot: cannot write " + (folder_ / name).string());
  }

  /// Runs `script`, which must `set output 'figure.png'`, and moves the picture to `png`.
  void draw(const std::string& script, const std::filesystem::path& png) {
    write_text(folder_ / "script", script);
    const int status = run_gnuplot(folder_);
    const std::filesystem::path figure = folder_ / "figure.png";
    std::error_code error;
    if (status != 0 || std::filesystem::file_size(figure, error) == 0 || error) {
      throw std::runtime_error("gnuplot failed: " + content(folder_ / "log"));
    }
    write_atomically(
        png, [&](const std::filesystem::path& temporary) { std::filesystem::copy_file(figure, temporary); });
  }

 private:
  std::filesystem::path folder_;
};

/// `text` as a double-quoted gnuplot string. gnuplot still reads markup in it, except with `noenhanced`.
std::string quoted(const std::string& text) {
  std::string result = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') result += '\\';
    if (c == '\n') {
      result += "\\n";
    } else {
      result += c;
    }
  }
  return result + '"';
}

}  // namespace

// ---- Slices --------------------------------------------------------------------------------------------

namespace {

// A plane through a volume: `x` and `y` are the axes that run right and up, `fixed` the third one.
struct Plane {
  const char* name;
  int fixed, x, y;
};
constexpr Plane kAxial{"axial", 0, 2, 1}, kCoronal{"coronal", 1, 2, 0}, kSagittal{"sagittal", 2, 1, 0};

// The part of a plane that is shown, in voxels of the high resolution.
struct Box {
  Size begin{}, end{};
  int64_t length(int axis) const { return end[axis] - begin[axis]; }
};

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
  const Mask mask = foreground(truth);
  Box box{truth.size, {0, 0, 0}};
  for (int64_t d = 0; d < truth.size[0]; ++d) {
    for (int64_t h = 0; h < truth.size[1]; ++h) {
      for (int64_t w = 0; w < truth.size[2]; ++w) {
        if (!mask[truth.index(d, h, w)]) continue;
        const Size here{d, h, w};
        for (int axis = 0; axis < 3; ++axis) {
          box.begin[axis] = std::min(box.begin[axis], here[axis]);
          box.end[axis] = std::max(box.end[axis], here[axis] + 1);
        }
      }
    }
  }
  for (int axis = 0; axis < 3; ++axis) {
    if (box.begin[axis] >= box.end[axis]) return {{0, 0, 0}, truth.size};
    box.begin[axis] = std::max<int64_t>(box.begin[axis] / 2 * 2 - 2, 0);
    box.end[axis] = std::min((box.end[axis] + 1) / 2 * 2 + 2, truth.size[axis]);
  }
  return box;
}

// The square window of the detail: where trilinear interpolation errs most. Windows that lie inside the head
// are preferred, because otherwise the rim of a cut-out brain would always be chosen.
Box detail_box(const Comparison& c, const Box& head, int64_t d, int64_t edge) {
  Box best = head;
  double most = -1;
  for (int64_t h = head.begin[1]; h + edge <= head.end[1]; h += 8) {
    for (int64_t w = head.begin[2]; w + edge <= head.end[2]; w += 8) {
      double sum = 0;
      int64_t outside = 0;
      for (int64_t i = h; i < h + edge; ++i) {
        for (int64_t j = w; j < w + edge; ++j) {
          sum += std::abs(c.trilinear.at(d, i, j) - c.truth.at(d, i, j));
          outside += c.truth.at(d, i, j) <= 0.02f;
        }
      }
      if (outside * 50 > edge * edge) sum *= 1e-6;
      if (sum <= most) continue;
      most = sum;
      best.begin = {d, h, w};
      best.end = {d + 1, h + edge, w + edge};
    }
  }
  return best;
}

// The pixels of one panel, bottom row first. `shrink` is 2 for the low resolution.
std::vector<float> pixels(const Volume& volume, const Row& row, int64_t at, int64_t shrink) {
  std::vector<float> values;
  Size voxel{};
  voxel[row.plane.fixed] = at / shrink;
  for (int64_t y = row.box.begin[row.plane.y] / shrink; y < row.box.end[row.plane.y] / shrink; ++y) {
    for (int64_t x = row.box.begin[row.plane.x] / shrink; x < row.box.end[row.plane.x] / shrink; ++x) {
      voxel[row.plane.y] = y;
      voxel[row.plane.x] = x;
      values.push_back(volume.at(voxel[0], voxel[1], voxel[2]));
    }
  }
  return values;
}

std::vector<float> absolute_difference(std::vector<float> a, const std::vector<float>& b) {
  for (size_t i = 0; i < a.size(); ++i) a[i] = std::abs(a[i] - b[i]);
  return a;
}

template <class... Values>
std::string format(const char* pattern, Values... values) {
  char text[800];
  std::snprintf(text, sizeof text, pattern, values...);
  return text;
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
    const std::vector<float> truth = pixels(c.truth, row, at, 1), trilinear = pixels(c.trilinear, row, at, 1);
    const std::vector<float> ours = pixels(c.ours, row, at, 1);
    const std::vector<float> errors = absolute_difference(trilinear, truth);
    all_errors.insert(all_errors.end(), errors.begin(), errors.end());
    const std::array<std::vector<float>, kColumns> panels{
        pixels(c.low, row, at, 2), trilinear, ours, truth, errors, absolute_difference(ours, truth)};
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

// ---- Curves --------------------------------------------------------------------------------------------

namespace {

// Losses of single batches scatter; a running mean over about a fiftieth of the run shows the trend.
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
