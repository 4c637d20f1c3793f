#pragma once

#include <cstdint>
#include <cstring>

#if defined(__SSE2__)
#include <immintrin.h>
#endif

// Note [Streaming]
//
// An ordinary store first reads the cache line that it overwrites, so a copy of n bytes moves 3n through
// memory. Stores past the cache ("non-temporal") do not. They pay if a result is larger than the cache. They
// cost time if the result would stay in the cache for its next use. So callers choose them by size.

namespace vox::cpu::simd::VOXGRAD_ISA {

inline constexpr int64_t cache_line = 64;

/// Copies `bytes`, a multiple of 64, past the cache; `to` is 64-byte aligned. Such stores are not ordered
/// with others, so the chunk that makes them must end with finish_streaming() (ops/cpu/walk.h).
[[gnu::always_inline]] inline void stream_lines(void* to, const void* from, int64_t bytes) {
  char* t = static_cast<char*>(to);
  const char* f = static_cast<const char*>(from);
#if defined(__AVX512F__)
  for (int64_t i = 0; i < bytes; i += 64)
    _mm512_stream_si512(reinterpret_cast<__m512i*>(t + i), _mm512_loadu_si512(f + i));
#elif defined(__AVX__)
  for (int64_t i = 0; i < bytes; i += 32)
    _mm256_stream_si256(reinterpret_cast<__m256i*>(t + i),
                        _mm256_loadu_si256(reinterpret_cast<const __m256i*>(f + i)));
#elif defined(__SSE2__)
  for (int64_t i = 0; i < bytes; i += 16)
    _mm_stream_si128(reinterpret_cast<__m128i*>(t + i),
                     _mm_loadu_si128(reinterpret_cast<const __m128i*>(f + i)));
#else
  std::memcpy(t, f, static_cast<size_t>(bytes));
#endif
}

/// Copies bytes that do not overlap.
[[gnu::always_inline]] inline void copy_run(const char* from, char* to, int64_t bytes, bool stream) {
  const int64_t before = static_cast<int64_t>((0 - reinterpret_cast<uintptr_t>(to)) % cache_line);
  const int64_t lines = (bytes - before) / cache_line * cache_line;
  if (!stream || lines <= 0) {
    std::memcpy(to, from, static_cast<size_t>(bytes));
    return;
  }
  std::memcpy(to, from, static_cast<size_t>(before));
  stream_lines(to + before, from + before, lines);
  std::memcpy(to + before + lines, from + before + lines, static_cast<size_t>(bytes - before - lines));
}

/// Calls f(first, to, count) for consecutive parts of a run y[0..n). f writes elements first, first + 1, ...
/// of the run to `to`, which is y's memory or a buffer that is streamed afterwards. The one place where f is
/// called lets the compiler inline it: otherwise a long formula does not become vector code.
template <class T, class F>
[[gnu::always_inline]] inline void write_run(T* y, int64_t n, bool stream, F f) {
  constexpr int64_t block = 4096 / sizeof(T), line = cache_line / sizeof(T);
  alignas(64) T buffer[block];
  const auto before_line =
      static_cast<int64_t>((0 - reinterpret_cast<uintptr_t>(y)) % cache_line / sizeof(T));
  const int64_t head =
      stream && n >= 2 * line ? before_line : n;  // written in place, and so is what fills no line
  for (int64_t i = 0, count; i < n; i += count) {
    const int64_t lines = (n - i) / line * line;
    const bool in_place = i < head || lines == 0;
    count = i < head ? head - i : lines == 0 ? n - i : lines < block ? lines : block;
    f(i, in_place ? y + i : buffer, count);
    if (!in_place) stream_lines(y + i, buffer, count * static_cast<int64_t>(sizeof(T)));
  }
}

}  // namespace vox::cpu::simd::VOXGRAD_ISA
