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
// With 32 registers both have 14 x 2 sums, with 16 registers 6 x 2. Kernels of three taps along W read three
// neighbouring cells, and neighbouring sums share two of them. So there a cell is broadcast once for all its
// products: with one vector of rows, loads would otherwise take longer than the multiply-adds.

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

/// Calls f.operator()<count>() for the count that is given, 1 to `count`.
template <int count, class F>
void with_constant(int64_t wanted, const F& f) {
  if constexpr (count > 1)
    if (wanted < count) return with_constant<count - 1>(wanted, f);
  f.template operator()<count>();
}

/// How many positions (or runs of `columns`) are taken at a time, so that their sums, `run` * `vectors`
/// operands and a cell fit the registers. Each number is code of its own, and more than 16 bring little.
constexpr int most_at_once(int vectors, int run, int columns = 1) {
  const int fit = (vector_registers - run * vectors - 1) / (vectors * columns);
  return fit < 16 ? fit : 16;
}

/// Cuts n positions (or columns) evenly into the fewest blocks of at most `most`, and calls
/// f.operator()<count>(first) for each.
template <int most, class F>
void for_broadcasts(int64_t n, const F& f) {
  for (int64_t i = 0, blocks = (n + most - 1) / most; blocks > 0; --blocks) {
    const int64_t count = (n - i + blocks - 1) / blocks;
    with_constant<most>(count, [&]<int constant>() { f.template operator()<constant>(i); });
    i += count;
  }
}

/// A cell in all lanes, in a register if `products` use it, else read by the one multiply-add that does.
template <int products, class T>
[[gnu::always_inline]] inline Vec<T> broadcast(T cell) {
  const Vec<T> v = cell - Vec<T>{};
  return products > 1 ? in_register(v) : v;
}

/// The sums of some positions. Taps come in runs of `run`, which read neighbouring cells.
template <class T, int positions, int vectors, int run>
void correlate_rows_positions(const CorrelateBlock<T>& b, int64_t at) {
  constexpr int rows = vectors * lanes<T>;
  Vec<T> sum[positions][vectors];
#pragma GCC unroll 32
  for (int i = 0; i < positions; ++i) {
#pragma GCC unroll 2
    for (int v = 0; v < vectors; ++v) sum[i][v] = b.start ? load(b.start + v * lanes<T>) : Vec<T>{};
  }
  const int64_t way = run == 1 ? 1 : b.threes;
  const TapOffsets* const first = b.offsets + (way < 0 ? run - 1 : 0);  // the tap of a run's first cell
  for (int64_t c = 0; c < b.channels; ++c) {
    const T* channel = b.x + c * b.x_step + at;
    const T* weights = b.w + c * b.w_step;
    for (int64_t t = 0; t < b.taps; t += run) {
      const T* x = channel + first[t].x;
      const T* from = weights + first[t].w * rows;
      Vec<T> w[run][vectors];
#pragma GCC unroll 4
      for (int k = 0; k < run; ++k) {
#pragma GCC unroll 2
        for (int v = 0; v < vectors; ++v) w[k][v] = in_register(load(from + k * way * rows + v * lanes<T>));
      }
#pragma GCC unroll 32
      for (int j = 0; j < positions + run - 1; ++j) {
        const Vec<T> cell = broadcast<run * vectors>(x[j]);
#pragma GCC unroll 4
        for (int k = 0; k < run; ++k) {
          if (j < k || j >= positions + k) continue;
#pragma GCC unroll 2
          for (int v = 0; v < vectors; ++v) sum[j - k][v] += cell * w[k][v];
        }
      }
    }
  }
#pragma GCC unroll 32
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
  const auto with = [&]<int vectors, int run>() {
    for_parts(all, [&](const CorrelateBlock<T>& b) {
      for_broadcasts<most_at_once(vectors, run)>(b.positions, [&]<int positions>(int64_t at) {
        correlate_rows_positions<T, positions, vectors, run>(b, at);
      });
    });
  };
  // With two vectors and 16 registers, threes leave room for four positions, which are no faster.
  const bool one = all.rows == lanes<T>, threes = all.threes != 0 && (one || vector_registers == 32);
  if (one)
    threes ? with.template operator()<1, 3>() : with.template operator()<1, 1>();
  else
    threes ? with.template operator()<2, 3>() : with.template operator()<2, 1>();
}

/// Positions that contract_rows() takes together: with two vectors a cell has products enough.
template <int vectors>
inline constexpr int positions_of_run = vectors == 1 ? 4 : 1;

/// Adds the products of `run` neighbouring positions with all columns. Their offsets come in runs of `taps`
/// that rise by one; `first[q]` are those of the first columns of the runs.
template <int run, int taps, class T, int columns, int vectors>
[[gnu::always_inline]] inline void contract_positions(const ContractRowsBlock<T>& b, int64_t r0, int64_t i,
                                                      const int64_t* first, Vec<T> (&sum)[columns][vectors]) {
  const T* big = b.big + b.big_places[i];
  Vec<T> s[run][vectors];
#pragma GCC unroll 4
  for (int p = 0; p < run; ++p) {
    const T* small = b.small + b.small_places[i + p] + r0;
#pragma GCC unroll 2
    for (int v = 0; v < vectors; ++v) s[p][v] = in_register(load(small + v * lanes<T>));
  }
#pragma GCC unroll 32
  for (int q = 0; q < columns; q += taps) {
    const T* x = big + first[q];
#pragma GCC unroll 8
    for (int j = 0; j < run + taps - 1; ++j) {
      const Vec<T> cell = broadcast<taps * vectors>(x[j]);
#pragma GCC unroll 4
      for (int p = 0; p < run; ++p) {
        if (j < p || j >= p + taps) continue;
#pragma GCC unroll 2
        for (int v = 0; v < vectors; ++v) sum[q + j - p][v] += cell * s[p][v];
      }
    }
  }
}

template <class T, int columns, int vectors, int taps>
void contract_rows_columns(const ContractRowsBlock<T>& b, int64_t r0, int64_t q0) {
  constexpr int run = positions_of_run<vectors>;
  Vec<T> sum[columns][vectors];
  const auto place = [&](int q) { return b.sums + r0 + b.slots[q0 + q]; };
#pragma GCC unroll 32
  for (int q = 0; q < columns; ++q) {
#pragma GCC unroll 2
    for (int v = 0; v < vectors; ++v) sum[q][v] = load(place(q) + v * lanes<T>);
  }
  const int64_t* first = b.offsets + q0;
  for (int64_t i = 0; i < b.positions;) {
    asm("" : "+r"(first));  // read again each time: there are more offsets than registers
    if (run > 1 && i + run <= b.positions && b.big_places[i + run - 1] == b.big_places[i] + run - 1) {
      contract_positions<run, taps>(b, r0, i, first, sum);
      i += run;
    } else {
      contract_positions<1, taps>(b, r0, i++, first, sum);
    }
  }
#pragma GCC unroll 32
  for (int q = 0; q < columns; ++q) {
#pragma GCC unroll 2
    for (int v = 0; v < vectors; ++v) store(place(q) + v * lanes<T>, sum[q][v]);
  }
}

template <class T>
void contract_rows(const ContractRowsBlock<T>& b) {
  const auto with = [&]<int vectors, int taps>(int64_t r) {
    for_broadcasts<most_at_once(vectors, positions_of_run<vectors>, taps)>(
        b.columns / taps,
        [&]<int runs>(int64_t q) { contract_rows_columns<T, runs * taps, vectors, taps>(b, r, q * taps); });
  };
  int64_t r = 0;
  for (; r + 2 * lanes<T> <= b.rows; r += 2 * lanes<T>) with.template operator()<2, 1>(r);
  if (r < b.rows) b.threes ? with.template operator()<1, 3>(r) : with.template operator()<1, 1>(r);
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
