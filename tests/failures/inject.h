#pragma once

// Failures at every place: the n-th call of some function of the system fails, or all from the n-th on, for
// n = 0, 1, ... until a run reaches no such call. This header replaces operator new and functions of libc, so
// one file of the program includes it.

#include <voxgrad/core/check.h>

#include <dlfcn.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdarg.h>
#include <sys/types.h>

#include <atomic>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <new>
#include <string>
#include <system_error>
#include <thread>

namespace vox::testing {

enum class Failing {
  allocation,      // operator new
  thread,          // the start of a thread
  file,            // open, read, write, fsync, close or rename gives EIO
  interrupt,       // read or write gives EINTR
  short_transfer,  // read or write transfers one byte
  cuda,            // any call of CUDA (inject_cuda.h)
  cuda_memory,     // memory of a GPU
};

inline std::atomic<int64_t> calls_left{-1};  // that succeed; negative: all do
inline std::atomic<Failing> failing{};
inline std::atomic<bool> one_fails{true};  // whether one call fails, or all that follow too
inline std::atomic<bool> failed{false};
inline std::atomic<int64_t> live{0};       // allocations that were not freed yet
inline std::string* file_calls = nullptr;  // names of the file operations of this program's only thread
inline std::string cuda_says;              // what errors of CUDA must say

/// Whether this call must fail.
inline bool fails(Failing kind) {
  if (kind != failing || calls_left < 0 || calls_left-- != 0) return false;
  failed = true;
  if (!one_fails) calls_left = 0;
  return true;
}

inline void* allocate(size_t bytes, size_t alignment) {
  if (fails(Failing::allocation)) return nullptr;
  ++live;
  return std::aligned_alloc(alignment, (bytes / alignment + 1) * alignment);
}
inline void* allocate_or_throw(size_t bytes, size_t alignment = alignof(std::max_align_t)) {
  if (void* memory = allocate(bytes, alignment)) return memory;
  throw std::bad_alloc();
}
inline void deallocate(void* memory) {
  if (memory) --live;
  std::free(memory);
}

/// Notes a file operation.
inline bool fails_with_eio(const char* name) {
  if (file_calls) *file_calls += str(name, ' ');
  if (!fails(Failing::file)) return false;
  errno = EIO;
  return true;
}

/// libc's function, which the one of this name below replaces.
template <class F>
F* original(const char* name) {
  return reinterpret_cast<F*>(dlsym(RTLD_NEXT, name));
}

/// `transfer` is read or write.
template <class Byte>
ssize_t transferred(const char* name, ssize_t (*transfer)(int, Byte*, size_t), int descriptor, Byte* data,
                    size_t bytes) {
  if (fails_with_eio(name)) return -1;
  if (fails(Failing::interrupt)) {
    errno = EINTR;
    return -1;
  }
  return transfer(descriptor, data, bytes > 1 && fails(Failing::short_transfer) ? 1 : bytes);
}

}  // namespace vox::testing

[[gnu::noinline]] void* operator new(size_t bytes) { return vox::testing::allocate_or_throw(bytes); }
[[gnu::noinline]] void* operator new(size_t bytes, std::align_val_t a) {
  return vox::testing::allocate_or_throw(bytes, static_cast<size_t>(a));
}
[[gnu::noinline]] void* operator new(size_t bytes, std::align_val_t a, const std::nothrow_t&) noexcept {
  return vox::testing::allocate(bytes, static_cast<size_t>(a));
}
[[gnu::noinline]] void operator delete(void* p) noexcept { vox::testing::deallocate(p); }
[[gnu::noinline]] void operator delete(void* p, size_t) noexcept { vox::testing::deallocate(p); }
[[gnu::noinline]] void operator delete(void* p, std::align_val_t) noexcept { vox::testing::deallocate(p); }
[[gnu::noinline]] void operator delete(void* p, size_t, std::align_val_t) noexcept {
  vox::testing::deallocate(p);
}

extern "C" {
int pthread_create(pthread_t* thread, const pthread_attr_t* attributes, void* (*f)(void*), void* argument) {
  if (vox::testing::fails(vox::testing::Failing::thread)) return EAGAIN;
  static const auto real = vox::testing::original<decltype(pthread_create)>("pthread_create");
  return real(thread, attributes, f, argument);
}
int open(const char* path, int flags, ...) {
  va_list rest;
  va_start(rest, flags);
  const mode_t mode = flags & O_CREAT ? va_arg(rest, mode_t) : 0;
  va_end(rest);
  static const auto real = vox::testing::original<int(const char*, int, ...)>("open");
  return vox::testing::fails_with_eio("open") ? -1 : real(path, flags, mode);
}
FILE* fopen64(const char* path, const char* mode) {  // by which the standard library opens streams
  static const auto real = vox::testing::original<FILE*(const char*, const char*)>("fopen64");
  return vox::testing::fails_with_eio("open") ? nullptr : real(path, mode);
}
FILE* fopen(const char* path, const char* mode) { return fopen64(path, mode); }
size_t fwrite(const void* data, size_t size, size_t count, FILE* file) {
  static const auto real = vox::testing::original<size_t(const void*, size_t, size_t, FILE*)>("fwrite");
  return vox::testing::fails_with_eio("write") ? 0 : real(data, size, count, file);
}
ssize_t read(int descriptor, void* data, size_t bytes) {
  static const auto real = vox::testing::original<ssize_t(int, void*, size_t)>("read");
  return vox::testing::transferred("read", real, descriptor, data, bytes);
}
ssize_t write(int descriptor, const void* data, size_t bytes) {
  static const auto real = vox::testing::original<ssize_t(int, const void*, size_t)>("write");
  return vox::testing::transferred("write", real, descriptor, data, bytes);
}
int fsync(int descriptor) {
  static const auto real = vox::testing::original<int(int)>("fsync");
  return vox::testing::fails_with_eio("fsync") ? -1 : real(descriptor);
}
int close(int descriptor) {
  static const auto real = vox::testing::original<int(int)>("close");
  const int result = real(descriptor);  // the system closes it even if it reports an error
  return vox::testing::fails_with_eio("close") ? -1 : result;
}
int rename(const char* from, const char* to) noexcept {
  static const auto real = vox::testing::original<int(const char*, const char*)>("rename");
  return vox::testing::fails_with_eio("rename") ? -1 : real(from, to);
}
}  // extern "C"
