// The inner loops of the conv3d family: a block of sums lives in registers, as many as there are.
//
//   correlate: rows (output channels) x vectors (of positions); per channel and tap one load for each vector,
//   one
//              broadcast weight for each row, and a multiply-add for each pair
//   contract:  rows (channels of small) x columns (channel of big, tap), each a vector of partial sums over
//              positions; per vector of positions one load for each row and column
//
// With 32 registers both have 24 sums and 8 + 3 or 4 + 6 operands: more multiply-adds than loads, though an
// unaligned load of 64 bytes counts twice.

#include <voxgrad/ops/cpu/simd/conv3d.h>
#include <voxgrad/ops/cpu/simd/lane_sums.h>
#include <voxgrad/ops/cpu/simd/vec.h>

namespace vox::cpu::simd::VOXGRAD_ISA {
namespace {

inline constexpr int max_rows = vector_registers == 32 ? 8 : 4;

/// Vectors of positions beside `rows` rows: sums, one vector each and a weight fit the registers.
constexpr int vectors_for(int rows) {
  const int fit = (vector_registers - 2) / (rows + 1);
  return fit > 6 ? 6 : fit;
}

template <class T, int rows, int vectors>
void correlate_positions(const CorrelateBlock<T>& b, int64_t at) {
  Vec<T> sum[rows][vectors];
#pragma GCC unroll 8
  for (int r = 0; r < rows; ++r) {
#pragma GCC unroll 8
    for (int v = 0; v < vectors; ++v)
      sum[r][v] = b.start ? Vec<T>{} + b.start[r] : load(b.y + r * b.y_step + at + v * lanes<T>);
  }
  const T* w = b.w;
  for (int64_t c = 0; c < b.channels; ++c) {
    const T* channel = b.x + c * b.x_step + at;
    for (int64_t t = 0; t < b.taps; ++t, w += rows) {
      const T* from = channel + b.offsets[t];
      Vec<T> x[vectors];
#pragma GCC unroll 8
      for (int v = 0; v < vectors; ++v) x[v] = load(from + v * lanes<T>);
#pragma GCC unroll 8
      for (int r = 0; r < rows; ++r) {
#pragma GCC unroll 8
        for (int v = 0; v < vectors; ++v) sum[r][v] += w[r] * x[v];
      }
    }
  }
#pragma GCC unroll 8
  for (int r = 0; r < rows; ++r) {
#pragma GCC unroll 8
    for (int v = 0; v < vectors; ++v) store(b.y + r * b.y_step + at + v * lanes<T>, sum[r][v]);
  }
}

template <class T, int rows>
void correlate_rows(const CorrelateBlock<T>& b) {
  constexpr int vectors = vectors_for(rows), step = vectors * lanes<T>;
  int64_t at = 0;
  for (; at + step <= b.positions; at += step) correlate_positions<T, rows, vectors>(b, at);
  // What is left in as few rounds as possible; a round of two vectors costs little more than one of one.
  for (; at + lanes<T> < b.positions; at += 2 * lanes<T>) correlate_positions<T, rows, 2>(b, at);
  for (; at < b.positions; at += lanes<T>) correlate_positions<T, rows, 1>(b, at);
}

template <class T>
void correlate(const CorrelateBlock<T>& b) {
  static constexpr void (*by_rows[])(const CorrelateBlock<T>&) = {
      correlate_rows<T, 1>, correlate_rows<T, 2>, correlate_rows<T, 3>, correlate_rows<T, 4>,
      correlate_rows<T, 5>, correlate_rows<T, 6>, correlate_rows<T, 7>, correlate_rows<T, 8>};
  by_rows[b.rows - 1](b);
}

template <class T, int rows, int columns>
void contract_columns(const ContractBlock<T>& b, int64_t r0, int64_t q0) {
  Vec<T> sum[rows][columns] = {};
  for (int64_t p = 0; p < b.planes; ++p) {
    const T* small = b.small + r0 * b.small_row + p * b.small_plane;
    const T* big[columns];
#pragma GCC unroll 8
    for (int q = 0; q < columns; ++q) big[q] = b.big + p * b.big_plane + b.offsets[q0 + q];
    for (int64_t i = 0; i < b.positions; i += lanes<T>) {
      Vec<T> s[rows];
#pragma GCC unroll 8
      for (int r = 0; r < rows; ++r) s[r] = load(small + r * b.small_row + i);
#pragma GCC unroll 8
      for (int q = 0; q < columns; ++q) {
        const Vec<T> x = load(big[q] + i);
#pragma GCC unroll 8
        for (int r = 0; r < rows; ++r) sum[r][q] += s[r] * x;
      }
    }
  }
  T sums[rows * columns];
  sums_of_lanes<T, rows * columns>(sum[0], sums);
  for (int r = 0; r < rows; ++r)
    for (int q = 0; q < columns; ++q) b.dw[(r0 + r) * b.dw_row + q0 + q] += sums[r * columns + q];
}

template <class T, int rows>
void contract_rows(const ContractBlock<T>& b, int64_t r0) {
  constexpr int columns = vector_registers == 32 ? 6 : 3;
  int64_t q = 0;
  for (; q + columns <= b.columns; q += columns) contract_columns<T, rows, columns>(b, r0, q);
  for (; q + 2 <= b.columns; q += 2) contract_columns<T, rows, 2>(b, r0, q);
  for (; q < b.columns; ++q) contract_columns<T, rows, 1>(b, r0, q);
}

template <class T>
void contract(const ContractBlock<T>& b) {
  int64_t r = 0;
  for (; r + 4 <= b.rows; r += 4) contract_rows<T, 4>(b, r);
  for (; r + 2 <= b.rows; r += 2) contract_rows<T, 2>(b, r);
  for (; r < b.rows; ++r) contract_rows<T, 1>(b, r);
}

}  // namespace

const ConvKernels conv_kernels{.f32 = {.rows = max_rows,
                                       .lanes = lanes<float>,
                                       .correlate = correlate<float>,
                                       .contract = contract<float>},
                               .f64 = {.rows = max_rows,
                                       .lanes = lanes<double>,
                                       .correlate = correlate<double>,
                                       .contract = contract<double>}};

}  // namespace vox::cpu::simd::VOXGRAD_ISA
