// Pooling and its gradients. There are no atomics: a cell sums its windows in ascending order.
//
// Windows (Pool): a thread owns windows along D. It reads a slice of a window, its cells at one d, in patches
// of 3 x 3 cells, whose loads do not wait for each other. Neighbours along D may share a slice, which is then
// read once. If windows are wide, several threads share one: thread k takes every cell k, k + lanes, .. of
// each row, and at the end they join what they found.
//
// Gradients (GatherPool): a thread owns packets of cells along D and gathers from the windows over them.
// Which windows these are changes by a few comparisons from one d to the next, without a division.
//
// Windows of 2 x 2 x 2 or 1 x 2 x 2 cells side by side have loops of their own, in pool3d_blocks.cuh.
//
// The index of a maximum is a byte, the number of its cell within the window, if the windows are small.

#include <voxgrad/cuda/runtime/launch.h>
#include <voxgrad/ops/layer_kernels.h>
#include <voxgrad/cuda/columns.cuh>
#include <voxgrad/cuda/for_each_index.cuh>
#include <voxgrad/cuda/pool3d_blocks.cuh>

#include <limits>
#include <type_traits>

namespace vox::cuda {

namespace {

// ---- Windows --------------------------------------------------------------------------------------------

constexpr int side = 3;  // of a patch
constexpr int patch = side * side;

/// The axes of a geometry, in the type that indices within a plane are computed in.
template <class Int>
struct PoolAxes {
  PoolAxisOf<Int> d, h, w;
  explicit PoolAxes(const Pool3dGeometry& g) : d(g.axis<Int>(0)), h(g.axis<Int>(1)), w(g.axis<Int>(2)) {}
};

/// Which tap of a window that begins at `start` is on cell i; -1 if none is.
template <class Int>
__device__ Int tap_number(Int i, Int start, Int dilation) {
  const Int distance = i - start;
  if (dilation == 1 || distance == 0) return distance;
  return distance % dilation == 0 ? distance / dilation : -1;
}

/// The numbers of the cells of a window's slice: `first`, and how they grow from row to row and from cell to
/// cell of the window.
template <class Number>
struct SliceNumbers {
  Number first, per_row, per_cell;
};

/// Result of Pool. `Index` is u8 for numbers within the window and int64_t for numbers within the plane.
template <class T, class Index>
struct Maximum {
  using A = opmath_t<T>;
  using Number = std::conditional_t<sizeof(Index) == 1, uint32_t, uint64_t>;
  struct State {
    A value;
    Number number;
  };
  static constexpr Number none = std::make_unsigned_t<Index>(-1);
  static constexpr A absent = -std::numeric_limits<A>::infinity();
  T* y;
  Index* indices;  // or null

  static __device__ State empty() { return {absent, none}; }
  /// Of two states. Without branches, which would cost more than both of their sides.
  static __device__ State join(const State& a, const State& b) {
    const bool a_is_nan = a.value != a.value, b_is_nan = b.value != b.value;
    const bool larger = b.value > a.value | b_is_nan & !a_is_nan;
    const bool equal = b.value == a.value, after = b.number > a.number;
    const bool b_wins = larger | equal & !after | a_is_nan & b_is_nan & after;
    return {b_wins ? b.value : a.value, b_wins ? b.number : a.number};
  }
  /// The same if the cells of b come after those of a.
  static __device__ State append(const State& a, const State& b) {
    const bool b_wins = b.value > a.value | b.value != b.value | a.number == none;
    return {b_wins ? b.value : a.value, b_wins ? b.number : a.number};
  }
  /// Of a patch whose first cell exists and has this number.
  static __device__ State of(const A (&cell)[patch], Number number, Number per_row, Number per_cell) {
    A best = cell[0];
    int at = 0;
#pragma unroll
    for (int k = 1; k < patch; ++k)
      if (cell[k] > best || cell[k] != cell[k]) best = cell[k], at = k;
    return {best, number + at / side * per_row + at % side * per_cell};
  }
  /// The state of a slice, in a window whose numbers begin at `first` in this slice.
  static __device__ State within(State state, Number first) {
    if (state.number != none) state.number += first;
    return state;
  }
  __device__ void store(const State& state, const Pool3dGeometry&, const Triple&, int64_t o) const {
    y[o] = T(state.value);
    if (indices) indices[o] = static_cast<Index>(state.number);
  }

  template <class Int>
  static __device__ SliceNumbers<Number> numbers(const PoolAxes<Int>& axes, Int oh, Int ow,
                                                 const PoolRangeOf<Int>& h, const PoolRangeOf<Int>& w) {
    const auto cells = static_cast<Number>(axes.w.in), taps = static_cast<Number>(axes.w.kernel);
    const auto number = [](Int n) { return static_cast<Number>(n); };
    if constexpr (sizeof(Index) == 8)
      return {number(h.begin) * cells + number(w.begin), number(h.step) * cells, number(w.step)};
    else
      return {number(tap_number(h.begin, axes.h.extent(oh).begin, h.step)) * taps +
                  number(tap_number(w.begin, axes.w.extent(ow).begin, w.step)),
              taps, 1};
  }
  /// Number of a window's first cell in slice d, less SliceNumbers::first. The slice is tap k of the window.
  template <class Int>
  static __device__ Number slice_number(const PoolAxes<Int>& axes, Int d, Int k) {
    if constexpr (sizeof(Index) == 8)
      return static_cast<Number>(d) * static_cast<Number>(axes.h.in) * static_cast<Number>(axes.w.in);
    else
      return static_cast<Number>(k * axes.h.kernel * axes.w.kernel);
  }
};

template <class T>
struct Mean {
  using A = opmath_t<T>;
  using State = A;
  using Number = uint32_t;
  static constexpr A absent = 0;
  T* y;

  static __device__ A empty() { return 0; }
  static __device__ A join(A a, A b) { return a + b; }
  static __device__ A append(A a, A b) { return a + b; }
  static __device__ A of(const A (&cell)[patch], Number, Number, Number) {
    A sum = 0;
#pragma unroll
    for (int k = 0; k < patch; ++k) sum += cell[k];
    return sum;
  }
  static __device__ A within(A sum, Number) { return sum; }
  __device__ void store(A sum, const Pool3dGeometry& g, const Triple& window, int64_t o) const {
    y[o] = T(sum / static_cast<A>(divisor(g, window)));
  }
  template <class Int>
  static __device__ SliceNumbers<Number> numbers(const PoolAxes<Int>&, Int, Int, const PoolRangeOf<Int>&,
                                                 const PoolRangeOf<Int>&) {
    return {};
  }
  template <class Int>
  static __device__ Number slice_number(const PoolAxes<Int>&, Int, Int) {
    return 0;
  }
};

/// `adjacent` says that a thread takes neighbouring cells: it has a window alone, which is not dilated along
/// W. Without it that is right, too, if slower.
template <class T, class Result, class Int, bool adjacent>
struct Pool {
  Columns columns;
  Pool3dGeometry g;
  PoolAxes<Int> axes;
  int lanes;  // threads that share a window: a power of 2 up to 32
  Result result;
  const T* x;

  using A = opmath_t<T>;
  using State = typename Result::State;
  using Number = typename Result::Number;
  using Range = PoolRangeOf<Int>;

  __device__ void operator()(int64_t n) const {
    const int lane = adjacent ? 0 : static_cast<int>(n) & (lanes - 1);
    const Column column = columns[adjacent ? n : n / lanes];
    const auto oh = static_cast<Int>(column.h), ow = static_cast<Int>(column.w);
    const Range h = axes.h.covered_cells(oh), w = axes.w.covered_cells(ow);
    const SliceNumbers<Number> numbers = Result::numbers(axes, oh, ow, h, w);
    const Int slice = axes.h.in * axes.w.in, window_slice = axes.h.out * axes.w.out;
    const T* const plane = x + column.plane * g.cells();
    int64_t to = column.plane * g.windows() + column.begin * window_slice + oh * axes.w.out + ow;

    Int known_at = -1;
    State known{};  // of slice known_at
    const auto end = static_cast<Int>(column.end);
    for (auto o = static_cast<Int>(column.begin); o < end; ++o, to += window_slice) {
      const Range d = axes.d.covered_cells(o);
      State state = Result::empty();
      Int k = axes.d.adaptive ? 0 : tap_number(d.begin, axes.d.extent(o).begin, d.step);
      for (Int i = d.begin; i < d.end; i += d.step, ++k) {
        if (i != known_at) known = of_slice(plane + i * slice, h, w, numbers, lane), known_at = i;
        state = Result::append(state, Result::within(known, Result::slice_number(axes, i, k)));
      }
      if (!adjacent) {
        const unsigned all = lanes == 32 ? ~0u : (1u << lanes) - 1;
        const unsigned group = all << (threadIdx.x % 32 & ~(lanes - 1));
        for (int distance = lanes / 2; distance > 0; distance /= 2)
          state = Result::join(state, shuffle_xor(state, distance, group));
      }
      if (lane == 0) result.store(state, g, Triple(o, oh, ow), to);
    }
  }

  __device__ State of_slice(const T* slice, const Range& h, const Range& w,
                            const SliceNumbers<Number>& numbers, int lane) const {
    // A step beyond the axis would lead to no cell, like one as long as the axis.
    const Int step_h = h.step < axes.h.in ? h.step : axes.h.in, down = step_h * axes.w.in;
    const int64_t next = w.step * int64_t{lanes};
    const Int step = adjacent ? 1 : next < axes.w.in ? static_cast<Int>(next) : axes.w.in;
    const int64_t distance = w.step * int64_t{lane};
    const Int skipped = adjacent ? 0 : distance < axes.w.in ? static_cast<Int>(distance) : axes.w.in;
    const Number per_cell = adjacent ? numbers.per_cell : numbers.per_cell * lanes;
    Number number_of_row = numbers.first + numbers.per_cell * lane;
    State state = Result::empty();
    for (Int i = h.begin; i < h.end; i += side * step_h, number_of_row += side * numbers.per_row) {
      Number number = number_of_row;
      for (Int j = w.begin + skipped; j < w.end; j += side * step, number += side * per_cell) {
        const T* const first = slice + (i * axes.w.in + j);
        const bool row_exists[side] = {true, i + step_h < h.end, i + 2 * step_h < h.end};
        const bool cell_exists[side] = {true, j + step < w.end, j + 2 * step < w.end};
        A cell[patch];
#pragma unroll
        for (int k = 0; k < patch; ++k) {
          const int r = k / side, c = k % side;
          cell[k] = row_exists[r] && cell_exists[c] ? A(first[r * down + c * step]) : Result::absent;
        }
        state = Result::join(state, Result::of(cell, number, numbers.per_row, per_cell));
      }
    }
    return state;
  }
};

/// Launches Pool.
template <class T, class Result>
void pool(const Launch& launch, const Pool3dGeometry& g, const Result& result, const T* x, int64_t windows) {
  // The fewest threads of which each has at most one patch in a row.
  const int64_t width = g.adaptive            ? (g.in.w + g.out.w - 1) / g.out.w
                        : g.kernel.w < g.in.w ? g.kernel.w
                                              : g.in.w;
  int lanes = 1;
  while (lanes < 32 && side * lanes < width) lanes *= 2;
  const bool adjacent = lanes == 1 && (g.adaptive || g.dilation.w == 1);
  const Columns columns(windows / g.windows(), g.out.d, g.out.h, g.out.w);
  const auto run = [&]<class Int, bool is_adjacent>() {
    for_each_index(launch, columns.count() * lanes,
                   Pool<T, Result, Int, is_adjacent>{columns, g, PoolAxes<Int>(g), lanes, result, x});
  };
  // Planes that need 64 bits are rare: one kernel.
  if (!g.fits_int32()) return run.template operator()<int64_t, false>();
  adjacent ? run.template operator()<int32_t, true>() : run.template operator()<int32_t, false>();
}

// ---- Gradients ------------------------------------------------------------------------------------------

/// The windows over cell i of an axis, [begin, end), for cells that rise one by one.
template <class Int>
class WindowsOver {
 public:
  Int begin, end;

  __device__ WindowsOver(const PoolAxisOf<Int>& axis, Int i) {
    const PoolRangeOf<Int> windows = axis.windows_over(i);
    begin = windows.begin, end = windows.end;
    past_begin_ = axis.extent(begin).end, start_of_end_ = axis.extent(end).begin;
  }
  __device__ void move_to(const PoolAxisOf<Int>& axis, Int i) {
    while (end < axis.out && start_of_end_ <= i) start_of_end_ = axis.extent(++end).begin;
    while (begin < end && past_begin_ <= i) past_begin_ = axis.extent(++begin).end;
  }

 private:
  Int past_begin_, start_of_end_;
};

// What windows give to cells. Its Row belongs to the cells [w, w + size) of a row; `first` is the first
// window over them along W.

/// A window gives its y to the cell that is its maximum.
template <class T, class Index>
struct MaximaGiven {
  const T* y;
  const Index* indices;

  template <class Int, int size>
  struct Row {
    using A = opmath_t<T>;
    using Number = std::conditional_t<sizeof(Index) == 1, uint32_t, uint64_t>;
    struct Item {
      A y;
      Number index;
    };
    const T* y;  // of the plane
    const Index* indices;
    Int cell_w;
    Number start;  // where window `first` begins, as seen from cell w
    Number kernel, stride, dilation;

    __device__ Row(const MaximaGiven& given, int64_t plane_begin, const PoolAxes<Int>& axes, Int w, Int first)
        : y(given.y + plane_begin),
          indices(given.indices + plane_begin),
          cell_w(w),
          start(static_cast<Number>(axes.w.extent(first).begin - w)),
          kernel(static_cast<Number>(axes.w.kernel)),
          stride(static_cast<Number>(axes.w.stride)),
          dilation(static_cast<Number>(axes.w.dilation)) {}

    /// The index of windows (od, oh) for their tap 0 of row (d, h) or, within the plane, for cell w.
    __device__ Number origin(const PoolAxes<Int>& axes, Int d, Int h, Int od, Int oh) const {
      if constexpr (sizeof(Index) == 8) {
        return static_cast<Number>((d * axes.h.in + h) * axes.w.in + cell_w);
      } else {
        const Int kd = tap_number(d, od * axes.d.stride - axes.d.padding, axes.d.dilation);
        const Int kh = tap_number(h, oh * axes.h.stride - axes.h.padding, axes.h.dilation);
        if (kd < 0 || kh < 0) return 1 << 16;  // above all indices
        return static_cast<Number>((kd * axes.h.kernel + kh) * axes.w.kernel);
      }
    }
    __device__ Item load(Int o) const { return {A(y[o]), static_cast<Number>(indices[o])}; }
    /// `t` counts windows from `first`.
    __device__ void add(A (&sum)[size], const Item& item, int t, Number origin) const {
      Number cell = item.index - origin;
      if constexpr (sizeof(Index) == 1) {
        const bool in_row = cell < kernel;
        cell = start + static_cast<Number>(t) * stride + cell * dilation;
        if (!in_row) cell = size;
      }
#pragma unroll
      for (int c = 0; c < size; ++c)
        if (cell == static_cast<Number>(c)) sum[c] += item.y;
    }
  };
};

/// A window gives y / divisor to each of its cells.
template <class T>
struct PartsOfMeans {
  const opmath_t<T>* parts;

  template <class Int, int size>
  struct Row {
    using A = opmath_t<T>;
    using Item = A;
    const A* parts;              // of the plane
    int begin[size], end[size];  // of the windows over each cell

    __device__ Row(const PartsOfMeans& given, int64_t plane_begin, const PoolAxes<Int>& axes, Int w,
                   Int first)
        : parts(given.parts + plane_begin) {
#pragma unroll
      for (int c = 0; c < size; ++c) {
        const PoolRangeOf<Int> windows = axes.w.windows_over(w + c);
        begin[c] = static_cast<int>(windows.begin - first), end[c] = static_cast<int>(windows.end - first);
      }
    }
    __device__ int origin(const PoolAxes<Int>&, Int, Int, Int, Int) const { return 0; }
    __device__ A load(Int o) const { return parts[o]; }
    __device__ void add(A (&sum)[size], A item, int t, int) const {
#pragma unroll
      for (int c = 0; c < size; ++c)
        if (begin[c] <= t && t < end[c]) sum[c] += item;
    }
  };
};

template <class T, class Given, class Int, int size>
struct GatherPool {
  Columns columns;  // of packets of cells
  int64_t cells, windows;
  PoolAxes<Int> axes;
  Given given;
  T* x;

  using Row = typename Given::template Row<Int, size>;
  static constexpr int at_once = 3;  // windows along W

  __device__ void operator()(int64_t n) const {
    const Column column = columns[n];
    const auto column_h = static_cast<Int>(column.h), w = static_cast<Int>(column.w * size);
    const PoolRangeOf<Int> h = axes.h.windows_over(column_h);
    const Int first = axes.w.windows_over(w).begin;
    const int count = static_cast<int>(axes.w.windows_over(w + size - 1).end - first);
    const Row row(given, column.plane * windows, axes, w, first);
    auto i = static_cast<Int>(column.begin);
    const auto end = static_cast<Int>(column.end);
    WindowsOver<Int> d(axes.d, i);
    T* to = x + column.plane * cells + (i * axes.h.in + column_h) * axes.w.in + w;
    for (; i < end; ++i, to += axes.h.in * axes.w.in) {
      d.move_to(axes.d, i);
      opmath_t<T> sum[size] = {};
      for (Int od = d.begin; od < d.end; ++od)
        for (Int oh = h.begin; oh < h.end; ++oh) {
          const auto origin = row.origin(axes, i, column_h, od, oh);
          const Int o = (od * axes.h.out + oh) * axes.w.out + first;
          for (int t = 0; t < count; t += at_once) {
            typename Row::Item item[at_once];
#pragma unroll
            for (int k = 0; k < at_once; ++k)
              if (t + k < count) item[k] = row.load(o + t + k);
#pragma unroll
            for (int k = 0; k < at_once; ++k)
              if (t + k < count) row.add(sum, item[k], t + k, origin);
          }
        }
      Packet<T, size> packet;
#pragma unroll
      for (int c = 0; c < size; ++c) packet.lane[c] = T(sum[c]);
      store_packet(packet, to);
    }
  }
};

/// Launches GatherPool for the cells of x.
template <class T, class Given>
void gather_pool(const Launch& launch, const Pool3dGeometry& g, const Given& given, T* x, int64_t cells) {
  const auto run = [&]<class Int>(const PoolAxes<Int>& axes) {
    with_packet_size<Int>(x, g.in.w, [&]<int size>(std::integral_constant<int, size>) {
      const Columns columns(cells / g.cells(), g.in.d, g.in.h, g.in.w / size);
      for_each_index(launch, columns.count(),
                     GatherPool<T, Given, Int, size>{columns, g.cells(), g.windows(), axes, given, x});
    });
  };
  g.fits_int32() ? run(PoolAxes<int32_t>(g)) : run(PoolAxes<int64_t>(g));
}

/// y / divisor, in the type that sums have.
template <class T>
struct DivideMeans {
  Pool3dGeometry g;
  const T* y;
  opmath_t<T>* to;

  __device__ void operator()(int64_t n) const {
    to[n] = y[n] / static_cast<opmath_t<T>>(divisor(g, position(n % g.windows(), g.out)));
  }
};

/// y[window] = x[index of window]
template <class T, class Index>
struct MaxPoolTake {
  Pool3dGeometry g;
  const T* x;
  const Index* indices;
  T* y;

  __device__ void operator()(int64_t n) const {
    const int64_t plane = n / g.windows();
    int64_t i = indices[n];
    if constexpr (sizeof(Index) == 1) {
      const Triple o = position(n - plane * g.windows(), g.out), k = position(i, g.kernel);
      if (i == 255)
        i = -1;
      else
        i = ((g.axis(0).extent(o.d).begin + k.d * g.dilation.d) * g.in.h + g.axis(1).extent(o.h).begin +
             k.h * g.dilation.h) *
                g.in.w +
            g.axis(2).extent(o.w).begin + k.w * g.dilation.w;
    }
    y[n] = i < 0 ? T(0) : x[plane * g.cells() + i];
  }
};

/// Calls run(an address of u8 or i64) with that of `indices`, which may be undefined; `small` says which
/// then.
template <class Run>
void with_indices(const Tensor& indices, bool small, Run run) {
  if (indices.defined() ? indices.dtype() == u8 : small)
    run(indices.defined() ? static_cast<uint8_t*>(indices.impl()->data()) : nullptr);
  else
    run(indices.defined() ? static_cast<int64_t*>(indices.impl()->data()) : nullptr);
}

}  // namespace

void max_pool3d(const Tensor& x_of_any_strides, const Pool3dGeometry& g, Tensor& y, Tensor& indices) {
  const Tensor x = x_of_any_strides.contiguous();
  const Launch launch("max_pool3d", y, {&x, &indices});
  visit_floating_storage("max_pool3d", y.dtype(), [&]<class T>(T) {
    const T* from = detail::ptr<T>(x);
    T* to = detail::mutable_ptr<T>(y);
    with_indices(indices, g.has_small_windows(), [&]<class Index>(Index* index) {
      if constexpr (sizeof(Index) == 1) {
        if (g.is_blocks())
          return for_blocks<T>(launch, g, y.numel(), {from, to, index}, [&]<class B>(const B& blocks) {
            return MaxOfBlocks<T, B>{blocks, from, to, index};
          });
      }
      pool(launch, g, Maximum<T, Index>{to, index}, from, y.numel());
    });
  });
}

void max_pool3d_gather(const Tensor& x, const Tensor& indices, const Pool3dGeometry& g, Tensor& y) {
  const Launch launch("max_pool3d_gather", y, {&x, &indices});
  visit_floating_storage("max_pool3d_gather", y.dtype(), [&]<class T>(T) {
    with_indices(indices, false, [&]<class Index>(const Index* index) {
      for_each_index(launch, y.numel(),
                     MaxPoolTake<T, Index>{g, detail::ptr<T>(x), index, detail::mutable_ptr<T>(y)});
    });
  });
}

void max_pool3d_scatter_add(const Tensor& y, const Tensor& indices, const Pool3dGeometry& g, Tensor& x) {
  const Launch launch("max_pool3d_scatter_add", x, {&y, &indices});
  visit_floating_storage("max_pool3d_scatter_add", x.dtype(), [&]<class T>(T) {
    const T* from = detail::ptr<T>(y);
    T* to = detail::mutable_ptr<T>(x);
    with_indices(indices, false, [&]<class Index>(const Index* index) {
      if constexpr (sizeof(Index) == 1) {
        if (g.is_blocks()) {
          clear_rest(launch, g, y.numel(), to);
          return for_blocks<T>(launch, g, y.numel(), {from, index, to}, [&]<class B>(const B& blocks) {
            return GiveToBlocks<T, B>{blocks, from, index, to};
          });
        }
      }
      gather_pool(launch, g, MaximaGiven<T, Index>{from, index}, to, x.numel());
    });
  });
}

void avg_pool3d(const Tensor& x_of_any_strides, const Pool3dGeometry& g, Tensor& y) {
  const Tensor x = x_of_any_strides.contiguous();
  const Launch launch("avg_pool3d", y, {&x});
  visit_floating_storage("avg_pool3d", y.dtype(), [&]<class T>(T) {
    const T* from = detail::ptr<T>(x);
    T* to = detail::mutable_ptr<T>(y);
    if (g.is_blocks())
      return for_blocks<T>(launch, g, y.numel(), {from, to}, [&]<class B>(const B& blocks) {
        return MeanOfBlocks<T, B>{blocks, static_cast<opmath_t<T>>(divisor(g, 0)), from, to};
      });
    pool(launch, g, Mean<T>{to}, from, y.numel());
  });
}

void avg_pool3d_adjoint(const Tensor& y, const Pool3dGeometry& g, Tensor& x) {
  const Launch launch("avg_pool3d_adjoint", x, {&y});
  visit_floating_storage("avg_pool3d_adjoint", x.dtype(), [&]<class T>(T) {
    using A = opmath_t<T>;
    const T* from = detail::ptr<T>(y);
    T* to = detail::mutable_ptr<T>(x);
    if (g.is_blocks()) {
      clear_rest(launch, g, y.numel(), to);
      return for_blocks<T>(launch, g, y.numel(), {from, to}, [&]<class B>(const B& blocks) {
        return MeanOfBlocksAdjoint<T, B>{blocks, static_cast<A>(divisor(g, 0)), from, to};
      });
    }
    const Workspace parts(launch, y.numel() * static_cast<int64_t>(sizeof(A)));
    for_each_index(launch, y.numel(), DivideMeans<T>{g, from, parts.as<A>()});
    gather_pool(launch, g, PartsOfMeans<T>{parts.as<A>()}, to, x.numel());
  });
}

}  // namespace vox::cuda
