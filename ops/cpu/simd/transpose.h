#pragma once

#include <utility>  // index_sequence, a type without code

#include <voxgrad/ops/cpu/simd/step_two.h>

// A matrix transposed in squares of one vector's width. Interleaving vector i with vector i + lanes / 2, for
// all i, moves the lowest bit of a column's number into the lowest place of a row's, and the highest bit of a
// row's number out. After log2(lanes) such rounds rows and columns have changed places.

namespace vox::cpu::simd::VOXGRAD_ISA {

/// to[i * to_step + r] = from[r * from_step + i] for r < rows, i < columns.
template <class T>
void transpose(const T* from, int64_t from_step, int64_t rows, int64_t columns, T* to, int64_t to_step) {
  constexpr int n = lanes<T>;
  constexpr auto all = std::make_index_sequence<n>();
  int64_t r = 0;
  for (; r + n <= rows && columns >= n; r += n) {
    for (int64_t i = 0; i < columns; i += n) {
      if (i + n > columns) i = columns - n;  // the last square may overlap the one before
      Vec<T> v[2][n];
#pragma GCC unroll 16
      for (int k = 0; k < n; ++k) v[0][k] = load(from + (r + k) * from_step + i);
      int now = 0;
#pragma GCC unroll 4
      for (int round = 1; round < n; round *= 2, now = 1 - now) {
#pragma GCC unroll 8
        for (int k = 0; k < n / 2; ++k) {
          v[1 - now][2 * k] = detail::zip<T, false>(v[now][k], v[now][k + n / 2], all);
          v[1 - now][2 * k + 1] = detail::zip<T, true>(v[now][k], v[now][k + n / 2], all);
        }
      }
#pragma GCC unroll 16
      for (int k = 0; k < n; ++k) store(to + (i + k) * to_step + r, v[now][k]);
    }
  }
  for (int64_t i = 0; i < columns; ++i)
    for (int64_t k = r; k < rows; ++k) to[i * to_step + k] = from[k * from_step + i];
}

}  // namespace vox::cpu::simd::VOXGRAD_ISA
