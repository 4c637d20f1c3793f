// Copies, transpositions and conversions of memory.

#include <voxgrad/core/half.h>
#include <voxgrad/ops/cpu/simd/memory.h>
#include <voxgrad/ops/cpu/simd/stream.h>
#include <voxgrad/ops/cpu/simd/vec.h>

namespace vox::cpu::simd::VOXGRAD_ISA {

template <>
struct VecOf<uint32_t> {
  typedef uint32_t type __attribute__((vector_size(vector_bytes)));
};
template <>
struct VecOf<uint64_t> {
  typedef uint64_t type __attribute__((vector_size(vector_bytes)));
};

namespace {

void copy(const char* from, char* to, int64_t bytes, bool stream) { copy_run(from, to, bytes, stream); }

// ---- Transposition ---------------------------------------------------------------------------------------
//
// A square of as many vectors as a vector has elements is transposed in registers by perfect shuffles. Each
// pass interleaves vector i of the first half with vector i of the second; log2(lanes) passes make a
// transposition. All rows of some columns come before the next columns, so that each cache line of `from` is
// read in one go.

/// The first and the second half of a0 b0 a1 b1 ...
template <class V>
[[gnu::always_inline]] inline void interleave(V a, V b, V& low, V& high) {
  constexpr int n = sizeof(V) / sizeof(a[0]);
  if constexpr (n == 2) {
    low = __builtin_shufflevector(a, b, 0, 2);
    high = __builtin_shufflevector(a, b, 1, 3);
  } else if constexpr (n == 4) {
    low = __builtin_shufflevector(a, b, 0, 4, 1, 5);
    high = __builtin_shufflevector(a, b, 2, 6, 3, 7);
  } else if constexpr (n == 8) {
    low = __builtin_shufflevector(a, b, 0, 8, 1, 9, 2, 10, 3, 11);
    high = __builtin_shufflevector(a, b, 4, 12, 5, 13, 6, 14, 7, 15);
  } else {
    static_assert(n == 16);
    low = __builtin_shufflevector(a, b, 0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23);
    high = __builtin_shufflevector(a, b, 8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31);
  }
}

template <class T>
[[gnu::always_inline]] inline void transpose_square(const T* from, int64_t column_stride, T* to,
                                                    int64_t pitch) {
  constexpr int n = lanes<T>;
  Vec<T> v[n], w[n];
#pragma GCC unroll 16
  for (int i = 0; i < n; ++i) v[i] = load(from + i * column_stride);
#pragma GCC unroll 4
  for (int pass = 1; pass < n; pass *= 2) {
#pragma GCC unroll 16
    for (int i = 0; i < n / 2; ++i) interleave(v[i], v[i + n / 2], w[2 * i], w[2 * i + 1]);
#pragma GCC unroll 16
    for (int i = 0; i < n; ++i) v[i] = w[i];
  }
#pragma GCC unroll 16
  for (int i = 0; i < n; ++i) store(to + i * pitch, v[i]);
}

template <class T>
void one_by_one(const T* from, int64_t column_stride, T* to, int64_t pitch, int64_t rows, int64_t columns) {
  for (int64_t r = 0; r < rows; ++r) {
    for (int64_t c = 0; c < columns; ++c) to[r * pitch + c] = from[r + c * column_stride];
  }
}

template <class T>
void in_squares(const T* from, int64_t column_stride, T* to, int64_t pitch, int64_t rows, int64_t columns) {
  constexpr int n = lanes<T>;
  const int64_t whole_rows = rows / n * n, whole_columns = columns / n * n;
  for (int64_t c = 0; c < whole_columns; c += n) {
    for (int64_t r = 0; r < whole_rows; r += n)
      transpose_square(from + r + c * column_stride, column_stride, to + r * pitch + c, pitch);
  }
  one_by_one(from + whole_rows, column_stride, to + whole_rows * pitch, pitch, rows - whole_rows,
             whole_columns);
  one_by_one(from + whole_columns * column_stride, column_stride, to + whole_columns, pitch, rows,
             columns - whole_columns);
}

// ---- float16 ---------------------------------------------------------------------------------------------

void widen(const uint16_t* from, float* to, int64_t n) {
  for (int64_t i = 0; i < n; ++i) to[i] = vox::detail::float16_value(from[i]);
}
void narrow(const float* from, uint16_t* to, int64_t n) {
  for (int64_t i = 0; i < n; ++i) to[i] = vox::detail::float16_bits(from[i]);
}

}  // namespace

const CopyKernels copy_kernels{copy};
const HalfKernels half_kernels{widen, narrow};
const TransposeKernels transpose_kernels{one_by_one<uint8_t>, one_by_one<uint16_t>, in_squares<uint32_t>,
                                         in_squares<uint64_t>};

}  // namespace vox::cpu::simd::VOXGRAD_ISA
