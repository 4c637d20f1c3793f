#pragma once

#include <voxgrad/core/host_memory.h>

#include <cstdint>

#if defined(__linux__)
#include <sys/resource.h>
#include <unistd.h>

#include <fstream>
#endif

// For death tests of running out of memory: the limit applies to the whole process, and cannot be lifted.

namespace vox::testing {

// Sanitizers reserve address space and cannot run under such a limit.
#if !defined(__linux__) || VOX_ADDRESS_SANITIZER || defined(__SANITIZE_THREAD__)
inline constexpr bool can_limit_memory = false;
inline void limit_memory(int64_t) {}
#else
inline constexpr bool can_limit_memory = true;

/// Lets this process use `bytes` more of address space than it uses now.
inline void limit_memory(int64_t bytes) {
  int64_t pages = 0;
  std::ifstream("/proc/self/statm") >> pages;
  const auto limit = static_cast<rlim_t>(pages * sysconf(_SC_PAGESIZE) + bytes);
  const rlimit limits{limit, limit};
  setrlimit(RLIMIT_AS, &limits);
}
#endif

}  // namespace vox::testing
