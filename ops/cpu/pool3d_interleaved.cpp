#include <voxgrad/ops/cpu/pool3d_interleaved.h>

#include <voxgrad/core/factories.h>
#include <voxgrad/core/parallel.h>
#include <voxgrad/ops/cpu/interleaved.h>
#include <voxgrad/ops/cpu/interleaved_passes.h>
#include <voxgrad/ops/cpu/isa.h>
#include <voxgrad/ops/cpu/simd/pool3d.h>
#include <voxgrad/ops/cpu/walk.h>

#include <algorithm>
#include <vector>

// Maxima are found along one axis after the other (InterleavedPasses), so each cell is read once, not for
// every window over it. Means are not, because their additions would then have another order than in a dense
// tensor. A task of the mean is a slab of windows, one thick, which goes to a buffer and is transposed from
// there into y. The slab spans two axes: the one along which x's cells are closest, and W, along which y's
// windows are.

namespace vox::cpu {

namespace {

constexpr ByIsa kernels = VOX_BY_ISA(pool3d_kernels);

/// x, with a batch dimension added if it has none.
Tensor with_batch(const Tensor& x) {
  if (x.rank() == 5) return x;
  Shape shape = x.shape(), strides = x.strides();
  shape.insert(0, 1), strides.insert(0, x.numel());
  return detail::alias(x, x.impl()->offset, shape, strides);
}

/// The axes of a box and its size. Rows of windows run along the axis in which x's cells lie closest.
struct Boxes {
  int64_t rows, inner, slab;       // axes: along a row, along the rows of a slab, along the slabs
  int64_t row = 0, thickness = 1;  // of one box: windows of a row, number of slabs

  Boxes(const Tensor& x, const Triple& out) {
    const auto stride = [&](int64_t axis) { return x.strides()[2 + axis]; };
    rows = 2;
    for (int64_t axis = 1; axis >= 0; --axis) {
      if (stride(axis) < stride(rows)) rows = axis;
    }
    inner = rows == 2 ? 1 : 2;
    slab = 3 - rows - inner;
    row = out[rows];
    if (slab == 1) {  // so that longer stretches of y are written
      thickness = std::min<int64_t>(4, out.h);
      row = (row + 1) / 2;
    }
  }
};

/// Cuts the windows from `window` to `end` along `axis` into calls of f(window, n): n consecutive windows
/// that lie wholly inside the input, or one that does not.
template <class F>
void for_rows(const Pool3dGeometry& g, Triple window, int64_t axis, int64_t end, F f) {
  const auto is_inside = [&](int64_t a, int64_t o) {
    const int64_t begin = o * g.stride[a] - g.padding[a];
    return begin >= 0 && begin + (g.kernel[a] - 1) * g.dilation[a] < g.in[a];
  };
  bool others = true;
  for (int64_t a = 0; a < 3; ++a) others = others && (a == axis || is_inside(a, window[a]));
  for (int64_t& o = window[axis]; o < end;) {
    int64_t n = 1;
    const bool whole = others && is_inside(axis, o);
    while (whole && o + n < end && is_inside(axis, o + n)) ++n;
    f(window, n);
    o += n;
  }
}

/// Calls kernel(plane, step, cells, window, n, side, to) for rows of n windows. `cells` are the cells of the
/// first window, relative to `plane`; `step` is the distance between windows.
template <class T, class Kernel>
void pool_slabs(const Tensor& x_tensor, const Pool3dGeometry& g, Tensor& y, Kernel kernel) {
  const Tensor x = with_batch(x_tensor);
  const InterleavedPlanes planes(x);
  const Boxes boxes(x, g.out);
  const T* from = detail::ptr<T>(x);
  const Shape &size = x.shape(), &stride = x.strides();
  const int64_t channels = planes.has_channels ? 1 : size[1];  // how many channels the groups span
  const Shape y_strides = contiguous_strides({size[0], size[1], g.out.d, g.out.h, g.out.w});
  const int64_t slabs = (g.out[boxes.slab] + boxes.thickness - 1) / boxes.thickness,
                parts = (g.out[boxes.rows] + boxes.row - 1) / boxes.row;
  parallel_for(planes.groups * slabs * parts, 1, [&](int64_t begin, int64_t end) {
    const Tensor buffer =
        empty({boxes.thickness * g.out[boxes.inner] * boxes.row * planes.side}, x.options());
    std::vector<int64_t> cells;
    for (int64_t task = begin; task < end; ++task) {
      const int64_t group = task / parts / slabs, n = group / channels, c = group % channels;
      Triple first{0, 0, 0}, last = g.out;
      first[boxes.rows] = task % parts * boxes.row;
      first[boxes.slab] = task / parts % slabs * boxes.thickness;
      last[boxes.rows] = std::min(first[boxes.rows] + boxes.row, g.out[boxes.rows]);
      last[boxes.slab] = std::min(first[boxes.slab] + boxes.thickness, g.out[boxes.slab]);
      T* to = detail::mutable_ptr<T>(buffer);
      Triple row = first;
      for (row[boxes.slab] = first[boxes.slab]; row[boxes.slab] < last[boxes.slab]; ++row[boxes.slab]) {
        for (row[boxes.inner] = 0; row[boxes.inner] < g.out[boxes.inner]; ++row[boxes.inner]) {
          for_rows(g, row, boxes.rows, last[boxes.rows], [&](const Triple& window, int64_t count) {
            const PoolBox box = covered_cells(g, window);
            cells.clear();
            for (int64_t w = box.w.begin; w < box.w.end; w += box.w.step)
              for (int64_t d = box.d.begin; d < box.d.end; d += box.d.step)
                for (int64_t h = box.h.begin; h < box.h.end; h += box.h.step)
                  cells.push_back(d * stride[2] + h * stride[3] + w * stride[4]);
            kernel(from + n * stride[0] + c * stride[1], g.stride[boxes.rows] * stride[2 + boxes.rows], cells,
                   window, count, planes.side, to);
            to += count * planes.side;
          });
        }
      }
      // The buffer, and its place in y, both as (N, C, D, H, W).
      Shape shape{planes.has_batch ? size[0] : 1, planes.has_channels ? size[1] : 1, 0, 0, 0};
      Shape strides{stride[0], stride[1], 0, 0, 0};
      int64_t at = n * y_strides[0] + c * y_strides[1], step = planes.side;
      for (const int64_t axis : {boxes.rows, boxes.inner, boxes.slab}) {
        shape[2 + axis] = last[axis] - first[axis];
        strides[2 + axis] = step;
        step *= shape[2 + axis];
        at += first[axis] * y_strides[2 + axis];
      }
      // The same choice as in InterleavedPasses.
      const bool stream = x.numel() * static_cast<int64_t>(sizeof(T)) >= stream_bytes;
      copy_streaming(detail::alias(buffer, buffer.impl()->offset, shape, strides),
                     detail::alias(y, y.impl()->offset + at, shape, y_strides), stream);
    }
  });
}

/// The maxima along one axis, for InterleavedPasses.
template <class T>
class MaxPass {
 public:
  MaxPass(const Pool3dGeometry& g, int64_t axis) : out_(g.out[axis]) {
    for (int64_t o = 0; o < out_; ++o) {
      begins_.push_back(static_cast<int64_t>(cells_.size()));
      const PoolRange r = g.axis(axis).covered_cells(o);
      for (int64_t i = r.begin; i < r.end; i += r.step) cells_.push_back(i);
      // Begins at the window, whose position rises; that of its first cell may not.
      const int64_t begin = std::max<int64_t>(o * g.stride[axis] - g.padding[axis], 0);
      reads_.push_back({std::min(begin, r.end), r.end});
    }
    begins_.push_back(static_cast<int64_t>(cells_.size()));
  }
  int64_t out() const { return out_; }
  CellRing use_ring() {
    CellRing ring;
    for (const CellRange& cells : reads_) ring.add(cells);
    ring.number(cells_);
    return ring;
  }
  void rows(simd::CellRows<T> x, T* y, int64_t begin, int64_t end, int64_t n) const {
    kernels.of<T>().max_rows(x, begins_.data() + begin, cells_.data(), y, end - begin, n);
  }

 private:
  int64_t out_;
  std::vector<int64_t> begins_, cells_;
  std::vector<CellRange> reads_;
};

}  // namespace

bool is_interleaved(const Tensor& x) { return has_interleaved_planes(with_batch(x)); }

bool windows_are_short(const Pool3dGeometry& g) {
  constexpr int64_t most = int64_t{1} << 20;
  for (int64_t axis = 0; axis < 3; ++axis)
    if (g.out[axis] > most / std::min(g.kernel[axis], g.in[axis])) return false;
  return true;
}

void max_pool3d_interleaved(const Tensor& x_tensor, const Pool3dGeometry& g, Tensor& y_tensor) {
  visit_floating("max_pool3d", y_tensor.dtype(), [&]<class T>(T) {
    const Tensor x = with_batch(x_tensor), y = with_batch(y_tensor);
    InterleavedPasses<T, MaxPass<T>> passes(x, y);
    for (int axis = 2; axis >= 0; --axis) {  // the innermost axis of memory first
      const int64_t dim = passes.memory().dim[axis];
      passes.add(dim, MaxPass<T>(g, dim));
    }
    passes.run();
  });
}

void avg_pool3d_interleaved(const Tensor& x, const Pool3dGeometry& g, Tensor& y) {
  visit_floating("avg_pool3d", y.dtype(), [&]<class T>(T) {
    const auto& kernel = kernels.of<T>();
    pool_slabs<T>(x, g, y,
                  [&](const T* from, int64_t step, const std::vector<int64_t>& cells, const Triple& window,
                      int64_t n, int64_t side, T* to) {
                    const PoolRange w = g.axis(2).covered_cells(window.w);
                    const auto count = static_cast<int64_t>(cells.size());
                    kernel.mean_interleaved(from, step, cells.data(), count, count / (w.end - w.begin),
                                            w.end - w.begin < g.kernel.w, static_cast<T>(divisor(g, window)),
                                            n, side, to);
                  });
  });
}

}  // namespace vox::cpu
