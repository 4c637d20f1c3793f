#pragma once

#include <cstdint>

#include <voxgrad/ops/cpu/isa.h>

// The inner loops of the conv3d family, over tiles that ops/cpu/conv3d/tile.h lays out. T is the type of the
// arithmetic, float or double.

namespace vox::cpu::simd {

/// Offsets of what a tap reads, and of its weights.
struct TapOffsets {
  int64_t x, w;
};

/// y[r][i] += sum over channels c and taps t of w[c][t][r] * x[c][i + t.x], in this order and in parts of
/// some channels, for positions i in [0, positions) and rows r. By rows (correlate_rows) the sums lie as
/// y[i][r], dense.
template <class T>
struct CorrelateBlock {
  const T* x;  ///< channel c begins at x + c * x_step; readable one vector beyond the last position
  const T* w;  ///< the weights of channel c and tap t begin at w + c * w_step + t.w * rows, one per row
  int64_t x_step, w_step;
  int64_t channels, taps;
  const TapOffsets* offsets;
  const T* start;  ///< initial value of each row; if null, y holds the initial values
  T* y;            ///< row r begins at y + r * y_step; written up to a whole vector beyond the last position
  int64_t y_step;
  int64_t rows;  ///< 1 to ConvKernelsOf::rows; by rows: one or two vectors
  int64_t positions;
  /// 1 or -1 if taps come in threes, which read neighbouring cells in this direction, else 0; for
  /// correlate_rows().
  int64_t threes;
};

/// sums(r, q) += sum over d, h, w of small[r][d][h][w] * big[d][h][w + offsets[q]]. The widths are a whole
/// number of vectors.
template <class T>
struct ContractBlock {
  const T* small;  ///< row r begins at small + r * small_row; (depths, heights, widths), dense
  int64_t small_row;
  const T* big;  ///< (d, h) begins at big + d * big_depth + h * big_height
  int64_t big_depth, big_height;
  const int64_t* offsets;
  T* sums;  ///< rows * columns, in an order of the kernel's own that depends on these two alone
  int64_t rows, columns, depths, heights, widths;
};

/// sums[slots[q] + r] += sum over i of small[small_places[i] + r] * big[big_places[i] + offsets[q]]. The rows
/// are a whole number of vectors.
template <class T>
struct ContractRowsBlock {
  const T *small, *big;
  const int64_t *small_places, *big_places;  ///< one per position
  const int64_t *offsets, *slots;            ///< one per column
  T* sums;
  int64_t rows, columns, positions;
  bool threes;  ///< whether columns come in threes, whose offsets rise by one
};

template <class T>
struct ConvKernelsOf {
  int64_t rows;   ///< number of output channels with which correlate() is fastest
  int64_t lanes;  ///< elements in a vector
  void (*correlate)(const CorrelateBlock<T>&);
  void (*correlate_rows)(const CorrelateBlock<T>&);
  void (*contract)(const ContractBlock<T>&);
  void (*contract_rows)(const ContractRowsBlock<T>&);
  /// Brings the sums of contract() into the order to[r * step + q].
  void (*order_sums)(const T* sums, int64_t rows, int64_t columns, T* to, int64_t step);
  /// to[i * to_step + r] = from[r * from_step + i] for r < rows, i < columns.
  void (*transpose)(const T* from, int64_t from_step, int64_t rows, int64_t columns, T* to, int64_t to_step);
  void (*every_second)(const T* from, int64_t n, T* to);  ///< to[i] = from[2 * i]
  /// to = a[0], b[0], a[1], b[1], ...; na is nb or nb + 1.
  void (*interleave)(const T* a, int64_t na, const T* b, int64_t nb, T* to);
  // See winograd.h.
  void (*winograd_cells)(const T* const* from, int64_t n, T* const* to, int64_t room);
  void (*winograd_weights)(const T* const* from, int64_t n, T* const* to);
  void (*winograd_outputs)(T* const* m, int64_t n);
  void (*winograd_output_grads)(const T* const* from, int64_t n, T* const* to);
  void (*winograd_weight_grads)(T* const* m, int64_t n);
};

VOX_DECLARE_BY_ISA(OfReals<ConvKernelsOf>, conv_kernels);

}  // namespace vox::cpu::simd
