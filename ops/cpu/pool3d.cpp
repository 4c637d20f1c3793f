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

/// Replaces the window parameters of one axis by equivalent ones that are at most a few times its size, by
/// dropping taps that are on no cell in any window. Every window keeps its cells. It also keeps padding at
/// either end if it had any, because the padding's +0 turns a sum of -0 into +0. divisor() needs the original
/// parameters.
void cut_to_cells(int64_t in, int64_t out, int64_t& kernel, int64_t& stride, int64_t& padding,
                  int64_t& dilation) {
  if ((kernel - 1) * dilation < in) return;
  if (stride > in) {  // then there are at most two windows, which move closer
    const int64_t taps = std::max<int64_t>(std::min(padding, stride - in) - 1, 0) / dilation;
    kernel -= taps, stride -= taps * dilation, padding -= taps * dilation;
  }
  const int64_t before = std::max<int64_t>(padding - (out - 1) * stride - 1, 0) / dilation;
  kernel = std::min(kernel, (in + padding) / dilation + 1) - before;
  padding -= before * dilation;
  if (dilation > in && padding > 1) {  // one window, and at most its second tap is on a cell
    dilation -= padding - 1;
    padding = 1;
  }
}

/// Cuts W, because the time and memory of the kernels' loops grow with the extent of its windows.
simd::PoolAxes axes_of(const Pool3dGeometry& g) {
  simd::PoolAxes a{};
  for (int64_t i = 0; i < 3; ++i) {
    a.in[i] = g.in[i], a.out[i] = g.out[i], a.kernel[i] = g.kernel[i];
    a.stride[i] = g.stride[i], a.padding[i] = g.padding[i], a.dilation[i] = g.dilation[i];
  }
  cut_to_cells(a.in[2], a.out[2], a.kernel[2], a.stride[2], a.padding[2], a.dilation[2]);
  a.count_padding = g.count_include_pad;
  a.whole_divisor_along_w = g.divisor_override != 0;
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

/// Calls f(plane, d_begin, d_end, cells) for slabs of windows; `cells` points to the plane's first cell.
template <class T, class F>
void for_slabs(const Tensor& x, const Pool3dGeometry& g, F f) {
  const int64_t cells = g.cells(), planes = x.numel() / cells;
  // Rows of cells under a window, and the cost of one depth of windows.
  const int64_t rows = std::min(g.kernel.d, g.in.d) * std::min(g.kernel.h, g.in.h);
  const int64_t cost = std::max<int64_t>(1, rows * g.in.w * g.out.h);
  const int64_t depth = std::clamp<int64_t>(elements_per_chunk / cost, 1, g.out.d);
  const int64_t slabs = (g.out.d + depth - 1) / depth;
  const T* from = detail::ptr<T>(x);
  parallel_for(planes * slabs, std::max<int64_t>(1, elements_per_chunk / (cost * depth)),
               [&](int64_t begin, int64_t end) {
                 for (int64_t task = begin; task < end; ++task) {
                   const int64_t plane = task / slabs, d = task % slabs * depth;
                   f(plane, d, std::min(d + depth, g.out.d), from + plane * cells);
                 }
               });
}

/// to[n] = f(plane of n, the place of n in it) for each element of a result with `size` elements a plane.
template <class T, class F>
void one_by_one(Tensor& result, int64_t size, F f) {
  T* to = detail::mutable_ptr<T>(result);
  parallel_for(result.numel(), elements_per_chunk, [&](int64_t begin, int64_t end) {
    for (int64_t n = begin; n < end; ++n) to[n] = f(n / size, n % size);
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
    T* to = detail::mutable_ptr<T>(y);
    int64_t* index = indices.defined() ? detail::mutable_ptr<int64_t>(indices) : nullptr;
    const auto& kernel = kernels.of<T>();
    const simd::PoolAxes axes = axes_of(g);
    const auto room = static_cast<size_t>(pool_column_size(axes));
    for_slabs<T>(x, g, [&](int64_t plane, int64_t d_begin, int64_t d_end, const T* cells) {
      std::vector<T> column(room);
      std::vector<simd::PoolIndex<T>> column_index(index ? room : 0);
      const int64_t first = plane * g.windows();
      kernel.max(axes, d_begin, d_end, cells, to + first, index ? index + first : nullptr, column.data(),
                 column_index.data());
    });
  });
}

void max_pool3d_gather(const Tensor& x, const Tensor& indices, const Pool3dGeometry& geometry, Tensor& y) {
  visit_floating("max_pool3d_gather", y.dtype(), [&]<class T>(T) {
    const T* from = detail::ptr<T>(x);
    const int64_t* index = detail::ptr<int64_t>(indices);
    T* to = detail::mutable_ptr<T>(y);
    const int64_t cells = geometry.cells(), windows = geometry.windows();
    parallel_for(y.numel(), elements_per_chunk, [&](int64_t begin, int64_t end) {
      for (int64_t n = begin; n < end;) {
        const int64_t plane = n / windows, stop = std::min(end, (plane + 1) * windows);
        for (; n < stop; ++n) to[n] = index[n] < 0 ? T(0) : from[plane * cells + index[n]];
      }
    });
  });
}

void max_pool3d_scatter_add(const Tensor& y, const Tensor& indices, const Pool3dGeometry& g, Tensor& x) {
  visit_floating("max_pool3d_scatter_add", x.dtype(), [&]<class T>(T) {
    const T* from = detail::ptr<T>(y);
    const int64_t* index = detail::ptr<int64_t>(indices);
    T* to = detail::mutable_ptr<T>(x);
    const auto copy_bytes = copies.here().copy;
    const bool stream = x.numel() * static_cast<int64_t>(sizeof(T)) >= stream_bytes;
    const int64_t slice = g.in.h * g.in.w, window_slice = g.out.h * g.out.w;
    constexpr int64_t slab_elements = 16384;
    const int64_t depth = std::clamp<int64_t>(slab_elements / slice, 1, g.in.d);
    const int64_t slabs = (g.in.d + depth - 1) / depth;
    const int64_t tasks = x.numel() / g.cells() * slabs;
    parallel_for(tasks, std::max<int64_t>(1, elements_per_chunk / (depth * slice)),
                 [&](int64_t begin, int64_t end) {
                   std::vector<T> sums(static_cast<size_t>(depth * slice));
                   for (int64_t task = begin; task < end; ++task) {
                     const int64_t plane = task / slabs, first = task % slabs * depth,
                                   last = std::min(first + depth, g.in.d) - 1;
                     const int64_t lowest = first * slice, count = (last + 1 - first) * slice;
                     std::fill_n(sums.data(), count, T(0));
                     const PoolAxis d = g.axis(0);
                     const int64_t origin = plane * g.windows();
                     const int64_t stop = origin + d.windows_over(last).end * window_slice;
                     for (int64_t o = origin + d.windows_over(first).begin * window_slice; o < stop; ++o) {
                       const int64_t i = index[o] - lowest;
                       if (i >= 0 && i < count) sums[static_cast<size_t>(i)] += from[o];
                     }
                     copy_bytes(reinterpret_cast<const char*>(sums.data()),
                                reinterpret_cast<char*>(to + plane * g.cells() + lowest),
                                count * static_cast<int64_t>(sizeof(T)), stream);
                   }
                   if (stream) finish_streaming();
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
    T* to = detail::mutable_ptr<T>(y);
    const auto& kernel = kernels.of<T>();
    const simd::PoolAxes axes = axes_of(g);
    const std::vector<T> divisors = divisors_along_w<T>(g);
    for_slabs<T>(x, g, [&](int64_t plane, int64_t d_begin, int64_t d_end, const T* cells) {
      std::vector<T> column(static_cast<size_t>(pool_column_size(axes)));
      kernel.mean(axes, d_begin, d_end, cells, divisors.data(), to + plane * g.windows(), column.data());
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
    const bool stream = x.numel() * static_cast<int64_t>(sizeof(T)) >= stream_bytes;
    const int64_t slice = g.in.h * g.in.w;
    const int64_t depth = std::clamp<int64_t>(elements_per_chunk / slice, 1, g.in.d);
    const int64_t slabs = (g.in.d + depth - 1) / depth;
    parallel_for(x.numel() / g.cells() * slabs, std::max<int64_t>(1, elements_per_chunk / (depth * slice)),
                 [&](int64_t begin, int64_t end) {
                   std::vector<T> column(static_cast<size_t>(g.out.w));
                   // A tensor, because its memory is kept for the next chunk (Note [Host memory]).
                   const Tensor sums = empty({slice}, {x.dtype(), Device::cpu()});
                   for (int64_t task = begin; task < end; ++task) {
                     const int64_t plane = task / slabs, d = task % slabs * depth;
                     kernel.mean_adjoint(axes, d, std::min(d + depth, g.in.d), from + plane * g.windows(),
                                         divisors.data(), to + plane * g.cells(), column.data(),
                                         detail::mutable_ptr<T>(sums), stream);
                   }
                   if (stream) finish_streaming();
                 });
  });
}

}  // namespace vox::cpu
