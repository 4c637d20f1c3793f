#pragma once

#include <voxgrad/core/factories.h>
#include <voxgrad/core/parallel.h>
#include <voxgrad/ops/cpu/cell_ring.h>
#include <voxgrad/ops/cpu/interleaved.h>
#include <voxgrad/ops/cpu/simd/cell_rows.h>
#include <voxgrad/ops/cpu/walk.h>

#include <algorithm>
#include <optional>
#include <vector>

// Passes along D, H and W over a tensor whose planes lie side by side; the result is dense. Each pass turns
// the cells of one axis into others.
//
// Memory holds x as (axis 0, axis 1, axis 2, planes): here axes are numbered by falling stride. A row is the
// elements of one cell of axes 0 and 1, a slice those of one cell of axis 0. Results are made row by row, and
// each pass requests the rows that it reads from the pass before. It keeps them, so that each row is made
// once: a pass along axis 1 keeps a ring of as many rows as one output reads, a pass along axis 0 a ring of
// slices. A task makes some outputs along axes 0 and 1, which are transposed into y. Rows that two tasks read
// are made twice, with the same bits.

namespace vox::cpu {

/// The order of D, H and W in memory.
struct AxisOrder {
  int64_t dim[3] = {0, 1, 2};  // of axis 0, 1, 2
  int axis[3];                 // of D, H, W

  explicit AxisOrder(const Tensor& x) {
    const auto stride = [&](int64_t d) { return x.shape()[2 + d] > 1 ? x.strides()[2 + d] : 0; };
    std::stable_sort(dim, dim + 3, [&](int64_t a, int64_t b) { return stride(a) > stride(b); });
    for (int i = 0; i < 3; ++i) axis[dim[i]] = i;
  }
};

/// Distance between slices of a buffer, in elements. The offset spreads them over the sets of the cache.
inline int64_t slice_pitch(int64_t elements) { return elements + 80; }

/// A Pass has out(), the number of cells that it makes; rows(x, y, begin, end, n), which computes outputs
/// [begin, end) of rows of n elements; and use_ring(): after that call rows() finds cell i in row i %
/// ring.size of x.
template <class T, class Pass>
class InterleavedPasses {
 public:
  /// x and y are (N, C, D, H, W); x has any strides, y is dense.
  InterleavedPasses(const Tensor& x, const Tensor& y) : x_(x), y_(y), planes_(x), memory_(x) {
    for (int i = 0; i < 3; ++i) out_.count[i] = x.shape()[2 + memory_.dim[i]];
  }
  /// The next pass along D, H or W (0, 1, 2).
  void add(int64_t dim, Pass pass) {
    Step step{std::move(pass), memory_.axis[dim], out_};
    if (!steps_.empty() && step.axis < 2) step.ring = step.pass.use_ring();
    out_.count[step.axis] = step.pass.out();
    steps_.push_back(std::move(step));
  }
  const AxisOrder& memory() const { return memory_; }

  /// Whether the passes support x: rows have no gaps, or the first pass is along axis 2.
  bool reads_rows() const {
    return steps_[0].axis == 2 || x_.shape()[2 + memory_.dim[2]] == 1 || stride(2) == planes_.side;
  }

  void run() const {
    const Cells size = size_of_task();
    const int64_t tasks[2] = {(out_.count[0] + size.count[0] - 1) / size.count[0],
                              (out_.count[1] + size.count[1] - 1) / size.count[1]};
    int64_t room = size.count[0] * slice_pitch(slice(size));
    for (size_t k = 0; k < steps_.size(); ++k) {
      int64_t most = 0;
      for (int64_t j = 0; j < out_.count[1]; j += size.count[1]) {
        const CellRange rows = rows_before(k, {j, std::min(j + size.count[1], out_.count[1])});
        most = std::max(most, rows.end - rows.begin);
      }
      room += room_of(steps_[k], most);
    }
    parallel_for(planes_.groups * tasks[0] * tasks[1], 1, [&](int64_t begin, int64_t end) {
      // A tensor, because its memory is kept for the next chunk (Note [Host memory]).
      const Tensor buffer = empty({room}, x_.options());
      for (int64_t task = begin; task < end; ++task) {
        const int64_t i = task / tasks[1] % tasks[0] * size.count[0], j = task % tasks[1] * size.count[1];
        outputs(task / tasks[1] / tasks[0], {i, std::min(i + size.count[0], out_.count[0])},
                {j, std::min(j + size.count[1], out_.count[1])}, buffer);
      }
    });
  }

 private:
  /// Numbers of cells along the axes of memory.
  struct Cells {
    int64_t count[3];
  };
  struct Step {
    Pass pass;
    int axis;
    Cells in;
    std::optional<CellRing> ring = {};  // of rows or slices that the steps before have made
  };
  /// The rows that a step keeps in its ring.
  struct Kept {
    T* rows;
    CellRange slice;   // the rows of a slice of a ring along axis 0
    int64_t of = -1;   // the slice to which the rows of a ring along axis 1 belong
    int64_t made = 0;  // cells of the ring
  };

  int64_t stride(int axis) const { return x_.strides()[2 + memory_.dim[axis]]; }  // of x
  int64_t row(const Cells& cells) const { return cells.count[2] * planes_.side; }
  int64_t slice(const Cells& cells) const { return cells.count[1] * row(cells); }
  int64_t room_of(const Step& step, int64_t rows) const {
    if (step.axis == 2) return row(step.in);
    if (!step.ring) return 0;
    return step.ring->size * (step.axis == 1 ? row(step.in) : slice_pitch(rows * row(step.in)));
  }

  /// A task is some rows of many slices. So the task's part of a slice stays in the second-level cache until
  /// the next outputs along axis 0 have read it, and there is work for all threads. No bits depend on the
  /// size.
  Cells size_of_task() const {
    Cells cells = out_;  // of the slices that the pass along axis 0 combines, if there is one
    for (const Step& step : steps_) {
      if (step.axis == 0) cells = step.in;
    }
    constexpr int64_t size = sizeof(T), part = (128 << 10) / size, results = (2 << 20) / size;
    int64_t rows = std::clamp<int64_t>(part * out_.count[1] / slice(cells), 1, out_.count[1]);
    const auto tasks = [&] { return planes_.groups * out_.count[1] / rows; };
    while (rows > 4 && tasks() < 2 * get_num_threads()) rows /= 2;
    int64_t slices = std::max<int64_t>(16, results / (rows * row(out_)));
    slices =
        std::min({slices, out_.count[0], std::max<int64_t>(16, out_.count[0] * tasks() / get_num_threads())});
    return {{slices, rows, out_.count[2]}};
  }

  /// The rows of each slice that step k, along axis 0, must make for these rows of results.
  CellRange rows_before(size_t k, CellRange rows) const {
    for (size_t later = k + 1; later < steps_.size(); ++later) {
      const Step& step = steps_[later];
      if (step.axis != 1) continue;
      CellRange cells{step.in.count[1], 0};
      for (int64_t j = rows.begin; j < rows.end; ++j) {
        const CellRange& read = step.ring->reads[static_cast<size_t>(j)];
        if (read.begin == read.end) continue;
        cells = {std::min(cells.begin, read.begin), std::max(cells.end, read.end)};
      }
      return {std::min(cells.begin, cells.end), cells.end};
    }
    return rows;
  }

  /// Makes outputs `slices` of axis 0 and `rows` of axis 1.
  void outputs(int64_t group, CellRange slices, CellRange rows, const Tensor& buffer) const {
    const int64_t channels = planes_.has_channels ? 1 : x_.shape()[1];
    const int64_t n = group / channels, c = group % channels;
    const int64_t pitch = slice_pitch((rows.end - rows.begin) * row(out_));
    const T* const x = detail::ptr<T>(x_) + n * x_.strides()[0] + c * x_.strides()[1];
    T* const results = detail::mutable_ptr<T>(buffer);
    Kept kept[3];
    T* room = results + (slices.end - slices.begin) * pitch;
    for (size_t k = 0; k < steps_.size(); ++k) {
      kept[k] = {.rows = room, .slice = rows_before(k, rows)};
      room += room_of(steps_[k], kept[k].slice.end - kept[k].slice.begin);
    }
    for (int64_t i = slices.begin; i < slices.end; ++i) {
      for (int64_t j = rows.begin; j < rows.end; ++j) {
        make(x, kept, steps_.size() - 1, i, j,
             results + (i - slices.begin) * pitch + (j - rows.begin) * row(out_));
      }
    }
    copy_to_y(buffer, pitch, n, c, slices, rows);
  }

  /// Writes row (i, j) of the output of step k to `to`.
  void make(const T* x, Kept* kept, size_t k, int64_t i, int64_t j, T* to) const {
    const Step& step = steps_[k];
    const int64_t in_row = row(step.in);
    Kept& own = kept[k];
    if (step.axis == 2) {
      simd::CellRows<T> cells{x + i * stride(0) + j * stride(1), stride(2)};
      if (k > 0) make(x, kept, k - 1, i, j, own.rows), cells = {own.rows, planes_.side};
      step.pass.rows(cells, to, 0, step.pass.out(), planes_.side);
    } else if (step.axis == 1) {
      if (step.ring) {
        if (own.of != i) own.of = i, own.made = 0;
        const CellRange reads = step.ring->reads[static_cast<size_t>(j)];
        for (own.made = std::max(own.made, reads.begin); own.made < reads.end; ++own.made)
          make(x, kept, k - 1, i, own.made, own.rows + own.made % step.ring->size * in_row);
      }
      simd::CellRows<T> cells{x + i * stride(0), stride(1)};
      if (step.ring) cells = {own.rows, in_row};
      step.pass.rows(cells, to, j, j + 1, in_row);
    } else {
      simd::CellRows<T> cells{x + j * stride(1), stride(0)};
      if (step.ring) {
        const CellRange reads = step.ring->reads[static_cast<size_t>(i)], rows = own.slice;
        const int64_t pitch = slice_pitch((rows.end - rows.begin) * in_row);
        for (own.made = std::max(own.made, reads.begin); own.made < reads.end; ++own.made) {
          T* const made = own.rows + own.made % step.ring->size * pitch;
          for (int64_t r = rows.begin; r < rows.end; ++r)
            make(x, kept, k - 1, own.made, r, made + (r - rows.begin) * in_row);
        }
        cells = {own.rows + (j - rows.begin) * in_row, pitch};
      }
      step.pass.rows(cells, to, i, i + 1, in_row);
    }
  }

  /// Copies the results, which are at the beginning of the buffer, to y.
  void copy_to_y(const Tensor& buffer, int64_t pitch, int64_t n, int64_t c, CellRange slices,
                 CellRange rows) const {
    const Shape& to = y_.strides();
    Shape shape{planes_.has_batch ? x_.shape()[0] : 1, planes_.has_channels ? x_.shape()[1] : 1, 0, 0, 0};
    Shape strides{x_.strides()[0], x_.strides()[1], 0, 0, 0};
    int64_t at = y_.impl()->offset + n * to[0] + c * to[1];
    const CellRange cells[3] = {slices, rows, {0, out_.count[2]}};
    const int64_t steps[3] = {pitch, row(out_), planes_.side};
    for (int i = 0; i < 3; ++i) {
      const int64_t d = 2 + memory_.dim[i];
      shape[d] = cells[i].end - cells[i].begin;
      strides[d] = steps[i];
      at += cells[i].begin * to[d];
    }
    // If x is larger than the cache, no part of y remains in it.
    const bool stream = x_.numel() * static_cast<int64_t>(sizeof(T)) >= stream_bytes;
    copy_streaming(detail::alias(buffer, buffer.impl()->offset, shape, strides),
                   detail::alias(y_, at, shape, to), stream);
  }

  const Tensor &x_, &y_;
  InterleavedPlanes planes_;
  AxisOrder memory_;
  std::vector<Step> steps_;
  Cells out_;
};

}  // namespace vox::cpu
