#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <fstream>
#include <string>

#include <voxgrad/core/host_memory.h>

#include "problems.h"

// The memory that a pass of a convolution needs on the CPU beyond its operands and results, at batch 1 (Linux
// only). It is the peak growth of the process's resident memory, minus the results, plus the idle memory that
// the pass may have reused (Note [Host memory]). Every measurement is the first one of a new process.

namespace {

double mebibytes(int64_t bytes) { return static_cast<double>(bytes) / (1 << 20); }

/// A line of /proc/self/status, in bytes.
int64_t status(const std::string& key) {
  std::ifstream file("/proc/self/status");
  for (std::string line; std::getline(file, line);) {
    if (line.rfind(key + ":", 0) == 0) return std::stoll(line.substr(key.size() + 1)) * 1024;
  }
  return 0;
}

void measure(const Problem& p, const Pass& pass) {
  const Convolution convolution(one_of(p), pass);
  const int64_t idle = vox::detail::idle_host_bytes();
  std::ofstream("/proc/self/clear_refs") << 5;  // resets the peak
  const int64_t before = status("VmRSS");
  const std::vector<vox::Tensor> results = convolution.run();
  const int64_t peak = status("VmHWM");
  int64_t bytes = 0;
  for (const vox::Tensor& t : results) bytes += t.numel() * vox::size_of(t.dtype());
  std::printf("%d %-11s results %6.1f MiB, beyond %6.1f MiB\n", p.number, pass.name, mebibytes(bytes),
              mebibytes(peak - before - bytes + idle));
}

}  // namespace

int main() {
  for (const Problem& p : problems) {
    for (const Pass& pass : passes) {
      std::fflush(stdout);
      const pid_t child = fork();  // no thread runs yet
      if (child < 0) return 1;
      if (child == 0) {
        measure(p, pass);
        std::fflush(stdout);
        _exit(0);
      }
      int result = 0;
      if (waitpid(child, &result, 0) != child || result != 0) return 1;
    }
  }
}
