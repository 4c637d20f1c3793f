// Interpolation and its adjoint, one axis after the other: a pass sees x as (outer, in, inner) and y as
// (outer, out, inner). Both directions gather through the same table of taps, so they are exact transposes of
// each other. An element of the forward costs two reads, one write and at most three operations.
//
// Many small planes are resized one by one, so that intermediate results stay in the cache. Otherwise a pass
// takes the whole tensor. The bits are the same.

#include <voxgrad/core/factories.h>
#include <voxgrad/core/parallel.h>
#include <voxgrad/ops/cpu/interpolate_pass.h>
#include <voxgrad/ops/cpu/walk.h>
#include <voxgrad/ops/layer_kernels.h>
#include <voxgrad/ops/layout.h>

#include <algorithm>
#include <vector>

namespace vox::cpu {

namespace {

/// Rows that make a chunk of about 10 microseconds.
int64_t rows_per_chunk(int64_t inner) { return std::max<int64_t>(1, 32768 / std::max<int64_t>(1, inner)); }

template <template <class> class Pass>
void one_pass(const char* function, const Tensor& x, int64_t dim, const InterpolateAxis& axis, Tensor& y) {
  visit_floating(function, y.dtype(), [&]<class T>(T) {
    const AxisView view(y.shape(), dim);
    const Pass<T> pass(axis);
    const T* from = detail::ptr<T>(x);
    T* to = detail::mutable_ptr<T>(y);
    parallel_for(view.outer * pass.out(), rows_per_chunk(view.inner),
                 [&](int64_t begin, int64_t end) { pass.run(from, to, begin, end, view.inner, false); });
  });
}

/// Whether x and y have planes for every thread, and small ones.
bool goes_plane_by_plane(const Tensor& x, const Tensor& y) {
  constexpr int64_t enough = 16, most_elements = int64_t{1} << 21;
  const int64_t planes = x.shape()[0] * x.shape()[1];
  return planes >= enough && std::max(x.numel(), y.numel()) / planes <= most_elements;
}

template <template <class> class Pass>
void passes_by_plane(const char* function, const Tensor& x, const std::vector<int64_t>& order,
                     const InterpolateAxes& axes, Tensor& y) {
  visit_floating(function, y.dtype(), [&]<class T>(T) {
    std::vector<Pass<T>> passes;
    for (const int64_t dim : order) passes.emplace_back(axes[static_cast<size_t>(dim)]);
    int64_t sizes[3], planes = 1, most = 0;
    for (int64_t i = 0; i < 2; ++i) planes *= x.shape()[i];
    for (int64_t i = 0; i < 3; ++i) sizes[i] = x.shape()[2 + i];
    const int64_t plane_in = sizes[0] * sizes[1] * sizes[2];
    int64_t plane_out = plane_in;
    for (size_t p = 0; p < passes.size(); ++p) {
      plane_out = plane_out / passes[p].in() * passes[p].out();
      most = std::max(most, plane_out);
    }
    const T* from = detail::ptr<T>(x);
    T* to = detail::mutable_ptr<T>(y);
    const bool stream = y.numel() * static_cast<int64_t>(sizeof(T)) >= stream_bytes;
    const int64_t grain = std::max<int64_t>(1, 32768 / std::max(plane_in, plane_out));
    parallel_for(planes, grain, [&](int64_t begin, int64_t end) {
      // A tensor, because its memory is kept for the next chunk (Note [Host memory]).
      const Tensor buffers = empty({2, passes.size() > 1 ? most : 0}, {y.dtype(), Device::cpu()});
      for (int64_t plane = begin; plane < end; ++plane) {
        int64_t size[3] = {sizes[0], sizes[1], sizes[2]};
        const T* source = from + plane * plane_in;
        for (size_t p = 0; p < passes.size(); ++p) {
          const bool last = p + 1 == passes.size();
          T* const target = last ? to + plane * plane_out
                                 : detail::mutable_ptr<T>(buffers) + static_cast<int64_t>(p % 2) * most;
          const auto dim = static_cast<size_t>(order[p]);
          size[dim] = passes[p].out();
          int64_t outer = 1, inner = 1;
          for (size_t d = 0; d < 3; ++d) (d < dim ? outer : inner) *= d == dim ? 1 : size[d];
          passes[p].run(source, target, 0, outer * size[dim], inner, last && stream);
          source = target;
        }
      }
      if (stream) finish_streaming();
    });
  });
}

/// All passes of `order`; a pass turns axes[i].*from cells into axes[i].*to.
template <template <class> class Pass>
void all_passes(const char* function, const Tensor& input, const std::vector<int64_t>& order,
                const InterpolateAxes& axes, int64_t InterpolateAxis::*to, Tensor& output) {
  if (order.empty()) return copy(input, output);
  Tensor x = input.contiguous();
  if (goes_plane_by_plane(x, output)) return passes_by_plane<Pass>(function, x, order, axes, output);
  for (const int64_t i : order) {
    const InterpolateAxis& axis = axes[static_cast<size_t>(i)];
    Shape shape = x.shape();
    shape[2 + i] = axis.*to;
    Tensor y = i == order.back() ? output : detail::empty_for("interpolate", shape, x.options());
    one_pass<Pass>(function, x, 2 + i, axis, y);
    x = y;
  }
}

/// The axes to resize. Those that shrink come first, so that no intermediate is larger than both input and
/// output. Those that grow come from W to D, because an upsampled W makes the rows of the later passes long.
std::vector<int64_t> pass_order(const InterpolateAxes& axes) {
  std::vector<int64_t> order;
  for (size_t i : {0, 1, 2})
    if (axes[i].out < axes[i].in) order.push_back(static_cast<int64_t>(i));
  for (size_t i : {2, 1, 0})
    if (axes[i].out > axes[i].in) order.push_back(static_cast<int64_t>(i));
  return order;
}

}  // namespace

void interpolate(const Tensor& x, const InterpolateAxes& axes, Tensor& y) {
  all_passes<ForwardPass>("interpolate", x, pass_order(axes), axes, &InterpolateAxis::out, y);
}

void interpolate_adjoint(const Tensor& grad_y, const InterpolateAxes& axes, Tensor& grad_x) {
  std::vector<int64_t> order = pass_order(axes);
  std::reverse(order.begin(), order.end());
  all_passes<AdjointPass>("interpolate_adjoint", grad_y, order, axes, &InterpolateAxis::in, grad_x);
}

}  // namespace vox::cpu
