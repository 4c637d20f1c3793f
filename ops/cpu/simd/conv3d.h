#pragma once

#include <cstdint>

// What the conv3d family asks of an instruction set: the inner loops, over tiles that ops/cpu/conv3d_tile.h
// has laid out. T is the type of the arithmetic, float or double.

namespace vox::cpu::simd {

/// y[r][i] += sum over channels c and taps t of w[c][t][r] * x[c][i + offsets[t]], in this order, for
/// positions i in [0, positions) and rows r.
template <class T>
struct CorrelateBlock {
  const T* x;      ///< channel c begins at x + c * x_step; readable one vector beyond the last position
  int64_t x_step;  //
  const int64_t* offsets;  ///< where tap t reads
  const T* w;              ///< (channels, taps, rows), dense
  int64_t channels, taps;
  const T* start;  ///< what the rows start from, or null: from what y holds
  T* y;            ///< row r begins at y + r * y_step; written up to a whole vector beyond the last position
  int64_t y_step;
  int64_t rows;  ///< 1 to ConvKernels::rows
  int64_t positions;
};

/// dw[r][q] += sum over planes p and positions i of small[r][p][i] * big[p][i + offsets[q]]. `positions` is a
/// whole number of vectors.
template <class T>
struct ContractBlock {
  const T* small;  ///< row r, plane p begins at small + r * small_row + p * small_plane
  int64_t small_row, small_plane;
  const T* big;  ///< plane p begins at big + p * big_plane
  int64_t big_plane;
  const int64_t* offsets;
  T* dw;  ///< row r begins at dw + r * dw_row
  int64_t dw_row;
  int64_t rows, columns, planes, positions;
};

template <class T>
struct ConvKernelsOf {
  int64_t rows;   ///< output channels that correlate() does best at a time
  int64_t lanes;  ///< elements of a vector
  void (*correlate)(const CorrelateBlock<T>&);
  void (*contract)(const ContractBlock<T>&);
};

struct ConvKernels {
  ConvKernelsOf<float> f32;
  ConvKernelsOf<double> f64;
};

namespace baseline {
extern const ConvKernels conv_kernels;
}
namespace v3 {
extern const ConvKernels conv_kernels;
}
namespace v4 {
extern const ConvKernels conv_kernels;
}

}  // namespace vox::cpu::simd
