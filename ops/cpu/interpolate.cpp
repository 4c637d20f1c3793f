// Interpolation and its adjoint, one axis after the other: a pass sees x as (outer, in, inner) and y as
// (outer, out, inner). Both directions gather through the same table of taps, so they are exact transposes of
// each other. An element of the forward costs two reads, one write and at most three operations.
//
// interpolate_passes runs all passes plane by plane, so that intermediate results stay in the cache. The bits
// are those of one pass at a time.

#include <voxgrad/core/factories.h>
#include <voxgrad/core/parallel.h>
#include <voxgrad/ops/cpu/interpolate_interleaved.h>
#include <voxgrad/ops/cpu/interpolate_pass.h>
#include <voxgrad/ops/cpu/walk.h>
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

template <template <class> class Pass>
void all_passes(const char* function, const Tensor& x_of_any_strides, const std::vector<int64_t>& order,
                const InterpolateAxes& axes, Tensor& y) {
  const Tensor x = x_of_any_strides.contiguous();
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

}  // namespace

void interpolate_axis(const Tensor& x, int64_t dim, const InterpolateAxis& axis, Tensor& y) {
  one_pass<ForwardPass>("interpolate", x, dim, axis, y);
}

void interpolate_axis_adjoint(const Tensor& grad_y, int64_t dim, const InterpolateAxis& axis,
                              Tensor& grad_x) {
  one_pass<AdjointPass>("interpolate_adjoint", grad_y, dim, axis, grad_x);
}

void interpolate_passes(const Tensor& x, const std::vector<int64_t>& order, const InterpolateAxes& axes,
                        Tensor& y) {
  if (!interpolate_interleaved(x, order, axes, y)) all_passes<ForwardPass>("interpolate", x, order, axes, y);
}

void interpolate_passes_adjoint(const Tensor& grad_y, const std::vector<int64_t>& order,
                                const InterpolateAxes& axes, Tensor& grad_x) {
  if (!interpolate_interleaved_adjoint(grad_y, order, axes, grad_x))
    all_passes<AdjointPass>("interpolate_adjoint", grad_y, order, axes, grad_x);
}

}  // namespace vox::cpu
