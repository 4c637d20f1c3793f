// Pooling and its gradients. A task is a slab, some depths of one plane of the output. Maximum, mean and the
// mean's adjoint are loops of ops/cpu/simd/pool3d.cpp. The maximum's adjoint scatters: the task that owns a
// slab of cells goes through the windows in ascending order and adds the gradients whose index lies in the
// slab. So every cell sums in one order, whatever the slabs. Adaptive windows, whose sizes and distances
// vary, are computed one by one.

#include <voxgrad/core/factories.h>
#include <voxgrad/core/parallel.h>
#include <voxgrad/ops/cpu/isa.h>
#include <voxgrad/ops/cpu/simd/memory.h>
#include <voxgrad/ops/cpu/simd/pool3d.h>
#include <voxgrad/ops/cpu/walk.h>
#include <voxgrad/ops/layer_kernels.h>

#include <algorithm>
#include <limits>
#include <vector>

namespace vox::cpu {

namespace {

constexpr int64_t elements_per_chunk = 32768;

constexpr ByIsa kernels = VOX_BY_ISA(pool3d_kernels);
constexpr ByIsa copies = VOX_BY_ISA(copy_kernels);

/// Replaces the window parameters of an axis by equivalent ones that are at most a few times its size, by
/// dropping taps that are on no cell in any window. Every window keeps its cells. It also keeps padding at
/// either end if it had any, because the padding's +0 turns a sum of -0 into +0. divisor() needs the original
/// parameters.
void cut_to_cells(PoolAxis& a) {
  if ((a.kernel - 1) * a.dilation < a.in) return;
  if (a.stride > a.in) {  // then there are at most two windows, which move closer
    const int64_t taps = std::max<int64_t>(std::min(a.padding, a.stride - a.in) - 1, 0) / a.dilation;
    a.kernel -= taps, a.stride -= taps * a.dilation, a.padding -= taps * a.dilation;
  }
  const int64_t before = std::max<int64_t>(a.padding - (a.out - 1) * a.stride - 1, 0) / a.dilation;
  a.kernel = std::min(a.kernel, (a.in + a.padding) / a.dilation + 1) - before;
  a.padding -= before * a.dilation;
  if (a.dilation > a.in && a.padding > 1) {  // one window, and at most its second tap is on a cell
    a.dilation -= a.padding - 1;
    a.padding = 1;
  }
}

/// Cuts W, because the time and memory of the kernels' loops grow with the extent of its windows.
simd::PoolAxes axes_of(const Pool3dGeometry& g) {
  simd::PoolAxes a{g.axis(0), g.axis(1), g.axis(2), g.count_include_pad, g.divisor_override != 0};
  cut_to_cells(a.w);
  return a;
}

/// The contribution of W to divisor(), or all of it.
template <class T>
std::vector<T> divisors_along_w(const Pool3dGeometry& g) {
  std::vector<T> divisors;
  divisors.reserve(static_cast<size_t>(g.out.w));
  for (int64_t o = 0; o < g.out.w; ++o) {
    const int64_t positions = g.axis(2).positions(o, g.count_include_pad ? g.padding.w : 0);
    divisors.push_back(static_cast<T>(g.divisor_override != 0 ? g.divisor_override : positions));
  }
  return divisors;
}

/// Calls slab(plane, d_begin, d_end) for slabs of planes with `depths` depths, of which one costs `cost`; a
/// slab costs up to `most`, or has one depth. Each chunk has a `slab` of its own, which make_slab() returns
/// with the memory that it needs. `stream` says that the slabs write past the cache.
template <class MakeSlab>
void for_slabs(int64_t planes, int64_t depths, int64_t cost, int64_t most, bool stream, MakeSlab make_slab) {
  const int64_t depth = std::clamp<int64_t>(most / cost, 1, depths), slabs = (depths + depth - 1) / depth;
  parallel_for(planes * slabs, std::max<int64_t>(1, elements_per_chunk / (cost * depth)),
               [&](int64_t begin, int64_t end) {
                 auto slab = make_slab();
                 for (int64_t task = begin; task < end; ++task) {
                   const int64_t d = task % slabs * depth;
                   slab(task / slabs, d, std::min(d + depth, depths));
                 }
                 if (stream) finish_streaming();
               });
}
/// Slabs of windows.
template <class MakeSlab>
void for_windows(const Tensor& y, const Pool3dGeometry& g, MakeSlab make_slab) {
  // Rows of cells under a window, and the cost of one depth of windows.
  const int64_t rows = std::min(g.kernel.d, g.in.d) * std::min(g.kernel.h, g.in.h);
  const int64_t cost = std::max<int64_t>(1, rows * g.in.w * g.out.h);
  for_slabs(y.numel() / g.windows(), g.out.d, cost, elements_per_chunk, false, make_slab);
}
/// Slabs of cells.
template <class MakeSlab>
void for_cells(const Tensor& x, const Pool3dGeometry& g, int64_t most, bool stream, MakeSlab make_slab) {
  for_slabs(x.numel() / g.cells(), g.in.d, g.in.h * g.in.w, most, stream, make_slab);
}

/// Whether a result is written past the cache (Note [Streaming]).
bool streams(const Tensor& x) { return x.numel() * size_of(x.dtype()) >= stream_bytes; }

/// to[n] = f(plane of n, the place of n in it) for each element of a result with `size` elements a plane.
template <class T, class F>
void one_by_one(Tensor& result, int64_t size, F f) {
  T* to = detail::mutable_ptr<T>(result);
  parallel_for(result.numel(), elements_per_chunk, [&](int64_t n, int64_t end) {
    while (n < end) {
      const int64_t plane = n / size, stop = std::min(end, (plane + 1) * size);
      for (; n < stop; ++n) to[n] = f(plane, n - plane * size);
    }
  });
}

template <class T>
void max_pool3d_one_by_one(const Tensor& x, const Pool3dGeometry& g, Tensor& y, Tensor& indices) {
  const T* from = detail::ptr<T>(x);
  int64_t* index = indices.defined() ? detail::mutable_ptr<int64_t>(indices) : nullptr;
  one_by_one<T>(y, g.windows(), [&](int64_t plane, int64_t o) {
    const T* cells = from + plane * g.cells();
    const int64_t best = max_index(cells, g, covered_cells(g, position(o, g.out)));
    if (index) index[plane * g.windows() + o] = best;
    return best < 0 ? -std::numeric_limits<T>::infinity() : cells[best];
  });
}

}  // namespace

void max_pool3d(const Tensor& x_of_any_strides, const Pool3dGeometry& g, Tensor& y, Tensor& indices) {
  const Tensor x = x_of_any_strides.contiguous();
  visit_floating("max_pool3d", y.dtype(), [&]<class T>(T) {
    const bool is_huge = g.cells() >= std::numeric_limits<simd::PoolIndex<T>>::max();
    if (g.adaptive || (indices.defined() && is_huge)) return max_pool3d_one_by_one<T>(x, g, y, indices);
    const T* from = detail::ptr<T>(x);
    T* to = detail::mutable_ptr<T>(y);
    int64_t* index = indices.defined() ? detail::mutable_ptr<int64_t>(indices) : nullptr;
    const auto& kernel = kernels.of<T>();
    const simd::PoolAxes axes = axes_of(g);
    const auto room = static_cast<size_t>(pool_column_size(axes));
    for_windows(y, g, [&] {
      return [&, column = std::vector<T>(room),
              column_index = std::vector<simd::PoolIndex<T>>(index ? room : 0)](
                 int64_t plane, int64_t d_begin, int64_t d_end) mutable {
        const int64_t first = plane * g.windows();
        kernel.max(axes, d_begin, d_end, from + plane * g.cells(), to + first,
                   index ? index + first : nullptr, column.data(), column_index.data());
      };
    });
  });
}

void max_pool3d_gather(const Tensor& x, const Tensor& indices, const Pool3dGeometry& g, Tensor& y) {
  visit_floating("max_pool3d_gather", y.dtype(), [&]<class T>(T) {
    const T* from = detail::ptr<T>(x);
    const int64_t* index = detail::ptr<int64_t>(indices);
    one_by_one<T>(y, g.windows(), [&](int64_t plane, int64_t o) {
      const int64_t i = index[plane * g.windows() + o];
      return i < 0 ? T(0) : from[plane * g.cells() + i];
    });
  });
}

void max_pool3d_scatter_add(const Tensor& y, const Tensor& indices, const Pool3dGeometry& g, Tensor& x) {
  visit_floating("max_pool3d_scatter_add", x.dtype(), [&]<class T>(T) {
    const T* from = detail::ptr<T>(y);
    const int64_t* index = detail::ptr<int64_t>(indices);
    T* to = detail::mutable_ptr<T>(x);
    const auto copy_bytes = copies.here().copy;
    const bool stream = streams(x);
    const int64_t slice = g.in.h * g.in.w, window_slice = g.out.h * g.out.w;
    for_cells(x, g, 16384, stream, [&] {
      return [&, sums = std::vector<T>()](int64_t plane, int64_t first, int64_t end) mutable {
        const int64_t lowest = first * slice, count = (end - first) * slice;
        sums.assign(static_cast<size_t>(count), T(0));
        const PoolAxis d = g.axis(0);
        const int64_t origin = plane * g.windows();
        const int64_t stop = origin + d.windows_over(end - 1).end * window_slice;
        for (int64_t o = origin + d.windows_over(first).begin * window_slice; o < stop; ++o) {
          const int64_t i = index[o] - lowest;
          if (i >= 0 && i < count) sums[static_cast<size_t>(i)] += from[o];
        }
        copy_bytes(reinterpret_cast<const char*>(sums.data()),
                   reinterpret_cast<char*>(to + plane * g.cells() + lowest),
                   count * static_cast<int64_t>(sizeof(T)), stream);
      };
    });
  });
}

void avg_pool3d(const Tensor& x_of_any_strides, const Pool3dGeometry& g, Tensor& y) {
  const Tensor x = x_of_any_strides.contiguous();
  visit_floating("avg_pool3d", y.dtype(), [&]<class T>(T) {
    if (g.adaptive) {
      return one_by_one<T>(y, g.windows(), [&, from = detail::ptr<T>(x)](int64_t plane, int64_t o) {
        const Triple window = position(o, g.out);
        return window_mean(from + plane * g.cells(), g, covered_cells(g, window), window);
      });
    }
    const T* from = detail::ptr<T>(x);
    T* to = detail::mutable_ptr<T>(y);
    const auto& kernel = kernels.of<T>();
    const simd::PoolAxes axes = axes_of(g);
    const std::vector<T> divisors = divisors_along_w<T>(g);
    for_windows(y, g, [&] {
      return [&, column = std::vector<T>(static_cast<size_t>(pool_column_size(axes)))](
                 int64_t plane, int64_t d_begin, int64_t d_end) mutable {
        kernel.mean(axes, d_begin, d_end, from + plane * g.cells(), divisors.data(), to + plane * g.windows(),
                    column.data());
      };
    });
  });
}

void avg_pool3d_adjoint(const Tensor& y, const Pool3dGeometry& g, Tensor& x) {
  visit_floating("avg_pool3d_adjoint", x.dtype(), [&]<class T>(T) {
    const T* from = detail::ptr<T>(y);
    if (g.adaptive) {
      return one_by_one<T>(x, g.cells(), [&](int64_t plane, int64_t i) {
        return mean_gradient(from + plane * g.windows(), g, windows_over(g, position(i, g.in)));
      });
    }
    T* to = detail::mutable_ptr<T>(x);
    const auto& kernel = kernels.of<T>();
    const simd::PoolAxes axes = axes_of(g);
    const std::vector<T> divisors = divisors_along_w<T>(g);
    const bool stream = streams(x);
    for_cells(x, g, elements_per_chunk, stream, [&] {
      // A tensor, because its memory is kept for the next chunk (Note [Host memory]).
      const Tensor sums = empty({g.in.h, g.in.w}, {x.dtype(), Device::cpu()});
      return [&, sums, column = std::vector<T>(static_cast<size_t>(g.out.w))](int64_t plane, int64_t d,
                                                                              int64_t end) mutable {
        kernel.mean_adjoint(axes, d, end, from + plane * g.windows(), divisors.data(), to + plane * g.cells(),
                            column.data(), detail::mutable_ptr<T>(sums), stream);
      };
    });
  });
}

}  // namespace vox::cpu
