// Interpolation and its adjoint, one axis after the other: a pass sees x as (outer, in, inner) and y as
// (outer, out, inner). Both directions gather through the same table of taps, so they are exact transposes of
// each other. An element of the forward costs two reads, one write and at most three operations.
//
// Many small planes are resized a few at a time, so that intermediate results stay in the cache. Otherwise a
// pass takes the whole tensor. The bits are the same.

#include <voxgrad/core/factories.h>
#include <voxgrad/core/parallel.h>
#include <voxgrad/ops/cpu/interpolate_pass.h>
#include <voxgrad/ops/cpu/walk.h>
#include <voxgrad/ops/layer_kernels.h>

#include <algorithm>
#include <vector>

namespace vox::cpu {

namespace {

/// Resizes along the axes of `order`, with a pass for each.
template <template <class> class Pass>
void all_passes(const char* function, const Tensor& input, const std::vector<int64_t>& order,
                const InterpolateAxes& axes, Tensor& output) {
  if (output.numel() == 0) return;
  if (order.empty()) return copy(input, output);
  constexpr int64_t chunk_elements = 32768, enough_planes = 16, most_elements = int64_t{1} << 21;
  const Tensor x = input.contiguous();
  const int64_t planes = x.size(0) * x.size(1), plane_in = x.numel() / planes,
                plane_out = output.numel() / planes, larger = std::max(plane_in, plane_out);
  const bool by_plane = planes >= enough_planes && larger <= most_elements;
  const bool stream = by_plane && output.numel() * size_of(output.dtype()) >= stream_bytes;
  visit_floating(function, output.dtype(), [&]<class T>(T) {
    std::vector<Pass<T>> passes;
    for (const int64_t axis : order) passes.emplace_back(axes[static_cast<size_t>(axis)]);
    const int64_t together = by_plane ? std::max<int64_t>(1, chunk_elements / larger) : planes;
    parallel_for(planes, together, [&](int64_t first, int64_t end) {
      Triple size{x.size(2), x.size(3), x.size(4)};
      Tensor memory;  // of `from`
      const T* from = detail::ptr<T>(x) + first * plane_in;
      for (size_t p = 0; p < passes.size(); ++p) {
        const int64_t axis = order[p], inner = axis == 0 ? size.h * size.w : axis == 1 ? size.w : 1;
        size[axis] = passes[p].out();
        const int64_t elements = (end - first) * size.d * size.h * size.w;
        const bool last = p + 1 == passes.size();
        const Tensor y = last ? output : detail::empty_for("interpolate", {elements}, x.options());
        T* const to = detail::mutable_ptr<T>(y) + (last ? first * plane_out : 0);
        // In one chunk of planes, all threads share the rows.
        parallel_for(elements / inner, std::max<int64_t>(1, chunk_elements / inner),
                     [&](int64_t begin, int64_t stop) {
                       passes[p].run(from, to, begin, stop, inner, last && stream);
                       if (last && stream) finish_streaming();
                     });
        from = to, memory = y;
      }
    });
  });
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
  all_passes<ForwardPass>("interpolate", x, pass_order(axes), axes, y);
}

void interpolate_adjoint(const Tensor& grad_y, const InterpolateAxes& axes, Tensor& grad_x) {
  std::vector<int64_t> order = pass_order(axes);
  std::reverse(order.begin(), order.end());
  all_passes<AdjointPass>("interpolate_adjoint", grad_y, order, axes, grad_x);
}

}  // namespace vox::cpu
