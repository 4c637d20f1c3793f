#include "pictures.h"

#include <fcntl.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <fstream>
#include <stdexcept>

#include <voxgrad/nn/atomic_file.h>

extern char** environ;

namespace mri {

void write_text(const std::filesystem::path& path, const std::string& text) {
  vox::nn::detail::AtomicFile file("write_text", path);
  file.write(text.data(), text.size());
  file.commit();
}

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

}  // namespace

Gnuplot::Gnuplot() {
  std::string pattern = (std::filesystem::temp_directory_path() / "voxgrad_gnuplot_XXXXXX").string();
  if (!mkdtemp(pattern.data()))
    throw std::runtime_error("gnuplot: cannot make the temporary folder " + pattern);
  folder_ = pattern;
}

Gnuplot::~Gnuplot() {
  std::error_code ignored;
  std::filesystem::remove_all(folder_, ignored);
}

void Gnuplot::add_data(const std::string& name, const std::vector<float>& values) {
  std::ofstream file(folder_ / name, std::ios::binary);
  file.write(reinterpret_cast<const char*>(values.data()),
             static_cast<std::streamsize>(values.size() * sizeof(float)));
  file.close();
  if (!file) throw std::runtime_error("gnuplot: cannot write " + (folder_ / name).string());
}

void Gnuplot::draw(const std::string& script, const std::filesystem::path& png) {
  write_text(folder_ / "script", script);
  const int status = run_gnuplot(folder_);
  const std::filesystem::path figure = folder_ / "figure.png";
  std::error_code error;
  if (status != 0 || std::filesystem::file_size(figure, error) == 0 || error) {
    throw std::runtime_error("gnuplot failed: " + vox::nn::detail::read_whole("gnuplot", folder_ / "log"));
  }
  write_text(png, vox::nn::detail::read_whole("gnuplot", figure));
}

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

std::vector<float> pixels(const Volume& volume, const Plane& plane, const Box& box, int64_t at,
                          int64_t shrink) {
  std::vector<float> values;
  Size voxel{};
  voxel[plane.fixed] = at / shrink;
  for (int64_t y = box.begin[plane.y] / shrink; y < box.end[plane.y] / shrink; ++y) {
    for (int64_t x = box.begin[plane.x] / shrink; x < box.end[plane.x] / shrink; ++x) {
      voxel[plane.y] = y;
      voxel[plane.x] = x;
      values.push_back(volume.at(voxel[0], voxel[1], voxel[2]));
    }
  }
  return values;
}

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

void draw_curves(const History& history, const CurveFigure& figure, const std::filesystem::path& png) {
  Gnuplot gnuplot;
  const std::vector<float> smooth = running_mean(history.loss);
  std::vector<float> losses, scores;
  for (size_t i = 0; i < history.loss.size(); ++i) {
    losses.insert(losses.end(), {static_cast<float>(i + 1), history.loss[i], smooth[i]});
  }
  for (size_t i = 0; i < history.evaluated_score.size(); ++i) {
    scores.insert(scores.end(), {static_cast<float>(history.evaluated_steps[i]), history.evaluated_score[i]});
  }
  gnuplot.add_data("losses", losses);
  gnuplot.add_data("scores", scores);

  std::string script =
      "set terminal pngcairo size 1500,560 font 'Sans,15' background rgb '#ffffff'\n"
      "set output 'figure.png'\n"
      "set multiplot layout 1,2 margins 0.075,0.975,0.14,0.9 spacing 0.09\n"
      "set border 3 lc rgb '#555555'; set tics nomirror; set grid lc rgb '#dddddd' lw 1 dt 1\n"
      "set xlabel 'step'; set xrange [0:" +
      std::to_string(std::max<size_t>(history.loss.size(), 1)) + "]\nset title " + quoted(figure.loss_title) +
      "\nset yrange [0:*]; set format y '%.4f'; set key top right\n"
      "plot 'losses' binary format='%3float32' using 1:2 with lines lw 1 lc rgb '#b8cfe8' title 'one batch', "
      "'' binary format='%3float32' using 1:3 with lines lw 3 lc rgb '#1f5fa8' title 'running mean'\n"
      "set title " +
      quoted(figure.score_title) + "\n" + figure.score_axis +
      "\n"
      "plot 'scores' binary format='%2float32' using 1:2 with linespoints lw 3 pt 7 ps 1.1 lc rgb '#c2481c' "
      "title 'ours'";
  if (!figure.baseline_name.empty()) {
    script += format(", %.6g with lines lw 2 dt (8,6) lc rgb '#888888' title ", figure.baseline) +
              quoted(figure.baseline_name);
  }
  gnuplot.draw(script + "\nunset multiplot\n", png);
}

}  // namespace mri
