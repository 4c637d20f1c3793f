// Tiles of operands that are dense along different dimensions (Note [Walks]).

#include <voxgrad/core/factories.h>
#include <voxgrad/core/parallel.h>
#include <voxgrad/ops/cpu/isa.h>
#include <voxgrad/ops/cpu/simd/transpose.h>
#include <voxgrad/ops/cpu/walk_layout.h>

#include <algorithm>

namespace vox::cpu {
namespace {

constexpr ByIsa transpose = VOX_BY_ISA(transpose_kernels);

constexpr int most = Run::max_operands;
constexpr int64_t most_rows = 512;

bool is_gathered(const Layout& w, int k) { return k > 0 && !w.repeats(k) && !w.is_run(k); }

/// Columns are the output's innermost dimension, and the next one (`fold` of it at a time) if that one is
/// short and all operands that need no transposition are dense, or repeat, over both. Rows are all other
/// dimensions along which the leading input is dense, from its innermost outwards, as one; `outer` the rest,
/// from the leading input's innermost outwards.
struct Tiling {
  int leading = 0;  // operand; 0: there is none
  bool folds = false;
  int rows[max_rank], outer[max_rank];
  int row_dims = 0, outer_dims = 0;
  int64_t row_count = 1, outer_count = 1;
  int64_t height = 0, width = 0, fold = 1;  // rows of a tile, columns of one dimension and of the other
};

/// The dimensions along which operand k is dense, but for the first and `without`.
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

  // A buffer fits the first cache level, and one of a folded tile the second, with a few others; of each
  // column a tile takes some cache lines.
  constexpr int64_t tile_bytes = 32 << 10, folded_tile_bytes = 64 << 10, column_bytes = 256;
  const int64_t size = *std::max_element(w.element, w.element + w.operands);
  const auto low = [&] { return std::min(t.row_count, column_bytes / w.element[t.leading]); };
  int64_t elements = tile_bytes / size;
  if (w.rank > 1 && 2 * w.sizes[0] <= elements / low()) {
    t.folds = true;
    for (int k = 0; k < w.operands; ++k)
      t.folds = t.folds && (is_gathered(w, k) || w.strides[k][1] == w.strides[k][0] * w.sizes[0]);
    const int64_t before = t.row_count;
    if (t.folds) find_rows(w, t.leading, 1, t);
    if (t.row_count < std::min<int64_t>(16, before)) {  // nothing gained
      t.folds = false;
      find_rows(w, t.leading, 0, t);
    }
  }
  if (t.folds) elements = folded_tile_bytes / size;
  t.width = std::min(w.sizes[0], elements / low());
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

/// Where rows [first, first + n) begin, relative to the tile's part of the outer dimensions.
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

/// Into the cache, where the hardware would not foresee it. Inline in any case: a function that does nothing
/// but prefetch is one without effect to GCC, and its calls are dropped.
[[gnu::always_inline]] inline void prefetch(const char* from, int64_t bytes) {
  for (int64_t byte = 0; byte < bytes; byte += 64) __builtin_prefetch(from + byte);
}

int64_t blocks(int64_t n, int64_t size) { return (n + size - 1) / size; }

/// What one chunk needs for its tiles.
class TileWalk {
 public:
  TileWalk(const Layout& w, const Tiling& t) : w_(w), t_(t) {
    int64_t bytes = 0;
    for (int k = 0; k < w.operands; ++k) {
      run_.step[k] = w.repeats(k) ? 0 : 1;
      if (!is_gathered(w, k)) continue;
      buffer_[k] = bytes;
      bytes += (t.height * pitch(k) + 63) / 64 * 64;  // aligned for any dtype
    }
    run_.stream = w.stream;
    buffers_ = empty({bytes}, {DType::u8, Device::cpu()});
  }

  /// Tile number `tile`; the next one's memory is on its way into the cache then, if `next`.
  void run(int64_t tile, bool next, RunFunction function, const void* f) {
    const Part part = part_of(tile), after = next ? part_of(tile + 1) : Part{};
    row_offsets(w_, t_, part.row, part.rows, offset_);
    for (int k = 1; k < w_.operands; ++k) {
      if (is_gathered(w_, k)) gather(part, k);
    }
    run_.n = part.columns * part.fold;
    ahead_column_ = ahead_fold_ = 0;
    for (int64_t r = 0; r < part.rows; ++r) {
      for (int k = 0; k < w_.operands; ++k) {
        run_.at[k] = is_gathered(w_, k) ? buffered_row(k, r) : part.base[k] + offset_[k][r];
        if (k > 0 && run_.step[k] == 1 && !is_gathered(w_, k) && r + 2 < part.rows)
          prefetch(part.base[k] + offset_[k][r + 2], run_.n * w_.element[k]);
      }
      function(f, run_);
      if (next) prefetch_share(after, part.rows);
    }
  }

 private:
  /// Where a tile lies; base: of its first column, rows not counted.
  struct Part {
    int64_t row, rows, columns, fold;
    char* base[most];
  };

  Part part_of(int64_t tile) const {
    const auto next = [&tile](int64_t n, int64_t size) {  // where its part of n begins
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

  /// A share, one of `shares`, of what the leading input has in that tile, where the last one left off.
  [[gnu::always_inline]] void prefetch_share(const Part& part, int64_t shares) {
    const int k = t_.leading;
    const char* from = part.base[k] + part.row * w_.element[k];
    for (int64_t n = blocks(part.columns * part.fold, shares); n > 0 && ahead_fold_ < part.fold; --n) {
      prefetch(from + ahead_column_ * w_.strides[k][0] + ahead_fold_ * w_.strides[k][1],
               part.rows * w_.element[k]);
      if (++ahead_column_ == part.columns) ahead_column_ = 0, ++ahead_fold_;
    }
  }

  /// From row to row of a buffer; a cache line more, so that not all rows lie in the same sets of the cache.
  int64_t pitch(int k) const { return t_.width * t_.fold * w_.element[k] + 64; }
  char* buffered_row(int k, int64_t r) const {
    return reinterpret_cast<char*>(detail::mutable_ptr<uint8_t>(buffers_)) + buffer_[k] + r * pitch(k);
  }

  void gather(const Part& part, int k) {
    bool consecutive = true;  // dense along the rows, as the leading input is
    for (int64_t r = 0; r < part.rows; ++r)
      consecutive = consecutive && offset_[k][r] == offset_[k][0] + r * w_.element[k];
    for (int64_t i = 0; i < part.fold; ++i) {
      const char* from = part.base[k] + i * w_.strides[k][1];
      char* row_at[most_rows];
      for (int64_t r = 0; r < part.rows; ++r)
        row_at[r] = buffered_row(k, r) + i * part.columns * w_.element[k];
      if (consecutive) {
        transpose_tile(w_.element[k], from + offset_[k][0], w_.strides[k][0], row_at, part.rows,
                       part.columns);
        continue;
      }
      for (int64_t r = 0; r < part.rows; ++r)
        copy_elements(w_.element[k], from + offset_[k][r], w_.strides[k][0], row_at[r], w_.element[k],
                      part.columns);
    }
  }

  const Layout& w_;
  const Tiling& t_;
  Run run_{};
  Tensor buffers_;
  int64_t buffer_[most] = {};                  // where an operand's begins
  int64_t offset_[most][most_rows];            // of a tile's rows
  int64_t ahead_column_ = 0, ahead_fold_ = 0;  // of the next tile, to be prefetched
};

}  // namespace

bool walk_tiles(const Layout& w, RunFunction function, const void* f) {
  const Tiling t = tiling_of(w);
  if (t.leading == 0 || w.sizes[0] < 4) return false;
  const int64_t tiles = t.outer_count * (t.folds ? blocks(w.sizes[1], t.fold) : 1) *
                        blocks(w.sizes[0], t.width) * blocks(t.row_count, t.height);
  const int64_t grain = std::max<int64_t>(1, walk_grain / (t.width * t.fold * t.height));
  parallel_for(tiles, grain, [&](int64_t begin, int64_t end) {
    TileWalk walk(w, t);
    for (int64_t tile = begin; tile < end; ++tile) walk.run(tile, tile + 1 < end, function, f);
    if (w.stream) finish_streaming();
  });
  return true;
}

}  // namespace vox::cpu
