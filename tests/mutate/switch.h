// vox_mutant(n): whether the environment chooses mutant n (mutate.py, which puts this before every file with
// mutants). With VOXGRAD_MUTANT=-1 it notes n in the file VOXGRAD_REACHED, by system calls, which no test
// intercepts. Kernels note it in memory that the host reads at exit.
#ifndef VOX_MUTANT
#define VOX_MUTANT
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include <fcntl.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace {

constexpr int vox_most = 1 << 14;

const int vox_chosen = [] {
  const char* number = std::getenv("VOXGRAD_MUTANT");
  return number ? std::atoi(number) : 0;
}();

[[gnu::noinline]] bool vox_reached(int n) {
  static unsigned char noted[vox_most];
  if (noted[n]) return false;
  noted[n] = 1;
  const int error = errno;
  char line[16];
  const long file =
      syscall(SYS_openat, AT_FDCWD, std::getenv("VOXGRAD_REACHED"), O_WRONLY | O_APPEND | O_CREAT, 0644);
  syscall(SYS_write, file, line, std::snprintf(line, sizeof(line), "%d\n", n));
  syscall(SYS_close, file);
  errno = error;
  return false;
}

#ifdef __CUDACC__
__constant__ int vox_kernels_chosen;
__constant__ unsigned char* vox_kernels_noted;
unsigned char* vox_noted;

const bool vox_ready = [] {
  if (vox_chosen == 0 || cudaMemcpyToSymbol(vox_kernels_chosen, &vox_chosen, sizeof(int))) return false;
  if (vox_chosen > 0 || cudaHostAlloc(&vox_noted, vox_most, cudaHostAllocMapped)) return true;
  std::memset(vox_noted, 0, vox_most);
  cudaMemcpyToSymbol(vox_kernels_noted, &vox_noted, sizeof(vox_noted));
  return std::atexit([] {
           for (int n = 0; n < vox_most; ++n)
             if (vox_noted[n]) vox_reached(n);
         }) == 0;
}();

__host__ __device__
#endif
    inline bool
    vox_mutant(int n) {
#ifdef __CUDA_ARCH__
  if (vox_kernels_chosen < 0) vox_kernels_noted[n] = 1;
  return vox_kernels_chosen == n;
#else
  return vox_chosen == n || (vox_chosen < 0 && vox_reached(n));
#endif
}

}  // namespace
#endif
