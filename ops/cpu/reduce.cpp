#include <voxgrad/core/factories.h>
#include <voxgrad/core/parallel.h>
#include <voxgrad/ops/cpu/isa.h>
#include <voxgrad/ops/cpu/simd/reduce.h>
#include <voxgrad/ops/cpu/tasks.h>
#include <voxgrad/ops/elementwise_formulas.h>
#include <voxgrad/ops/layer_kernels.h>
#include <voxgrad/ops/layout.h>
#include <voxgrad/ops/reduce_ops.h>
#include <voxgrad/ops/reduce_plan.h>

#include <algorithm>
#include <array>
#include <limits>
#include <type_traits>

// Reductions on the CPU.
//
// Order. A row is cut into blocks of 1024 elements. In a block, element i goes to lane i % 16, and the 16
// lanes are combined in a binary tree. The results of the blocks form a row again, which is reduced in the
// same way. So the row's length determines the order of the additions, and the lanes fit vector registers.
//
// Memory. Dimensions are walked as they lie in memory, largest stride first, separately for reduced and kept
// ones. So a permuted tensor is summed in another order than its dense copy. (argmax and argmin, which count
// elements, keep the logical order.) A dense block is read in place; any other is first gathered into a
// buffer. If no block is dense, the whole tensor is copied first. Rows may lie side by side: the elements of
// a row are far apart, and their neighbours belong to other rows. Then up to 1024 rows are reduced together,
// in the same order: every row has its own lanes and tree, whatever the number of rows and the order in which
// they are read. If a short reduced dimension is innermost, then kept ones, then more reduced ones, the outer
// reduced dimensions are reduced first, and then the short one.
//
// Work. A task is a block of one row, or of up to 1024 rows. It reads each element once.

namespace vox::cpu {
namespace {

using detail::in_order;
using detail::lift;
using detail::RowView;

constexpr int64_t block = reduce_block_size;
constexpr int64_t lanes = 16;
constexpr int64_t tile = 1024;            // rows that are reduced together: 4 KiB of neighbours
constexpr int64_t narrow = 256;           // with fewer rows, memory is read in its order
constexpr int64_t task_elements = 32768;  // at least so many are worth a task

constexpr ByIsa kernels = VOX_BY_ISA(reduce_kernels);

/// The instruction set's loops for an Op; null if it has none.
template <class Op>
const simd::ReduceOf<typename Op::Acc>* kernels_of() {
  using T = typename Op::Acc;
  constexpr bool is_sum =
      std::is_same_v<Op, detail::SumOp<T, false>> || std::is_same_v<Op, detail::SumOp<T, true>>;
  constexpr bool is_max = std::is_same_v<Op, detail::ExtremumOp<T, true>>;
  if constexpr (!std::is_floating_point_v<T>) {
    return nullptr;
  } else {
    const simd::ReductionsOf<T>& k = kernels.of<T>();
    return is_sum ? &k.sum : is_max ? &k.max : &k.min;
  }
}
template <class Op>
inline constexpr bool has_kernels = std::is_floating_point_v<typename Op::Acc>;

/// Walks the tree over the lanes that n elements fill. combine(other, count) must combine lanes other, other
/// + 1, ... into the first `count` lanes.
template <class Combine>
void combine_lanes(int64_t n, Combine combine) {
  for (int64_t half = lanes / 2, used = std::min(n, lanes); half > 0; half /= 2) {
    if (used > half) combine(half, used - half);
    used = std::min(used, half);
  }
}

/// Reduces one dense block of elements number first, first + 1, ... of their row.
template <class Op, class In>
typename Op::Acc reduce_block(const In* x, int64_t n, int64_t first) {
  using Acc = typename Op::Acc;
  if constexpr (has_kernels<Op>) return kernels_of<Op>()->block(x, n);
  std::array<Acc, lanes> lane;
  lane.fill(Op::init());
  int64_t i = 0;
  for (; i + lanes <= n; i += lanes) {
#pragma GCC unroll 1  // if unrolled first, the choice of an extremum is not vectorised
    for (int64_t j = 0; j < lanes; ++j) lane[j] = Op::combine(lane[j], lift<Op>(x[i + j], first + i + j));
  }
  for (int64_t j = 0; i + j < n; ++j) lane[j] = Op::combine(lane[j], lift<Op>(x[i + j], first + i + j));
  combine_lanes(n, [&](int64_t other, int64_t count) {
    for (int64_t j = 0; j < count; ++j) lane[j] = Op::combine(lane[j], lane[other + j]);
  });
  return lane[0];
}

/// Cuts elements [first, first + n) of a row into pieces that are contiguous in the innermost reduced
/// dimension, and calls f(position, offset, count) for each; `position` counts from 0.
template <class F>
void for_pieces(const RowView& v, int64_t first, int64_t n, F f) {
  const int64_t inner = v.reduced.back();
  for (int64_t at = 0; at < n;) {
    const int64_t skip = (first + at) % inner;
    const int64_t count = std::min(inner - skip, n - at);
    f(at, detail::offset_of(v.reduced, v.reduced_strides, first + at), count);
    at += count;
  }
}

/// Reduces one block of one row, gathered unless it is dense.
template <class Op, class T>
typename Op::Acc reduce_row(const RowView& v, const T* row, int64_t first, int64_t n) {
  const int64_t stride = v.reduced_strides.back();
  if (stride == 1 && first % v.reduced.back() + n <= v.reduced.back())
    return reduce_block<Op>(row + detail::offset_of(v.reduced, v.reduced_strides, first), n, first);
  std::array<T, block> buffer;
  for_pieces(v, first, n, [&](int64_t at, int64_t offset, int64_t count) {
    for (int64_t i = 0; i < count; ++i) buffer[at + i] = row[offset + i * stride];
  });
  return reduce_block<Op>(buffer.data(), n, first);
}

/// Reduces one block of up to `tile` rows that lie side by side, all at once, with the lanes and tree of
/// reduce_block. Wide tiles walk the tree depth first, so that few streams of memory are read at a time and
/// few intermediate results are kept. Narrow ones read memory in its order.
template <class Op, class T>
class TileReduction {
 public:
  using Acc = typename Op::Acc;

  /// Takes elements [first, first + n) of the `width` rows that begin at `rows`.
  TileReduction(const RowView& v, const T* rows, int64_t width, int64_t first, int64_t n)
      : width_(width), first_(first), n_(n) {
    const int64_t stride = v.reduced_strides.back();
    for_pieces(v, first, n, [&](int64_t at, int64_t offset, int64_t count) {
      for (int64_t i = 0; i < count; ++i) element_[at + i] = rows + offset + i * stride;
    });
    if (width < narrow)
      lane_by_lane();
    else
      node(0, 1, 0);
  }
  const Acc& operator[](int64_t row) const { return results_[row]; }

 private:
  static constexpr int levels = 5;  // 16 lanes: 1, 2, 4, 8, 16
  static_assert(lanes * narrow <= levels * tile);

  void lane_by_lane() {
    int64_t i = 0;
    if constexpr (has_kernels<Op>) {
      std::array<const T*, block / lanes> groups, ahead;  // elements of all lanes, in their order
      int64_t count = 0;
      for (; is_dense(i); i += lanes) groups[count++] = element_[i];
      constexpr int64_t at_once = 4;  // groups that combine() reads side by side
      for (int64_t g = 0; g < count; ++g) ahead[g] = groups[g] + std::min(count, at_once) * lanes * width_;
      if (count > 0)
        kernels_of<Op>()->combine(results_.data(), groups.data(), count, lanes * width_, true, ahead.data());
    }
    for (; i < n_; ++i) add_element(results_.data() + i % lanes * width_, i, i < lanes);
    combine_lanes(n_, [&](int64_t other, int64_t count) {
      combine(results_.data(), results_.data() + other * width_, count * width_);
    });
  }

  /// Combines lanes j, j + step, j + 2 step, ... into results_ at that level.
  void node(int64_t j, int64_t step, int level) {
    if (step == lanes) return lane(j, results_.data() + level * tile);
    node(j, 2 * step, level);
    if (j + step >= std::min(n_, lanes)) return;
    node(j + step, 2 * step, level + 1);
    combine(results_.data() + level * tile, results_.data() + (level + 1) * tile, width_);
  }

  /// Whether elements i, i + 1, ..., one per lane, are contiguous for all rows together.
  bool is_dense(int64_t i) const {
    bool dense = i + lanes <= n_;
    for (int64_t j = 1; dense && j < lanes; ++j) dense = element_[i + j] == element_[i] + j * width_;
    return dense;
  }

  static void combine(Acc* into, const Acc* other, int64_t n) {
    if constexpr (has_kernels<Op>) {
      kernels_of<Op>()->combine(into, &other, 1, n, false, &other);
    } else {
      for (int64_t c = 0; c < n; ++c) into[c] = Op::combine(into[c], other[c]);
    }
  }

  void add_element(Acc* into, int64_t i, bool begins) const {
    const T* x = element_[i];
    if constexpr (has_kernels<Op>) {
      kernels_of<Op>()->combine(into, &x, 1, width_, begins, &x);
    } else {
      if (begins) std::fill_n(into, width_, Op::init());
      for (int64_t c = 0; c < width_; ++c) into[c] = Op::combine(into[c], Op::lift(x[c], first_ + i));
    }
  }

  /// The lane that node() visits after j: adds 1 to j with its bits reversed.
  static int64_t lane_after(int64_t j) {
    int64_t bit = lanes / 2;
    for (; bit > 0 && (j & bit) != 0; bit /= 2) j -= bit;
    return j + bit;
  }

  /// Combines elements j, j + lanes, ...
  void lane(int64_t j, Acc* into) {
    if constexpr (has_kernels<Op>) {
      const T *rows[block / lanes], *ahead[block / lanes];
      int64_t count = 0;
      for (int64_t i = j, next = lane_after(j); i < n_; i += lanes, next += lanes) {
        rows[count] = element_[i];
        ahead[count++] = element_[next < n_ ? next : i];
      }
      kernels_of<Op>()->combine(into, rows, count, width_, true, ahead);
    } else {
      for (int64_t i = j; i < n_; i += lanes) add_element(into, i, i == j);
    }
  }

  int64_t width_, first_, n_;
  std::array<const T*, block> element_;  // pointers into the first row
  std::array<Acc, levels * tile> results_;
};

/// Whether rows lie side by side and are best reduced together. A few rows suffice if they leave no gaps.
bool side_by_side(const RowView& v) {
  const int64_t side = v.kept.back();
  return v.kept_strides.back() == 1 && v.reduced_strides.back() != 1 &&
         (side >= 8 || (side > 1 && v.reduced_strides.back() == side));
}

/// How many rows side by side are one task: a tile, or fewer if there are too few tasks for the threads. A
/// multiple of 64, so that tasks do not write the same cache lines. No bits depend on it. Narrower tiles cost
/// up to twice as much per element.
int64_t rows_of_task(const RowView& v, int64_t blocks) {
  const int threads = get_num_threads();
  if (threads == 1) return tile;
  return std::clamp(v.rows * blocks / (4 * threads) / 64 * 64, narrow, tile);
}

/// How many rows lie side by side without gaps, or 1 if each is dense. 0 if there are no loops for so many
/// rows, or if a row is longer than a block.
template <class Op>
int64_t rows_of_block(const RowView& v, int64_t blocks) {
  const int64_t side = v.kept.back(), stride = v.reduced_strides.back();
  if (!has_kernels<Op> || blocks > 1 || v.reduced.rank() > 1) return 0;
  if (stride == 1) return 1;
  return v.kept_strides.back() == 1 && stride == side && (side == 2 || side == 4 || side == 8) ? side : 0;
}

/// Calls store(row, block, result) for all blocks of all rows.
template <class Op, class T, class Store>
void reduce_blocks(const RowView& v, const T* x, int64_t blocks, Store store) {
  const int64_t longest = std::min(v.length, block);
  const auto in_block = [&](int64_t b) { return std::min(block, v.length - b * block); };
  const int64_t side = v.kept.back();  // number of rows side by side, if their stride is 1
  if constexpr (has_kernels<Op>) {
    if (const int64_t width = rows_of_block<Op>(v, blocks); width > 0) {  // many rows, maybe short
      constexpr int64_t most = 64;
      // The dimension that leads to the next rows.
      const int64_t outer = v.kept.rank() - (width == 1 ? 1 : 2);
      const int64_t size = outer < 0 ? 1 : v.kept[outer], stride = outer < 0 ? 0 : v.kept_strides[outer];
      parallel_for(v.rows / width, std::max<int64_t>(1, task_elements / (longest * width)),
                   [&](int64_t begin, int64_t end) {
                     std::array<typename Op::Acc, 8 * most> results;
                     while (begin < end) {
                       const int64_t n = std::min({most, end - begin, size - begin % size});
                       kernels_of<Op>()->blocks(x + detail::offset_of(v.kept, v.kept_strides, begin * width),
                                                stride, n, v.length, width, results.data());
                       for (int64_t i = 0; i < n * width; ++i) store(begin * width + i, 0, results[i]);
                       begin += n;
                     }
                   });
      return;
    }
  }
  if (side_by_side(v)) {
    const int64_t rows = rows_of_task(v, blocks);
    const int64_t tiles = (side + rows - 1) / rows, grain = task_elements / (longest * std::min(side, rows));
    return for_tasks(v.rows / side * tiles * blocks, grain, [&](int64_t task) {
      const int64_t b = task % blocks, t = task / blocks % tiles, outer = task / blocks / tiles;
      const int64_t row = outer * side + t * rows;
      const int64_t width = std::min(rows, side - t * rows);
      const TileReduction<Op, T> results(v, x + detail::offset_of(v.kept, v.kept_strides, row), width,
                                         b * block, in_block(b));
      for (int64_t c = 0; c < width; ++c) store(row + c, b, results[c]);
    });
  }
  for_tasks(v.rows * blocks, task_elements / longest, [&](int64_t task) {
    const int64_t row = task / blocks, b = task % blocks;
    const T* at = x + detail::offset_of(v.kept, v.kept_strides, row);
    store(row, b, reduce_row<Op>(v, at, b * block, in_block(b)));
  });
}

template <class Op, class T>
void reduce_with(const Tensor& x_tensor, int64_t reduced_dims, Tensor& y_tensor) {
  using Acc = typename Op::Acc;
  const RowView v = detail::rows_of(x_tensor, reduced_dims);
  const T* x = detail::ptr<T>(x_tensor);
  auto* y = detail::mutable_ptr<typename Op::Result>(y_tensor);
  if (v.length == 0 || v.rows == 0) {
    std::fill_n(y, v.rows, Op::finish(Op::init(), 0));
    return;
  }
  const int64_t blocks = (v.length + block - 1) / block;
  if (blocks == 1) {
    reduce_blocks<Op>(v, x, 1, [&](int64_t row, int64_t, const Acc& a) { y[row] = Op::finish(a, v.length); });
    return;
  }
  const Tensor memory =
      detail::empty_for("reduce", {v.rows * blocks * static_cast<int64_t>(sizeof(Acc))}, {u8, Device::cpu()});
  auto* const partial = static_cast<Acc*>(memory.impl()->data());
  reduce_blocks<Op>(v, x, blocks,
                    [&](int64_t row, int64_t b, const Acc& a) { partial[row * blocks + b] = a; });
  for_tasks(v.rows, task_elements / blocks, [&](int64_t row) {
    Acc* results = partial + row * blocks;
    for (int64_t n = blocks; n > 1; n = (n + block - 1) / block) {
      for (int64_t b = 0; b * block < n; ++b)
        results[b] = reduce_block<Op>(results + b * block, std::min(block, n - b * block), 0);
    }
    y[row] = Op::finish(results[0], v.length);
  });
}

// ---- Dimensions in the order of memory --------------------------------------------------------------------

/// Appends dimensions [begin, end) to `order` by falling stride. A dimension of stride 0, which is read again
/// and again, comes before all others. A dimension of size 1, whose stride means nothing, stays in its place.
void append_sorted(const Tensor& x, int64_t begin, int64_t end, Shape& order) {
  std::array<int64_t, max_rank> dims, key;
  int64_t count = 0;
  for (int64_t d = begin; d < end; ++d) {
    const int64_t stride = x.strides()[d], largest = std::numeric_limits<int64_t>::max();
    key[d] = x.shape()[d] == 1 ? (d > begin ? key[d - 1] : largest) : stride == 0 ? largest : stride;
    dims[count++] = d;
  }
  std::stable_sort(dims.begin(), dims.begin() + count, [&](int64_t a, int64_t b) { return key[a] > key[b]; });
  for (int64_t i = 0; i < count; ++i) order.push_back(dims[i]);
}

/// Whether rows are read well without a copy: few elements, dense rows, one repeated element, or side by
/// side.
bool reads_well(const RowView& v) {
  const bool is_dense = v.reduced_strides.back() == 1 && (v.reduced.rank() == 1 || v.reduced.back() >= 64);
  const bool is_one = v.reduced.rank() == 1 && v.reduced_strides.back() == 0;
  return v.rows * v.length < 4096 || is_dense || is_one || side_by_side(v);
}

void reduce_any(ReduceKind kind, const Tensor& x, int64_t reduced_dims, Tensor& y);

/// Reduces all dimensions except the innermost reduced one into a tensor, then that dimension.
void reduce_outer_first(ReduceKind kind, const Tensor& x, const RowView& v, Tensor& y) {
  const ReduceKind step = kind == ReduceKind::mean ? ReduceKind::sum : kind;
  const int64_t inner = v.reduced.back();
  Shape shape, strides;
  if (v.rows > 1) shape = v.kept, strides = v.kept_strides;
  shape.push_back(inner), strides.push_back(v.reduced_strides.back());
  Tensor partial = empty(shape, y.options());
  for (int64_t i = 0; i + 1 < v.reduced.rank(); ++i)
    shape.push_back(v.reduced[i]), strides.push_back(v.reduced_strides[i]);
  reduce_any(step, detail::alias(x, x.impl()->offset, shape, strides), v.reduced.rank() - 1, partial);
  reduce_any(step, partial, 1, y);
  if (kind == ReduceKind::mean)
    binary(Binary::div, y, full({}, v.length, y.options()).expand(y.shape()), y, 1);
}

/// Reduces an x whose dimensions are in the order of the walk. `counts`: argmax or argmin.
void reduce_in_order(ReduceKind kind, const Tensor& x, int64_t reduced_dims, Tensor& y, bool counts) {
  const RowView v = detail::rows_of(x, reduced_dims);
  constexpr int64_t enough = 16;
  if (!reads_well(v)) {
    if (!counts && v.reduced_strides.back() == 1 && v.length / v.reduced.back() >= enough)
      return reduce_outer_first(kind, x, v, y);
    if (!x.is_contiguous()) {  // a copy made tile by tile (Note [Walks]) costs less than gathering each
                               // element
      const Tensor dense = empty_like(x);
      copy(x, dense);
      return reduce_in_order(kind, dense, reduced_dims, y, counts);
    }
  }
  detail::visit_reduction(kind, x.dtype(),
                          [&]<class Op, class T>() { reduce_with<Op, T>(x, reduced_dims, y); });
}

void reduce_any(ReduceKind kind, const Tensor& x, int64_t reduced_dims, Tensor& y) {
  const bool counts = kind == ReduceKind::argmax || kind == ReduceKind::argmin;
  const int64_t rank = x.rank(), kept = rank - reduced_dims;
  Shape order;
  append_sorted(x, 0, kept, order);
  const bool same_rows = std::is_sorted(order.begin(), order.end());
  if (counts)
    for (int64_t d = kept; d < rank; ++d) order.push_back(d);
  else
    append_sorted(x, kept, rank, order);
  const Tensor sorted = in_order(x, order);
  if (same_rows) return reduce_in_order(kind, sorted, reduced_dims, y, counts);

  const Shape shape(x.shape().begin(), x.shape().begin() + kept), rows(order.begin(), order.begin() + kept);
  const Tensor in_y = in_order(detail::alias(y, y.impl()->offset, shape, contiguous_strides(shape)), rows);
  Tensor results = empty(in_y.shape(), y.options());
  reduce_in_order(kind, sorted, reduced_dims, results, counts);
  copy(results, in_y);
}

// ---- Reductions made of others, and gradients -------------------------------------------------------------

/// A dense tensor of x's shape, whose dimensions lie in memory as those of x do.
Tensor empty_like_in_memory(const Tensor& x, DType dtype) {
  Shape order, back = x.shape();
  append_sorted(x, 0, x.rank(), order);
  for (int64_t i = 0; i < order.rank(); ++i) back[order[i]] = i;
  return in_order(empty(in_order(x, order).shape(), {dtype, x.device()}), back);
}

/// The dense y, which has an element per row, repeated along the rows of x.
Tensor along_rows(const Tensor& y, const Tensor& x, int64_t reduced_dims) {
  Shape shape(x.shape().begin(), x.shape().end() - reduced_dims);
  for (int64_t i = 0; i < reduced_dims; ++i) shape.push_back(1);
  return detail::alias(y, y.impl()->offset, shape, contiguous_strides(shape)).expand(x.shape());
}

/// y = log(sum(exp(x - m))) + m, where m is the maximum, or 0 if that is not finite.
void logsumexp(const Tensor& x, int64_t reduced_dims, Tensor& y) {
  Tensor most = full(y.shape(), 0, y.options());
  if (x.numel() > 0) reduce_any(ReduceKind::max, x, reduced_dims, most);
  visit_floating("logsumexp", x.dtype(), [&]<class T>(T) {
    T* const m = detail::mutable_ptr<T>(most);
    std::transform(m, m + most.numel(), m, [](T v) { return v - v == 0 ? v : T(0); });
  });
  const Tensor shifted = empty_like_in_memory(x, x.dtype());
  binary(Binary::sub, x, along_rows(most, x, reduced_dims), shifted, 1);
  unary(Unary::exp, shifted, shifted, 0, 0);
  reduce_any(ReduceKind::sum, shifted, reduced_dims, y);
  unary(Unary::log, y, y, 0, 0);
  binary(Binary::add, y, most, y, 1);
}

/// The magnitudes or squares of x - target.
Tensor mapped(bool is_square, const Tensor& x, const Tensor& target) {
  const Tensor to = empty_like_in_memory(x, x.dtype());
  if (target.defined()) binary(Binary::sub, x, target, to, 1);
  const Tensor& d = target.defined() ? to : x;
  if (is_square)
    binary(Binary::mul, d, d, to, 1);
  else
    unary(Unary::abs, d, to, 0, 0);
  return to;
}

/// Where x equals the extremum r, or is NaN, and so is r.
Tensor winners(const Tensor& x, const Tensor& r) {
  const Tensor equal = empty_like_in_memory(x, boolean), is_nan = empty_like_in_memory(x, boolean);
  compare(Comparison::eq, x, r, equal);
  compare(Comparison::ne, x, x, is_nan);
  where(is_nan, is_nan, equal, equal);
  return equal;
}

}  // namespace

void reduce(ReduceKind kind, const Tensor& x, const Tensor& target, int64_t reduced_dims, Tensor& y,
            Tensor& extra) {
  if (kind <= ReduceKind::argmin) {
    reduce_any(kind, x, reduced_dims, y);
    if (!extra.defined()) return;
    Tensor ties = empty(extra.shape(), {i64, extra.device()});
    reduce_any(ReduceKind::sum, winners(x, along_rows(y, x, reduced_dims)), reduced_dims, ties);
    return copy(ties, extra);
  }
  Tensor& result = y.defined() ? y : extra;
  const bool is_mean = kind == ReduceKind::mean_magnitude || kind == ReduceKind::mean_square;
  const bool is_square = kind != ReduceKind::sum_of_magnitudes && kind != ReduceKind::mean_magnitude;
  if (kind == ReduceKind::logsumexp)
    logsumexp(x, reduced_dims, result);
  else
    reduce_any(is_mean ? ReduceKind::mean : ReduceKind::sum, mapped(is_square, x, target), reduced_dims,
               result);
  if (kind == ReduceKind::norm) unary(Unary::sqrt, result, result, 0, 0);
  if (extra.defined() && extra.impl() != result.impl()) copy(result, extra);
}

void reduce_gradient(ReduceGradient kind, const Tensor& g, const Tensor& x, const Tensor& r, const Tensor& b,
                     Tensor& grad_x) {
  const auto number = [&](double value) { return full({}, value, x.options()).expand(x.shape()); };
  if (kind == ReduceGradient::winner) return where(winners(x, r), g, number(0), grad_x);
  if (kind == ReduceGradient::exponential) {  // -inf - -inf would be NaN
    visit_floating("reduce_gradient", x.dtype(), [&]<class T>(T) {
      binary(Binary::maximum, r, number(std::numeric_limits<T>::lowest()), grad_x, 1);
    });
    binary(Binary::sub, x, grad_x, grad_x, 1);
    unary(Unary::exp, grad_x, grad_x, 0, 0);
  } else {
    binary(Binary::sub, x, r, grad_x, 1);
    if (kind == ReduceGradient::sign) unary(Unary::sign, grad_x, grad_x, 0, 0);
  }
  binary(Binary::mul, g, grad_x, grad_x, 1);
  if (b.defined()) binary(Binary::add, grad_x, b, grad_x, 1);
}

}  // namespace vox::cpu
