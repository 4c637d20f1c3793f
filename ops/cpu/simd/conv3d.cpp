// The inner loops of the conv3d family. A block of sums stays in registers; its size depends on their number.
//
//   correlate: rows (output channels) x vectors (of positions); per channel and tap one load for each
//              vector, one broadcast weight for each row, and a multiply-add for each pair
//   contract:  rows (channels of small) x columns (channel of big, tap), each a vector of partial sums over
//              positions; per vector of positions one load for each row and column
//
// With 32 registers both have 8 x 3 sums: 24 multiply-adds for 11 loads. The 3 loads that are not aligned
// count twice. Both need long rows of positions. Two loops with lanes along the rows need none, but whole
// vectors of rows:
//
//   correlate_rows: positions x vectors (of output channels); per channel and tap one load for each
//                   vector and one broadcast cell for each position
//   contract_rows:  columns x vectors (of channels of small); per position one load for each vector and
//                   one broadcast cell for each column
//
// With 32 registers both have 14 x 2 sums, with 16 registers 6 x 2.

#include <voxgrad/ops/cpu/simd/conv3d.h>
#include <voxgrad/ops/cpu/simd/lane_sums.h>
#include <voxgrad/ops/cpu/simd/step_two.h>
#include <voxgrad/ops/cpu/simd/transpose.h>
#include <voxgrad/ops/cpu/simd/vec.h>
#include <voxgrad/ops/cpu/simd/winograd.h>

namespace vox::cpu::simd::VOXGRAD_ISA {
namespace {

inline constexpr int max_rows = vector_registers == 32 ? 8 : 4;

/// Vectors of positions for `rows` rows, so that the sums, one load per vector and a weight fit the
/// registers.
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
    for (int v = 0; v < vectors; ++v) sum[r][v] = b.start ? Vec<T>{} + b.start[r] : Vec<T>{};
  }
  for (int64_t c = 0; c < b.channels; ++c) {
    const T* channel = b.x + c * b.x_step + at;
    const T* weights = b.w + c * b.w_step;
    for (int64_t t = 0; t < b.taps; ++t) {
      const T* from = channel + b.offsets[t].x;
      const T* w = weights + b.offsets[t].w * rows;
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
    for (int v = 0; v < vectors; ++v) {
      T* y = b.y + r * b.y_step + at + v * lanes<T>;
      store(y, b.start ? sum[r][v] : load(y) + sum[r][v]);
    }
  }
}

template <class T, int rows>
void correlate_of(const CorrelateBlock<T>& b) {
  constexpr int vectors = vectors_for(rows), step = vectors * lanes<T>;
  int64_t at = 0;
  for (; at + step <= b.positions; at += step) correlate_positions<T, rows, vectors>(b, at);
  // The rest in as few rounds as possible: a round of two vectors costs little more than a round of one.
  for (; at + lanes<T> < b.positions; at += 2 * lanes<T>) correlate_positions<T, rows, 2>(b, at);
  for (; at < b.positions; at += lanes<T>) correlate_positions<T, rows, 1>(b, at);
}

/// Calls f(part) for parts of the channels, of about 500 products for each sum: the rounding errors of f32
/// sums grow with their length.
template <class T, class F>
void for_parts(CorrelateBlock<T> b, const F& f) {
  const int64_t all = b.channels, most = b.taps == 0 ? 512 : b.taps < 512 ? 512 / b.taps : 1;
  for (int64_t c = 0; c == 0 || c < all; c += most) {
    b.channels = all - c < most ? all - c : most;
    f(b);
    b.x += most * b.x_step, b.w += most * b.w_step, b.start = nullptr;
  }
}

template <class T>
void correlate(const CorrelateBlock<T>& b) {
  static constexpr void (*by_rows[])(const CorrelateBlock<T>&) = {
      correlate_of<T, 1>, correlate_of<T, 2>, correlate_of<T, 3>, correlate_of<T, 4>,
      correlate_of<T, 5>, correlate_of<T, 6>, correlate_of<T, 7>, correlate_of<T, 8>};
  for_parts(b, by_rows[b.rows - 1]);
}

inline constexpr int most_broadcasts = vector_registers == 32 ? 14 : 6;

/// Calls f.operator()<count>() for the count that is given, 1 to most_broadcasts.
template <int count = most_broadcasts, class F>
void with_constant(int64_t wanted, const F& f) {
  if constexpr (count > 1)
    if (wanted < count) return with_constant<count - 1>(wanted, f);
  f.template operator()<count>();
}

/// Cuts n positions (or columns) evenly into the fewest blocks of sums, and calls f.operator()<count>(first)
/// for each.
template <class F>
void for_broadcasts(int64_t n, const F& f) {
  for (int64_t i = 0, blocks = (n + most_broadcasts - 1) / most_broadcasts; blocks > 0; --blocks) {
    const int64_t count = (n - i + blocks - 1) / blocks;
    with_constant(count, [&]<int constant>() { f.template operator()<constant>(i); });
    i += count;
  }
}

template <class T, int positions, int vectors>
void correlate_rows_positions(const CorrelateBlock<T>& b, int64_t at) {
  constexpr int rows = vectors * lanes<T>;
  Vec<T> sum[positions][vectors];
#pragma GCC unroll 16
  for (int i = 0; i < positions; ++i) {
#pragma GCC unroll 2
    for (int v = 0; v < vectors; ++v) sum[i][v] = b.start ? load(b.start + v * lanes<T>) : Vec<T>{};
  }
  for (int64_t c = 0; c < b.channels; ++c) {
    const T* channel = b.x + c * b.x_step + at;
    const T* weights = b.w + c * b.w_step;
    for (int64_t t = 0; t < b.taps; ++t) {
      const T* x = channel + b.offsets[t].x;
      const T* from = weights + b.offsets[t].w * rows;
      Vec<T> w[vectors];
#pragma GCC unroll 2
      for (int v = 0; v < vectors; ++v) w[v] = in_register(load(from + v * lanes<T>));
#pragma GCC unroll 16
      for (int i = 0; i < positions; ++i) {
#pragma GCC unroll 2
        for (int v = 0; v < vectors; ++v) sum[i][v] += x[i] * w[v];
      }
    }
  }
#pragma GCC unroll 16
  for (int i = 0; i < positions; ++i) {
#pragma GCC unroll 2
    for (int v = 0; v < vectors; ++v) {
      T* y = b.y + (at + i) * rows + v * lanes<T>;
      store(y, b.start ? sum[i][v] : load(y) + sum[i][v]);
    }
  }
}

template <class T>
void correlate_rows(const CorrelateBlock<T>& all) {
  for_parts(all, [](const CorrelateBlock<T>& b) {
    for_broadcasts(b.positions, [&]<int positions>(int64_t at) {
      if (b.rows == lanes<T>)
        correlate_rows_positions<T, positions, 1>(b, at);
      else
        correlate_rows_positions<T, positions, 2>(b, at);
    });
  });
}

template <class T, int columns, int vectors>
void contract_rows_columns(const ContractRowsBlock<T>& b, int64_t r0, int64_t q0) {
  Vec<T> sum[columns][vectors];
  T* sums = b.sums + r0;
  const int64_t* slots = b.slots + q0;
#pragma GCC unroll 16
  for (int q = 0; q < columns; ++q) {
#pragma GCC unroll 2
    for (int v = 0; v < vectors; ++v) sum[q][v] = load(sums + slots[q] + v * lanes<T>);
  }
  const int64_t* offsets = b.offsets + q0;
  for (int64_t i = 0; i < b.positions; ++i) {
    const T* small = b.small + b.small_places[i] + r0;
    const T* big = b.big + b.big_places[i];
    Vec<T> s[vectors];
#pragma GCC unroll 2
    for (int v = 0; v < vectors; ++v) s[v] = in_register(load(small + v * lanes<T>));
    // Read again for each position: there are more offsets than registers.
    asm("" : "+r"(offsets));
#pragma GCC unroll 16
    for (int q = 0; q < columns; ++q) {
      const Vec<T> x = in_register(big[offsets[q]] - Vec<T>{});
#pragma GCC unroll 2
      for (int v = 0; v < vectors; ++v) sum[q][v] += x * s[v];
    }
  }
#pragma GCC unroll 16
  for (int q = 0; q < columns; ++q) {
#pragma GCC unroll 2
    for (int v = 0; v < vectors; ++v) store(sums + slots[q] + v * lanes<T>, sum[q][v]);
  }
}

template <class T>
void contract_rows(const ContractRowsBlock<T>& b) {
  for_broadcasts(b.columns, [&]<int columns>(int64_t q) {
    int64_t r = 0;
    for (; r + 2 * lanes<T> <= b.rows; r += 2 * lanes<T>) contract_rows_columns<T, columns, 2>(b, r, q);
    for (; r < b.rows; r += lanes<T>) contract_rows_columns<T, columns, 1>(b, r, q);
  });
}

template <class T, int rows, int columns>
void contract_columns(const ContractBlock<T>& b, int64_t r0, int64_t q0, T* to) {
  Vec<T> sum[rows][columns] = {};
  const T* small = b.small + r0 * b.small_row;
  for (int64_t d = 0; d < b.depths; ++d) {
    for (int64_t h = 0; h < b.heights; ++h, small += b.widths) {
      const T* big[columns];
#pragma GCC unroll 8
      for (int q = 0; q < columns; ++q)
        big[q] = b.big + d * b.big_depth + h * b.big_height + b.offsets[q0 + q];
      for (int64_t i = 0; i < b.widths; i += lanes<T>) {
        Vec<T> x[columns];
#pragma GCC unroll 8
        for (int q = 0; q < columns; ++q) x[q] = load(big[q] + i);
#pragma GCC unroll 8
        for (int r = 0; r < rows; ++r) {
          const Vec<T> s = in_register(load(small + r * b.small_row + i));
#pragma GCC unroll 8
          for (int q = 0; q < columns; ++q) sum[r][q] += s * x[q];
        }
      }
    }
  }
  T sums[rows * columns];
  sums_of_lanes<T, rows * columns>(sum[0], sums);
  for (int i = 0; i < rows * columns; ++i) to[i] += sums[i];
}

/// Cuts (rows, columns) into blocks of sums and calls f.operator()<rows, columns>(first row, first column)
/// for each.
template <int rows, class F>
void for_columns(int64_t columns, int64_t r, const F& f) {
  constexpr int sums = vector_registers == 32 ? 24 : 12, most = sums / rows > 6 ? 6 : sums / rows;
  int64_t q = 0;
  for (; q + most <= columns; q += most) f.template operator()<rows, most>(r, q);
  for (; q + 2 <= columns; q += 2) f.template operator()<rows, 2>(r, q);
  for (; q < columns; ++q) f.template operator()<rows, 1>(r, q);
}
template <class F>
void for_blocks(int64_t rows, int64_t columns, const F& f) {
  int64_t r = 0;
  for (; r + max_rows <= rows; r += max_rows) for_columns<max_rows>(columns, r, f);
  for (; r + 4 <= rows; r += 4) for_columns<4>(columns, r, f);
  for (; r + 2 <= rows; r += 2) for_columns<2>(columns, r, f);
  for (; r < rows; ++r) for_columns<1>(columns, r, f);
}

template <class T>
void contract(const ContractBlock<T>& b) {
  T* to = b.sums;
  for_blocks(b.rows, b.columns, [&]<int rows, int columns>(int64_t r, int64_t q) {
    contract_columns<T, rows, columns>(b, r, q, to);
    to += rows * columns;
  });
}

template <class T>
void order_sums(const T* sums, int64_t all_rows, int64_t all_columns, T* to, int64_t step) {
  for_blocks(all_rows, all_columns, [&]<int rows, int columns>(int64_t r, int64_t q) {
    for (int i = 0; i < rows; ++i)
      for (int k = 0; k < columns; ++k) to[(r + i) * step + q + k] = *sums++;
  });
}

template <class T>
constexpr ConvKernelsOf<T> kernels_of{.rows = max_rows,
                                      .lanes = lanes<T>,
                                      .correlate = correlate<T>,
                                      .correlate_rows = correlate_rows<T>,
                                      .contract = contract<T>,
                                      .contract_rows = contract_rows<T>,
                                      .order_sums = order_sums<T>,
                                      .transpose = transpose<T>,
                                      .every_second = every_second<T>,
                                      .interleave = interleave<T>,
                                      .winograd_cells = winograd_cells<T>,
                                      .winograd_weights = winograd_weights<T>,
                                      .winograd_outputs = winograd_outputs<T>,
                                      .winograd_output_grads = winograd_output_grads<T>,
                                      .winograd_weight_grads = winograd_weight_grads<T>};

}  // namespace

const OfReals<ConvKernelsOf> conv_kernels{kernels_of<float>, kernels_of<double>};

}  // namespace vox::cpu::simd::VOXGRAD_ISA
