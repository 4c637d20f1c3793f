// Tiles of operands that are dense along different dimensions (Note [Walks]).

#include <voxgrad/core/factories.h>
#include <voxgrad/core/parallel.h>
#include <voxgrad/ops/cpu/isa.h>
#include <voxgrad/ops/cpu/simd/memory.h>
#include <voxgrad/ops/cpu/walk_layout.h>

#include <algorithm>

namespace vox::cpu {
namespace {

constexpr ByIsa transpose = VOX_BY_ISA(transpose_kernels);

constexpr int most = Run::max_operands;
constexpr int64_t most_rows = 512, ahead_bytes = 4096;

bool is_gathered(const Layout& w, int k) { return k > 0 && !w.repeats(k) && !w.is_run(k); }

/// The columns of a tile run along the output's innermost dimension. If that is short, and all operands that
/// need no transposition are dense, or repeat, over it and the next one, a tile also takes `fold` indices of
/// the next one. The rows run along all other dimensions along which the leading input is dense, innermost
/// first, as one. `outer` lists the remaining dimensions, also from the leading input's innermost outwards.
struct Tiling {
  int leading = 0;  // number of the operand; 0: none
  bool folds = false;
  int rows[max_rank], outer[max_rank];
  int row_dims = 0, outer_dims = 0;
  int64_t row_count = 1, outer_count = 1;
  int64_t height = 0, width = 0, fold = 1;  // of a tile: rows, and columns of both dimensions
};

/// Finds the dimensions along which operand k is dense, except the first and `without`.
void find_rows(const Layout& w, int k, int without, Tiling& t) {
  t.row_dims = 0;
  t.row_count = 1;
  for (int64_t stride = w.element[k];;) {
    int next = 0;
    for (int d = 1; d < w.rank && next == 0; ++d) {
      if (d != without && w.strides[k][d] == stride) next = d;
    }
    if (next == 0) return;
    t.rows[t.row_dims++] = next;
    t.row_count *= w.sizes[next];
    stride *= w.sizes[next];
  }
}

Tiling tiling_of(const Layout& w) {
  Tiling t;
  if (!w.is_run(0)) return t;
  for (int k = 1; k < w.operands && t.leading == 0; ++k) {
    if (!is_gathered(w, k)) continue;
    find_rows(w, k, 0, t);
    if (t.row_count >= 4) t.leading = k;
  }
  if (t.leading == 0) return t;

  // A few buffers fit the second-level cache. A tile takes several cache lines of each column, because
  // reading much of one page is cheaper than a little of many pages.
  constexpr int64_t tile_bytes = 128 << 10, column_bytes = 512, row_bytes = 1024;
  const int64_t size = *std::max_element(w.element, w.element + w.operands);
  const auto low = [&] { return std::min(t.row_count, column_bytes / w.element[t.leading]); };
  const int64_t elements = tile_bytes / size;
  if (w.rank > 1 && 2 * w.sizes[0] <= elements / low()) {
    t.folds = true;
    for (int k = 0; k < w.operands; ++k)
      t.folds = t.folds && (is_gathered(w, k) || w.strides[k][1] == w.strides[k][0] * w.sizes[0]);
    const int64_t before = t.row_count;
    if (t.folds) find_rows(w, t.leading, 1, t);
    if (t.row_count < std::min<int64_t>(16, before)) {  // no gain
      t.folds = false;
      find_rows(w, t.leading, 0, t);
    }
  }
  // A folded tile has whole runs of the innermost dimension, because operands in place are dense along them.
  t.width = t.folds ? w.sizes[0] : std::min({w.sizes[0], elements / low(), row_bytes / size});
  if (t.folds) t.fold = std::min(w.sizes[1], elements / low() / t.width);
  t.height = std::min({t.row_count, elements / (t.width * t.fold), most_rows});

  for (int d = t.folds ? 2 : 1; d < w.rank; ++d) {
    if (std::find(t.rows, t.rows + t.row_dims, d) != t.rows + t.row_dims) continue;
    t.outer[t.outer_dims++] = d;
    t.outer_count *= w.sizes[d];
  }
  std::stable_sort(t.outer, t.outer + t.outer_dims,
                   [&](int a, int b) { return w.strides[t.leading][a] < w.strides[t.leading][b]; });
  return t;
}

/// Computes where rows [first, first + n) begin, relative to the tile's part of the outer dimensions.
void row_offsets(const Layout& w, const Tiling& t, int64_t first, int64_t n, int64_t (*offset)[most_rows]) {
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

void transpose_tile(int64_t element, const char* from, int64_t column_stride, char* to, int64_t pitch,
                    int64_t rows, int64_t columns) {
  const auto with = [&]<class T>(simd::Transpose<T> kernel) {
    kernel(reinterpret_cast<const T*>(from), column_stride / element, columns, rows, reinterpret_cast<T*>(to),
           pitch / element);
  };
  const simd::TransposeKernels& kernels = transpose.here();
  if (element == 1) return with(kernels.bytes1);
  if (element == 2) return with(kernels.bytes2);
  if (element == 4) return with(kernels.bytes4);
  with(kernels.bytes8);
}

/// Prefetches into the second-level cache, where the hardware does not foresee the reads. always_inline,
/// because GCC treats a function that only prefetches as one without effect and drops its calls.
[[gnu::always_inline]] inline void prefetch(const char* from, int64_t bytes) {
  for (int64_t byte = 0; byte < bytes; byte += 64) __builtin_prefetch(from + byte, 0, 2);
}

int64_t blocks(int64_t n, int64_t size) { return (n + size - 1) / size; }

/// The position of a tile. `base` points to its first column, in row 0.
struct Part {
  int64_t row, rows, columns, fold;
  char* base[most];
};

/// The part of the leading input in a tile, cut into units of a few cache lines of some columns. While one
/// unit is transposed, the next one is prefetched.
class Units {
 public:
  Units(const Layout& w, const Tiling& t, const Part& part, char* to, int64_t pitch)
      : part_(part),
        from_(part.base[t.leading] + part.row * w.element[t.leading]),
        to_(to),
        element_(w.element[t.leading]),
        column_stride_(w.strides[t.leading][0]),
        fold_stride_(w.strides[t.leading][1]),
        pitch_(pitch),
        unit_rows_(std::min(unit_column / element_, part.rows)),
        unit_columns_(std::max(unit_bytes / (unit_rows_ * element_) / 16 * 16, int64_t{16})),
        down_(blocks(part.rows, unit_rows_)),
        across_(blocks(part.columns, unit_columns_)) {
    prefetch_unit(unit(0));
  }
  const Part& part() const { return part_; }
  int64_t count() const { return down_ * across_ * part_.fold; }

  /// Transposes all units below number `end` that are not yet done.
  [[gnu::always_inline]] void transpose_until(int64_t end) {
    for (; done_ < end; ++done_) {
      const Unit u = unit(done_);
      if (done_ + 1 < count()) prefetch_unit(unit(done_ + 1));
      transpose_tile(element_, u.from, column_stride_, u.to, pitch_, u.rows, u.columns);
    }
  }

 private:
  static constexpr int64_t unit_bytes = 4096, unit_column = 256;
  struct Unit {
    const char* from;
    char* to;
    int64_t rows, columns;
  };

  /// Units are numbered down the columns first, which is the order of memory.
  Unit unit(int64_t number) const {
    const int64_t row = number % down_ * unit_rows_, column = number / down_ % across_ * unit_columns_,
                  fold = number / down_ / across_;
    return {from_ + row * element_ + column * column_stride_ + fold * fold_stride_,
            to_ + row * pitch_ + (fold * part_.columns + column) * element_,
            std::min(unit_rows_, part_.rows - row), std::min(unit_columns_, part_.columns - column)};
  }
  [[gnu::always_inline]] void prefetch_unit(const Unit& u) const {
    for (int64_t c = 0; c < u.columns; ++c) prefetch(u.from + c * column_stride_, u.rows * element_);
  }

  Part part_;
  const char* from_;
  char* to_;
  int64_t element_, column_stride_, fold_stride_, pitch_, unit_rows_, unit_columns_, down_, across_,
      done_ = 0;
};

/// The buffers of one chunk. While the kernel works on a tile row by row, the leading input of the next tile
/// is transposed into the other of two buffers. So reading and writing of memory overlap instead of
/// alternating.
class TileWalk {
 public:
  TileWalk(const Layout& w, const Tiling& t) : w_(w), t_(t) {
    int64_t bytes = 0;
    for (int k = 0; k < w.operands; ++k) {
      run_.step[k] = w.repeats(k) ? 0 : 1;
      if (!is_gathered(w, k)) continue;
      buffer_[k] = bytes;
      bytes += (k == t.leading ? 2 : 1) * buffer_bytes(k);
    }
    run_.stream = w.stream;
    buffers_ = empty({bytes}, {DType::u8, Device::cpu()});
  }

  /// Walks tiles [begin, end).
  void run(int64_t begin, int64_t end, RunFunction function, const void* f) {
    Units next = units_of(begin);
    next.transpose_until(next.count());
    for (int64_t tile = begin; tile < end; ++tile) {
      const Part part = next.part();
      row_offsets(w_, t_, part.row, part.rows, offset_);
      for (int k = 1; k < w_.operands; ++k) {
        if (is_gathered(w_, k) && k != t_.leading) gather(part, k);
      }
      const bool has_next = tile + 1 < end;
      if (has_next) next = units_of(tile + 1);
      run_.n = part.columns * part.fold;
      const int64_t rows_ahead = blocks(ahead_bytes, run_.n * w_.element[0]);
      for (int64_t r = 0; r < part.rows; ++r) {
        for (int k = 0; k < w_.operands; ++k) {
          run_.at[k] = is_gathered(w_, k) ? buffer(k, tile) + r * pitch(k) : part.base[k] + offset_[k][r];
          if (k > 0 && run_.step[k] == 1 && !is_gathered(w_, k) && r + rows_ahead < part.rows)
            prefetch(part.base[k] + offset_[k][r + rows_ahead], run_.n * w_.element[k]);
        }
        function(f, run_);
        if (has_next) next.transpose_until(next.count() * (r + 1) / part.rows);
      }
    }
  }

 private:
  Part part_of(int64_t tile) const {
    const auto next = [&tile](int64_t n, int64_t size) {  // where the tile begins in the next dimension, of n
      const int64_t count = blocks(n, size), at = tile % count * size;
      tile /= count;
      return at;
    };
    const int64_t row = next(t_.row_count, t_.height), column = next(w_.sizes[0], t_.width);
    const int64_t fold = t_.folds ? next(w_.sizes[1], t_.fold) : 0;
    Part part{row,
              std::min(t_.height, t_.row_count - row),
              std::min(t_.width, w_.sizes[0] - column),
              t_.folds ? std::min(t_.fold, w_.sizes[1] - fold) : 1,
              {}};
    for (int k = 0; k < w_.operands; ++k)
      part.base[k] = w_.data[k] + column * w_.strides[k][0] + fold * w_.strides[k][1];
    for (int i = 0; i < t_.outer_dims; ++i) {
      const int64_t at = next(w_.sizes[t_.outer[i]], 1);
      for (int k = 0; k < w_.operands; ++k) part.base[k] += at * w_.strides[k][t_.outer[i]];
    }
    return part;
  }
  Units units_of(int64_t tile) const {
    return Units(w_, t_, part_of(tile), buffer(t_.leading, tile), pitch(t_.leading));
  }

  /// Bytes from row to row of a buffer: one cache line more than a row, so that rows use different cache
  /// sets.
  int64_t pitch(int k) const { return t_.width * t_.fold * w_.element[k] + 64; }
  int64_t buffer_bytes(int k) const {
    return (t_.height * pitch(k) + 63) / 64 * 64;
  }  // aligned for any dtype
  char* buffer(int k, int64_t tile) const {
    return reinterpret_cast<char*>(detail::mutable_ptr<uint8_t>(buffers_)) + buffer_[k] +
           (k == t_.leading ? tile % 2 * buffer_bytes(k) : 0);
  }

  /// Gathers an input other than the leading one.
  void gather(const Part& part, int k) {
    bool consecutive = true;  // whether it is dense along the rows, like the leading input
    for (int64_t r = 0; r < part.rows; ++r)
      consecutive = consecutive && offset_[k][r] == offset_[k][0] + r * w_.element[k];
    for (int64_t i = 0; i < part.fold; ++i) {
      const char* from = part.base[k] + i * w_.strides[k][1];
      char* const to = buffer(k, 0) + i * part.columns * w_.element[k];
      if (consecutive) {
        transpose_tile(w_.element[k], from + offset_[k][0], w_.strides[k][0], to, pitch(k), part.rows,
                       part.columns);
        continue;
      }
      for (int64_t r = 0; r < part.rows; ++r)
        copy_elements(w_.element[k], from + offset_[k][r], w_.strides[k][0], to + r * pitch(k), w_.element[k],
                      part.columns);
    }
  }

  const Layout& w_;
  const Tiling& t_;
  Run run_{};
  Tensor buffers_;
  int64_t buffer_[most] = {};        // where an operand's buffer begins
  int64_t offset_[most][most_rows];  // of a tile's rows
};

}  // namespace

bool walk_tiles(const Layout& w, RunFunction function, const void* f) {
  const Tiling t = tiling_of(w);
  if (t.leading == 0 || w.sizes[0] < 4) return false;
  const int64_t tiles = t.outer_count * (t.folds ? blocks(w.sizes[1], t.fold) : 1) *
                        blocks(w.sizes[0], t.width) * blocks(t.row_count, t.height);
  // Several tiles per chunk, because the first tile's reads overlap no writes.
  const int64_t grain =
      std::max(walk_grain / (t.width * t.fold * t.height), std::clamp<int64_t>(tiles / 32, 1, 8));
  parallel_for(tiles, grain, [&](int64_t begin, int64_t end) {
    TileWalk(w, t).run(begin, end, function, f);
    if (w.stream) finish_streaming();
  });
  return true;
}

}  // namespace vox::cpu
