// Lets a library that was linked with glibc 2.36 and its own copy of libstdc++ run with glibc 2.28, the
// oldest that `manylinux_2_28` promises (VOXGRAD_OLD_GLIBC in cmake/python.cmake; x86-64 only).
//
// A program needs the version of each symbol that it was linked with. The definitions here are hidden, so the
// library itself uses them; they call the versions that every glibc has. Headers would declare the newer
// ones.

#define VOXGRAD_VERSION_OF_2_2_5(result, name, parameters, arguments)           \
  result old_##name parameters;                                                 \
  __asm__(".symver old_" #name "," #name "@GLIBC_2.2.5");                       \
  [[gnu::visibility("hidden")]] result hidden_##name parameters __asm__(#name); \
  result hidden_##name parameters { return old_##name arguments; }

extern "C" {

VOXGRAD_VERSION_OF_2_2_5(double, exp, (double x), (x))
VOXGRAD_VERSION_OF_2_2_5(double, pow, (double x, double y), (x, y))

// Until glibc 2.34 these were in libpthread, which Python loads.
using Thread = unsigned long;
VOXGRAD_VERSION_OF_2_2_5(int, pthread_create,
                         (Thread * thread, const void* options, void* (*run)(void*), void* argument),
                         (thread, options, run, argument))
VOXGRAD_VERSION_OF_2_2_5(int, pthread_detach, (Thread thread), (thread))
VOXGRAD_VERSION_OF_2_2_5(int, pthread_join, (Thread thread, void** result), (thread, result))
VOXGRAD_VERSION_OF_2_2_5(int, pthread_once, (int* once, void (*run)()), (once, run))
VOXGRAD_VERSION_OF_2_2_5(int, __pthread_key_create, (unsigned* key, void (*end)(void*)), (key, end))

// Since glibc 2.32: whether reference counts may do without atomic instructions.
[[gnu::visibility("hidden")]] char __libc_single_threaded = 0;

// Since glibc 2.36, for std::random_device.
int getentropy(void* buffer, unsigned long length);
[[gnu::visibility("hidden")]] unsigned arc4random() {
  unsigned bits = 0;
  if (getentropy(&bits, sizeof bits) != 0) __builtin_abort();
  return bits;
}
}
