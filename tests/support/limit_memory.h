#pragma once

#include <voxgrad/core/host_memory.h>

#include <cstdint>

#if defined(__linux__)
#include <sys/resource.h>
#include <unistd.h>

#include <fstream>
#endif

// For death tests of what happens when memory runs out: the limit is the process's, and stays.

namespace vox::testing {

// Sanitizers reserve addresses of their own and cannot run under such a limit.
#if !defined(__linux__) || VOX_ADDRESS_SANITIZER || defined(__SANITIZE_THREAD__)
inline constexpr bool can_limit_memory = false;
inline void limit_memory(int64_t) {}
#else
inline constexpr bool can_limit_memory = true;

/// Lets this process have `bytes` of addresses more than it has now.
inline void limit_memory(int64_t bytes) {
  int64_t pages = 0;
  std::ifstream("/proc/self/statm") >> pages;
  const auto limit = static_cast<rlim_t>(pages * sysconf(_SC_PAGESIZE) + bytes);
  const rlimit limits{limit, limit};
  setrlimit(RLIMIT_AS, &limits);
}
#endif

}  // namespace vox::testing
