#include "gnuplot.h"

#include <fcntl.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <fstream>
#include <sstream>
#include <stdexcept>

#include "files.h"

extern char** environ;

namespace mri {
namespace {

// Runs `gnuplot script` in `folder`, its messages in `log`; no shell, so no name needs quoting.
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
    throw std::runtime_error("gnuplot failed: " + content(folder_ / "log"));
  }
  write_atomically(
      png, [&](const std::filesystem::path& temporary) { std::filesystem::copy_file(figure, temporary); });
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

}  // namespace mri
