#include <voxgrad/core/parallel.h>
#include <voxgrad/ops/cpu/isa.h>
#include <voxgrad/ops/cpu/simd/transpose.h>
#include <voxgrad/ops/cpu/walk.h>

#include <algorithm>
#include <cstring>

#if defined(__SSE2__)
#include <emmintrin.h>
#endif

namespace vox::cpu {

void finish_streaming() {
#if defined(__SSE2__)
  _mm_sfence();
#endif
}

namespace {

constexpr ByIsa transpose = VOX_BY_ISA(transpose_kernels);

constexpr int most = Run::max_operands;
constexpr int64_t grain = 32768;           // elements of a chunk
constexpr int64_t buffer_elements = 1024;  // of one operand, in buffered walks
constexpr int64_t shortest_direct = 32;
constexpr int64_t tile_row_bytes = 256;  // what a tile takes from one column: four cache lines
constexpr int64_t tile_rows = 64;        // the most, of elements of 4 bytes and less
constexpr int64_t tile_columns = 64;
constexpr int64_t largest_element = 8;

/// The operands' common shape, dimensions from the output's innermost outwards; strides in bytes.
struct Layout {
  int operands = 0, rank = 0;
  int64_t numel = 0;
  int64_t sizes[max_rank] = {};
  int64_t strides[most][max_rank] = {};
  int64_t element[most] = {};
  char* data[most] = {};
  bool stream = false;

  bool is_run(int k) const { return strides[k][0] == element[k]; }
  bool repeats(int k) const { return strides[k][0] == 0; }
  bool is_dense(int k) const { return rank == 1 && is_run(k); }
};

Layout layout_of(const Tensor* const* operands, int count) {
  const Tensor& output = *operands[0];
  Layout w;
  w.operands = count;
  w.numel = output.numel();
  for (int k = 0; k < count; ++k) {
    w.element[k] = size_of(operands[k]->dtype());
    w.data[k] = static_cast<char*>(operands[k]->impl()->data());
  }
  w.stream = w.numel * w.element[0] >= stream_bytes;

  int64_t dims[max_rank];
  int rank = 0;
  for (int64_t d = output.rank() - 1; d >= 0; --d) {
    if (output.shape()[d] != 1) dims[rank++] = d;
  }
  std::stable_sort(dims, dims + rank,
                   [&](int64_t a, int64_t b) { return output.strides()[a] < output.strides()[b]; });
  for (int i = 0; i < rank; ++i) {
    const int64_t size = output.shape()[dims[i]];
    const auto stride = [&](int k) { return operands[k]->strides()[dims[i]] * w.element[k]; };
    const int last = w.rank - 1;
    bool join = last >= 0;
    for (int k = 0; k < count && join; ++k) join = stride(k) == w.strides[k][last] * w.sizes[last];
    if (join) {
      w.sizes[last] *= size;
      continue;
    }
    w.sizes[w.rank] = size;
    for (int k = 0; k < count; ++k) w.strides[k][w.rank] = stride(k);
    ++w.rank;
  }
  if (w.rank == 0) {  // a single element
    w.rank = 1;
    w.sizes[0] = 1;
    for (int k = 0; k < count; ++k) w.strides[k][0] = w.element[k];
  }
  return w;
}

/// A place in the layout, as indices and as offsets of all operands.
struct Place {
  int64_t index[max_rank];
  int64_t offset[most] = {};

  Place(const Layout& w, int64_t position) {
    for (int d = 0; d < w.rank; ++d) {
      const int64_t rest = position / w.sizes[d];
      index[d] = d + 1 < w.rank ? position - rest * w.sizes[d] : position;
      for (int k = 0; k < w.operands; ++k) offset[k] += index[d] * w.strides[k][d];
      position = rest;
    }
  }
  /// By `n` elements along the innermost dimension, not beyond its end; then carries, as an odometer does.
  void advance(const Layout& w, int64_t n) {
    index[0] += n;
    for (int k = 0; k < w.operands; ++k) offset[k] += n * w.strides[k][0];
    for (int d = 0; d + 1 < w.rank && index[d] == w.sizes[d]; ++d) {
      index[d] = 0;
      ++index[d + 1];
      for (int k = 0; k < w.operands; ++k) offset[k] += w.strides[k][d + 1] - w.sizes[d] * w.strides[k][d];
    }
  }
};

// ---- Direct -----------------------------------------------------------------------------------------------

void walk_direct(const Layout& w, RunFunction function, const void* f) {
  parallel_for(w.numel, grain, [&](int64_t begin, int64_t end) {
    Place place(w, begin);
    Run run{};
    run.stream = w.stream;
    for (int k = 0; k < w.operands; ++k) run.step[k] = w.repeats(k) ? 0 : 1;
    while (begin < end) {
      run.n = std::min(end - begin, w.sizes[0] - place.index[0]);
      for (int k = 0; k < w.operands; ++k) run.at[k] = w.data[k] + place.offset[k];
      function(f, run);
      place.advance(w, run.n);
      begin += run.n;
    }
    if (w.stream) finish_streaming();
  });
}

// ---- Buffered ---------------------------------------------------------------------------------------------

template <class T>
void copy_strided(const char* from, int64_t from_stride, char* to, int64_t to_stride, int64_t n) {
  if (from_stride == sizeof(T) && to_stride == sizeof(T)) {
    std::memcpy(to, from, static_cast<size_t>(n) * sizeof(T));
    return;
  }
  for (int64_t i = 0; i < n; ++i) std::memcpy(to + i * to_stride, from + i * from_stride, sizeof(T));
}

void copy_elements(int64_t element, const char* from, int64_t from_stride, char* to, int64_t to_stride,
                   int64_t n) {
  if (element == 1) return copy_strided<uint8_t>(from, from_stride, to, to_stride, n);
  if (element == 2) return copy_strided<uint16_t>(from, from_stride, to, to_stride, n);
  if (element == 4) return copy_strided<uint32_t>(from, from_stride, to, to_stride, n);
  copy_strided<uint64_t>(from, from_stride, to, to_stride, n);
}

/// Calls f(operand's memory, elements before, length) for the pieces of n elements from `place` on.
template <class F>
void for_pieces(const Layout& w, Place place, int k, int64_t n, F f) {
  for (int64_t done = 0; done < n;) {
    const int64_t length = std::min(n - done, w.sizes[0] - place.index[0]);
    f(w.data[k] + place.offset[k], done, length);
    place.advance(w, length);
    done += length;
  }
}

void walk_buffered(const Layout& w, RunFunction function, const void* f) {
  bool is_dense[most], is_one[most];  // over the whole walk
  for (int k = 0; k < w.operands; ++k) {
    int64_t expected = w.element[k];
    is_dense[k] = is_one[k] = true;
    for (int d = 0; d < w.rank; ++d) {
      is_dense[k] = is_dense[k] && w.strides[k][d] == expected;
      is_one[k] = is_one[k] && w.strides[k][d] == 0;
      expected *= w.sizes[d];
    }
  }
  parallel_for(w.numel, grain, [&](int64_t begin, int64_t end) {
    alignas(64) char buffers[most][buffer_elements * largest_element];
    Place place(w, begin);
    Run run{};
    run.stream = w.stream;
    while (begin < end) {
      run.n = std::min(end - begin, buffer_elements);
      for (int k = 0; k < w.operands; ++k) {
        run.step[k] = is_one[k] ? 0 : 1;
        run.at[k] = is_dense[k] || is_one[k] ? w.data[k] + place.offset[k] : buffers[k];
        if (k == 0 || is_dense[k] || is_one[k]) continue;
        for_pieces(w, place, k, run.n, [&](const char* memory, int64_t done, int64_t length) {
          copy_elements(w.element[k], memory, w.strides[k][0], buffers[k] + done * w.element[k], w.element[k],
                        length);
        });
      }
      run.stream = w.stream && is_dense[0];
      function(f, run);
      if (!is_dense[0]) {
        for_pieces(w, place, 0, run.n, [&](char* memory, int64_t done, int64_t length) {
          copy_elements(w.element[0], buffers[0] + done * w.element[0], w.element[0], memory, w.strides[0][0],
                        length);
        });
      }
      begin += run.n;
      for (int64_t left = run.n; left > 0 && begin < end;) {
        const int64_t length = std::min(left, w.sizes[0] - place.index[0]);
        place.advance(w, length);
        left -= length;
      }
    }
    if (w.stream) finish_streaming();
  });
}

// ---- Tiles ------------------------------------------------------------------------------------------------

/// Columns are the output's innermost dimension. Rows are all dimensions along which the leading input is
/// dense, from its innermost outwards, as one; `outer` the others, from the leading input's innermost
/// outwards.
struct Tiling {
  int leading = 0;  // operand; 0: there is none
  int rows[max_rank], outer[max_rank];
  int row_dims = 0, outer_dims = 0;
  int64_t row_count = 1, outer_count = 1;
  int64_t height = tile_rows;  // rows of a tile
};

Tiling tiling_of(const Layout& w) {
  Tiling t;
  if (!w.is_run(0)) return t;
  for (int k = 1; k < w.operands && t.leading == 0; ++k) {
    if (w.is_run(k) || w.repeats(k)) continue;
    for (int64_t stride = w.element[k];;) {
      int next = 0;
      for (int d = 1; d < w.rank && next == 0; ++d) {
        if (w.strides[k][d] == stride) next = d;
      }
      if (next == 0) break;
      t.rows[t.row_dims++] = next;
      t.row_count *= w.sizes[next];
      stride *= w.sizes[next];
    }
    if (t.row_count >= 4) {
      t.leading = k;
      t.height = std::min(tile_rows, tile_row_bytes / w.element[k]);
    } else
      t = Tiling{};
  }
  if (t.leading == 0) return t;
  for (int d = 1; d < w.rank; ++d) {
    if (std::find(t.rows, t.rows + t.row_dims, d) != t.rows + t.row_dims) continue;
    t.outer[t.outer_dims++] = d;
    t.outer_count *= w.sizes[d];
  }
  std::stable_sort(t.outer, t.outer + t.outer_dims,
                   [&](int a, int b) { return w.strides[t.leading][a] < w.strides[t.leading][b]; });
  return t;
}

/// Where rows [first, first + n) begin, relative to the tile's part of the outer dimensions.
void row_offsets(const Layout& w, const Tiling& t, int64_t first, int64_t n, int64_t (*offset)[tile_rows]) {
  int64_t index[max_rank], at[most] = {};
  for (int i = 0; i < t.row_dims; ++i) {
    const int64_t size = w.sizes[t.rows[i]];
    index[i] = first % size;
    first /= size;
    for (int k = 0; k < w.operands; ++k) at[k] += index[i] * w.strides[k][t.rows[i]];
  }
  for (int64_t r = 0; r < n; ++r) {
    for (int k = 0; k < w.operands; ++k) offset[k][r] = at[k];
    for (int i = 0; i < t.row_dims; ++i) {
      const int d = t.rows[i];
      for (int k = 0; k < w.operands; ++k) at[k] += w.strides[k][d];
      if (++index[i] < w.sizes[d]) break;
      for (int k = 0; k < w.operands; ++k) at[k] -= w.sizes[d] * w.strides[k][d];
      index[i] = 0;
    }
  }
}

void transpose_tile(int64_t element, const char* from, int64_t column_stride, char* const* rows,
                    int64_t row_count, int64_t column_count) {
  const auto with = [&]<class T>(simd::Transpose<T> kernel) {
    kernel(reinterpret_cast<const T*>(from), column_stride / element, rows, row_count, column_count);
  };
  const simd::TransposeKernels& kernels = transpose.here();
  if (element == 1) return with(kernels.bytes1);
  if (element == 2) return with(kernels.bytes2);
  if (element == 4) return with(kernels.bytes4);
  with(kernels.bytes8);
}

/// The part of the columns that the next tile takes: too many streams for the hardware to foresee.
void prefetch_columns(const char* from, int64_t column_stride, int64_t columns) {
  for (int64_t c = 0; c < columns; ++c) {
    for (int64_t byte = 0; byte < tile_row_bytes; byte += 64)
      __builtin_prefetch(from + c * column_stride + byte);
  }
}

void walk_tiles(const Layout& w, const Tiling& t, RunFunction function, const void* f) {
  const int64_t column_blocks = (w.sizes[0] + tile_columns - 1) / tile_columns;
  const int64_t row_blocks = (t.row_count + t.height - 1) / t.height;
  const int64_t tile_size = std::min(w.sizes[0], tile_columns) * std::min(t.row_count, t.height);
  parallel_for(
      t.outer_count * column_blocks * row_blocks, std::max<int64_t>(1, grain / tile_size),
      [&](int64_t begin, int64_t end) {
        alignas(64) char buffers[most - 1][tile_rows * tile_columns * largest_element];
        int64_t offset[most][tile_rows];
        Run run{};
        run.stream = w.stream;
        for (int64_t tile = begin; tile < end; ++tile) {
          const int64_t row = tile % row_blocks * t.height, rows = std::min(t.height, t.row_count - row);
          const int64_t column = tile / row_blocks % column_blocks * tile_columns;
          run.n = std::min(tile_columns, w.sizes[0] - column);
          char* base[most];
          for (int k = 0; k < w.operands; ++k) base[k] = w.data[k] + column * w.strides[k][0];
          int64_t rest = tile / row_blocks / column_blocks;
          for (int i = 0; i < t.outer_dims; ++i) {
            const int64_t size = w.sizes[t.outer[i]];
            for (int k = 0; k < w.operands; ++k) base[k] += rest % size * w.strides[k][t.outer[i]];
            rest /= size;
          }
          row_offsets(w, t, row, rows, offset);

          for (int k = 1; k < w.operands; ++k) {
            run.step[k] = w.repeats(k) ? 0 : 1;
            if (w.repeats(k) || w.is_run(k)) continue;
            char* row_at[tile_rows];
            bool consecutive = true;  // dense along the rows, as the leading input is
            for (int64_t r = 0; r < rows; ++r) {
              row_at[r] = buffers[k - 1] + r * tile_columns * w.element[k];
              consecutive = consecutive && offset[k][r] == offset[k][0] + r * w.element[k];
            }
            if (consecutive) {
              if (row + 2 * rows <= t.row_count)
                prefetch_columns(base[k] + offset[k][0] + rows * w.element[k], w.strides[k][0], run.n);
              transpose_tile(w.element[k], base[k] + offset[k][0], w.strides[k][0], row_at, rows, run.n);
            } else {
              for (int64_t r = 0; r < rows; ++r)
                copy_elements(w.element[k], base[k] + offset[k][r], w.strides[k][0], row_at[r], w.element[k],
                              run.n);
            }
          }
          run.step[0] = 1;
          for (int64_t r = 0; r < rows; ++r) {
            for (int k = 0; k < w.operands; ++k) {
              const bool gathered = k > 0 && !w.repeats(k) && !w.is_run(k);
              run.at[k] =
                  gathered ? buffers[k - 1] + r * tile_columns * w.element[k] : base[k] + offset[k][r];
            }
            function(f, run);
          }
        }
        if (w.stream) finish_streaming();
      });
}

}  // namespace

void walk(const Tensor* const* operands, int count, RunFunction function, const void* f) {
  const Layout w = layout_of(operands, count);
  if (w.numel == 0) return;
  bool direct = w.is_run(0) && (w.rank == 1 || w.sizes[0] >= shortest_direct);
  for (int k = 1; k < count; ++k) direct = direct && (w.is_run(k) || w.repeats(k));
  if (direct) return walk_direct(w, function, f);
  const Tiling tiling = tiling_of(w);
  if (tiling.leading != 0 && w.sizes[0] >= 4) return walk_tiles(w, tiling, function, f);
  walk_buffered(w, function, f);
}

}  // namespace vox::cpu
