#include <voxgrad/autograd/shared_nodes.h>
#include <voxgrad/core/new_tensor.h>
#include <voxgrad/ops/added_axes.h>
#include <voxgrad/ops/dispatch.h>
#include <voxgrad/ops/in_f32.h>
#include <voxgrad/ops/indexing.h>
#include <voxgrad/ops/layer_kernels.h>
#include <voxgrad/ops/pool3d.h>
#include <voxgrad/ops/reduce.h>

#include <algorithm>
#include <limits>

namespace vox {

// Pooling consists of max_pool3d and of these recorded maps, each linear for fixed indices:
//
//   max_pool3d_gather          y[window] = x[indices[window]]
//   max_pool3d_scatter_add     its adjoint: x[cell] = the sum of y over the windows with this index
//   avg_pool3d, avg_pool3d_adjoint
//
// Adaptive pooling is pooling with another geometry. `function` is the public call, for errors.
namespace detail {
/// With i64 indices if `with_indices`.
ValuesAndIndices max_pool3d(const char* function, const Tensor& x, const Pool3dGeometry& geometry,
                            bool with_indices);
Tensor max_pool3d_gather(const Tensor& x, const Tensor& indices, const Pool3dGeometry& geometry);
Tensor max_pool3d_scatter_add(const Tensor& y, const Tensor& indices, const Pool3dGeometry& geometry);
Tensor avg_pool3d(const char* function, const Tensor& x, const Pool3dGeometry& geometry);
Tensor avg_pool3d_adjoint(const Tensor& y, const Pool3dGeometry& geometry);
}  // namespace detail

using autograd::linear, autograd::linear_keeping;

namespace {

constexpr ByDevice max_kernel{"max_pool3d", in_f32<&cpu::max_pool3d>, VOX_CUDA(&cuda::max_pool3d)};
constexpr ByDevice gather_kernel{"max_pool3d", in_f32<&cpu::max_pool3d_gather>,
                                 VOX_CUDA(&cuda::max_pool3d_gather)};
constexpr ByDevice scatter_add_kernel{"max_pool3d", in_f32<&cpu::max_pool3d_scatter_add>,
                                      VOX_CUDA(&cuda::max_pool3d_scatter_add)};
constexpr ByDevice avg_kernel{"avg_pool3d", in_f32<&cpu::avg_pool3d>, VOX_CUDA(&cuda::avg_pool3d)};
constexpr ByDevice avg_adjoint_kernel{"avg_pool3d", in_f32<&cpu::avg_pool3d_adjoint>,
                                      VOX_CUDA(&cuda::avg_pool3d_adjoint)};

// Larger than any tensor, and small enough that no later sum overflows int64_t.
constexpr int64_t limit = std::numeric_limits<int64_t>::max() / 8;

/// Checks one axis of the options, without an input. Returns the extent of a window.
int64_t checked_extent(const char* function, int64_t kernel, int64_t stride, int64_t padding,
                       int64_t dilation) {
  check<ValueError>(kernel >= 1 && stride >= 1 && dilation >= 1, function,
                    ": kernel_size, stride and dilation must be >= 1, got ", kernel, ", ", stride, ", ",
                    dilation);
  check<ValueError>(padding >= 0 && padding <= kernel / 2, function,
                    ": padding must be from 0 to kernel_size / 2 = ", kernel / 2, ", got ", padding);
  int64_t reach;
  const bool overflows = __builtin_mul_overflow(dilation, kernel - 1, &reach) || reach >= limit - 1;
  check<ValueError>(!overflows && kernel < limit && stride < limit, function,
                    ": kernel_size, stride and dilation * (kernel_size - 1) must stay below 2^60, got ",
                    "kernel_size ", kernel, ", stride ", stride, " and dilation ", dilation);
  return reach + 1;
}

/// Number of windows on one axis (PyTorch's pooling_output_shape).
int64_t window_count(const char* function, int64_t in, int64_t kernel, int64_t stride, int64_t padding,
                     int64_t dilation, bool ceil_mode) {
  const int64_t extent = checked_extent(function, kernel, stride, padding, dilation);
  check<ShapeError>(in < limit, function, ": D, H and W of the input must stay below 2^60, got ", in);
  const int64_t room = in + 2 * padding - extent + (ceil_mode ? stride - 1 : 0);
  int64_t out = room >= 0 ? room / stride + 1 : 0;
  if (ceil_mode && out > 0 && (out - 1) * stride >= in + padding) --out;
  check<ShapeError>(out >= 1, function, ": no window fits: input size ", in, " with padding ", padding,
                    " is smaller than the window's extent ", extent);
  return out;
}

/// Checks the last `axes` sizes of an input.
void check_cells(const char* function, const Shape& shape, int64_t axes) {
  check<ShapeError>(std::all_of(shape.end() - axes, shape.end(), [](int64_t size) { return size >= 1; }),
                    function,
                    ": the sizes of the input must be >= 1, except those of batch and channels, got ", shape);
}

/// The input's D, H and W.
Triple checked_size(const char* function, const Tensor& input) {
  detail::check_defined(function, "input", input);
  const Shape& shape = input.shape();
  const int64_t rank = shape.rank();
  check<ShapeError>(rank == 4 || rank == 5, function,
                    ": the input must be (N, C, D, H, W) or (C, D, H, W), got ", shape);
  detail::check_floating(function, "input", input);
  check_cells(function, shape, 3);
  return {shape[rank - 3], shape[rank - 2], shape[rank - 1]};
}

Pool3dGeometry make_geometry(const char* function, const Tensor& input, const Triple& kernel,
                             const OptionalTriple& stride, const Triple& padding, const Triple& dilation,
                             bool ceil_mode) {
  Pool3dGeometry g{.in = checked_size(function, input),
                   .out = {},
                   .kernel = kernel,
                   .stride = stride.value_or(kernel),
                   .padding = padding,
                   .dilation = dilation};
  for (int64_t i = 0; i < 3; ++i) {
    g.out[i] = window_count(function, g.in[i], g.kernel[i], g.stride[i], padding[i], dilation[i], ceil_mode);
    // An unused stride or dilation may be larger than any tensor.
    if (g.out[i] == 1) g.stride[i] = 1;
    if (g.kernel[i] == 1) g.dilation[i] = 1;
  }
  return g;
}

/// Adaptive windows of equal size are ordinary ones.
Pool3dGeometry adaptive_geometry(const char* function, const Tensor& input, const Triple& out) {
  Pool3dGeometry g{.in = checked_size(function, input), .out = out};
  detail::check_output_size(function, out);
  for (int64_t i = 0; i < 3; ++i) {
    int64_t product;
    check<ShapeError>(!__builtin_mul_overflow(g.in[i], out[i], &product) && product < limit, function,
                      ": input size * output_size must stay below 2^60, got ", g.in[i], " and ", out[i]);
    g.adaptive = g.adaptive || g.in[i] % out[i] != 0;
  }
  if (g.adaptive) return g;
  return make_geometry(function, input, {g.in.d / out.d, g.in.h / out.h, g.in.w / out.w}, {}, 0, 1, false);
}

/// Unwritten memory like `t`, with D, H, W replaced by `size`.
Tensor empty_with(const char* function, const Tensor& t, const Triple& size) {
  Shape shape = t.shape();
  for (int64_t i = 0; i < 3; ++i) shape[shape.rank() - 3 + i] = size[i];
  return detail::empty_for(function, shape, t.options());
}

}  // namespace

// ---- Maximum ----------------------------------------------------------------------------------------------
namespace detail {

ValuesAndIndices max_pool3d(const char* function, const Tensor& x, const Pool3dGeometry& geometry,
                            bool with_indices) {
  Tensor y = empty_with(function, x, geometry.out), indices;
  if (autograd::is_recorded(x) || with_indices) {
    const bool small = y.device().is_cuda() && geometry.has_small_windows() && !with_indices;
    indices = empty_for(function, y.shape(), {small ? u8 : i64, y.device()});
  }
  if (y.numel() > 0) max_kernel.on(y.device())(x.detach(), geometry, y, indices);
  linear_keeping(indices, "max_pool3d", {x}, y, [geometry](const Tensor& g, const Tensor& kept) {
    return max_pool3d_scatter_add(g, kept, geometry);
  });
  return {y, indices};
}

void check_options(const char* function, const MaxPool3dOptions& o) {
  const Triple stride = o.stride.value_or(o.kernel_size);
  for (int64_t i = 0; i < 3; ++i)
    checked_extent(function, o.kernel_size[i], stride[i], o.padding[i], o.dilation[i]);
}

Tensor max_pool3d_gather(const Tensor& x, const Tensor& indices, const Pool3dGeometry& geometry) {
  Tensor y = empty_with("max_pool3d", x, geometry.out);
  if (y.numel() > 0) gather_kernel.on(y.device())(x.detach().contiguous(), indices, geometry, y);
  return linear_keeping(
      indices, "max_pool3d_gather", {x}, y,
      [geometry](const Tensor& g, const Tensor& kept) { return max_pool3d_scatter_add(g, kept, geometry); });
}

Tensor max_pool3d_scatter_add(const Tensor& y, const Tensor& indices, const Pool3dGeometry& geometry) {
  Tensor x = empty_with("max_pool3d", y, geometry.in);
  if (x.numel() > 0) scatter_add_kernel.on(x.device())(y.detach().contiguous(), indices, geometry, x);
  return linear_keeping(
      indices, "max_pool3d_scatter_add", {y}, x,
      [geometry](const Tensor& g, const Tensor& kept) { return max_pool3d_gather(g, kept, geometry); });
}

}  // namespace detail

namespace {
Pool3dGeometry max_geometry(const char* function, const Tensor& input, const MaxPool3dOptions& o) {
  return make_geometry(function, input, o.kernel_size, o.stride, o.padding, o.dilation, o.ceil_mode);
}
Tensor max_pooled(const char* function, const Tensor& input, const MaxPool3dOptions& o) {
  return detail::max_pool3d(function, input, max_geometry(function, input, o), false).values;
}
ValuesAndIndices max_pooled_with_indices(const char* function, const Tensor& input,
                                         const MaxPool3dOptions& o) {
  return detail::max_pool3d(function, input, max_geometry(function, input, o), true);
}

Tensor adaptive_max_pooled(const char* function, const Tensor& input, const Triple& output_size) {
  const Pool3dGeometry geometry = adaptive_geometry(function, input, output_size);
  if (output_size != Triple(1)) return detail::max_pool3d(function, input, geometry, false).values;
  // One window of all cells is a row for a reduction, which many threads share.
  const Tensor indices = argmax(input.detach().contiguous(), {-3, -2, -1}, true);
  return detail::max_pool3d_gather(input, indices, geometry);
}
}  // namespace

// ---- Mean -------------------------------------------------------------------------------------------------
namespace detail {

void check_output_size(const char* function, const Triple& output_size) {
  check<ShapeError>(output_size.d >= 1 && output_size.h >= 1 && output_size.w >= 1, function,
                    ": output_size must be >= 1, got ", output_size);
}

void check_options(const char* function, const AvgPool3dOptions& o) {
  check<ValueError>(o.divisor_override != 0, function, ": divisor_override must not be 0");
  check_options(function,
                MaxPool3dOptions{.kernel_size = o.kernel_size, .stride = o.stride, .padding = o.padding});
}

Tensor avg_pool3d(const char* function, const Tensor& x, const Pool3dGeometry& geometry) {
  Tensor y = empty_with(function, x, geometry.out);
  if (y.numel() > 0) avg_kernel.on(y.device())(x.detach(), geometry, y);
  return linear("avg_pool3d", {x}, y,
                [geometry](const Tensor& g) { return avg_pool3d_adjoint(g, geometry); });
}

Tensor avg_pool3d_adjoint(const Tensor& y, const Pool3dGeometry& geometry) {
  Tensor x = empty_with("avg_pool3d", y, geometry.in);
  if (x.numel() > 0) avg_adjoint_kernel.on(x.device())(y.detach().contiguous(), geometry, x);
  return linear("avg_pool3d_adjoint", {y}, x,
                [geometry](const Tensor& g) { return avg_pool3d("avg_pool3d", g, geometry); });
}

}  // namespace detail

namespace {

Tensor avg_pooled(const char* function, const Tensor& input, const AvgPool3dOptions& o) {
  Pool3dGeometry geometry =
      make_geometry(function, input, o.kernel_size, o.stride, o.padding, 1, o.ceil_mode);
  for (int64_t i = 0; i < 3; ++i)  // ceil_mode lets a window reach beyond the padding
    check<ShapeError>(geometry.kernel[i] <= geometry.in[i] + 2 * geometry.padding[i], function,
                      ": the input with its padding must not be smaller than kernel_size ",
                      geometry.kernel[i], ", got size ", geometry.in[i], " with padding ",
                      geometry.padding[i]);
  check<ValueError>(o.divisor_override != 0, function, ": divisor_override must not be 0");
  geometry.count_include_pad = o.count_include_pad;
  geometry.divisor_override = o.divisor_override.value_or(0);
  return detail::avg_pool3d(function, input, geometry);
}

Tensor adaptive_avg_pooled(const char* function, const Tensor& input, const Triple& output_size) {
  const Pool3dGeometry geometry = adaptive_geometry(function, input, output_size);
  if (output_size == Triple(1)) return mean(input, {-3, -2, -1}, true);
  return detail::avg_pool3d(function, input, geometry);
}

// ---- One and two dimensions are three, with one cell on the added axes ------------------------------------

using detail::lift, detail::without_added_axes;

template <class Size>
MaxPool3dOptions lifted(const MaxPoolOptions<Size>& o) {
  return {.kernel_size = lift(o.kernel_size, 1),
          .stride = lift(o.stride, 1),
          .padding = lift(o.padding, 0),
          .dilation = lift(o.dilation, 1),
          .ceil_mode = o.ceil_mode};
}

template <class Size>
MaxUnpoolOptions<Triple, OptionalTriple> lifted(const MaxUnpoolOptions<Size>& o) {
  return {.kernel_size = lift(o.kernel_size, 1),
          .stride = lift(o.stride, 1),
          .padding = lift(o.padding, 0),
          .output_size = lift(o.output_size, 1)};
}

template <class Size>
AvgPool3dOptions lifted(const AvgPoolOptions<Size>& o) {
  return {.kernel_size = lift(o.kernel_size, 1),
          .stride = lift(o.stride, 1),
          .padding = lift(o.padding, 0),
          .ceil_mode = o.ceil_mode,
          .count_include_pad = o.count_include_pad,
          .divisor_override = o.divisor_override};
}

/// The output_size of an adaptive pool, checked here, where it is as the caller wrote it.
template <class Size>
Triple lift_output(const char* function, const Size& size) {
  const Triple lifted = lift(size, 1);
  check<ShapeError>(std::min(lifted.h, lifted.w) >= 1, function, ": output_size must be >= 1, got ", size);
  return lifted;
}

/// Checks an input of this many axes of cells.
void check_axes(const char* function, const Tensor& input, int64_t axes) {
  detail::check_defined(function, "input", input);
  check<ShapeError>(input.rank() == axes + 2 || input.rank() == axes + 1, function, ": the input must have ",
                    axes + 2, " dimensions, or ", axes + 1, " without a batch, got shape ", input.shape());
  check_cells(function, input.shape(), axes);
}

ValuesAndIndices without_added_axes(const ValuesAndIndices& y, int64_t axes) {
  return {detail::without_added_axes(y.values, axes), detail::without_added_axes(y.indices, axes)};
}

/// pool(function, the input with axes added, options), without these axes.
template <class Pool, class Options>
auto lowered(const char* function, int64_t axes, const Tensor& input, const Pool& pool,
             const Options& options) {
  check_axes(function, input, axes);
  return without_added_axes(pool(function, detail::with_added_axes(input, axes), options), axes);
}

Tensor unpooled(const char* function, int64_t axes, const Tensor& x, const Tensor& indices,
                const MaxUnpoolOptions<Triple, OptionalTriple>& o) {
  check_axes(function, x, axes);
  detail::check_floating(function, "input", x);
  detail::check_defined(function, "indices", indices);
  check<ShapeError>(indices.shape() == x.shape(), function, ": indices must have the input's shape ",
                    x.shape(), ", got ", indices.shape());
  const Triple stride = o.stride.value_or(o.kernel_size);
  Shape shape = x.shape(), rows = x.shape();
  int64_t cells = 1;
  for (int64_t i = 3 - axes; i < 3; ++i) {
    checked_extent(function, o.kernel_size[i], stride[i], o.padding[i], 1);
    int64_t& size = shape[x.rank() - 3 + i];
    const int64_t steps = checked_mul(function, size - 1, stride[i]);
    size = o.output_size ? (*o.output_size)[i]
                         : checked_add(function, steps, o.kernel_size[i] - 2 * o.padding[i]);
    check<ShapeError>(size >= 1, function, ": output sizes must be >= 1, got ", size);
    cells = checked_mul(function, cells, size);
    rows.erase(rows.rank() - 1);
  }
  rows.push_back(cells);
  return in_the_name_of(function, [&] {
    return scatter(zeros(rows, x.options()), -1, indices.flatten(-axes, -1), x.flatten(-axes, -1))
        .reshape(shape);
  });
}

}  // namespace

Tensor max_pool1d(const Tensor& input, const MaxPool1dOptions& options) {
  return lowered("max_pool1d", 1, input, max_pooled, lifted(options));
}
Tensor max_pool2d(const Tensor& input, const MaxPool2dOptions& options) {
  return lowered("max_pool2d", 2, input, max_pooled, lifted(options));
}
Tensor max_pool3d(const Tensor& input, const MaxPool3dOptions& options) {
  return max_pooled("max_pool3d", input, options);
}

ValuesAndIndices max_pool1d_with_indices(const Tensor& input, const MaxPool1dOptions& options) {
  return lowered("max_pool1d_with_indices", 1, input, max_pooled_with_indices, lifted(options));
}
ValuesAndIndices max_pool2d_with_indices(const Tensor& input, const MaxPool2dOptions& options) {
  return lowered("max_pool2d_with_indices", 2, input, max_pooled_with_indices, lifted(options));
}
ValuesAndIndices max_pool3d_with_indices(const Tensor& input, const MaxPool3dOptions& options) {
  return max_pooled_with_indices("max_pool3d_with_indices", input, options);
}

Tensor max_unpool1d(const Tensor& input, const Tensor& indices, const MaxUnpoolOptions<int64_t>& options) {
  return unpooled("max_unpool1d", 1, input, indices, lifted(options));
}
Tensor max_unpool2d(const Tensor& input, const Tensor& indices, const MaxUnpoolOptions<Pair>& options) {
  return unpooled("max_unpool2d", 2, input, indices, lifted(options));
}
Tensor max_unpool3d(const Tensor& input, const Tensor& indices,
                    const MaxUnpoolOptions<Triple, OptionalTriple>& options) {
  return unpooled("max_unpool3d", 3, input, indices, options);
}

Tensor avg_pool1d(const Tensor& input, const AvgPool1dOptions& options) {
  return lowered("avg_pool1d", 1, input, avg_pooled, lifted(options));
}
Tensor avg_pool2d(const Tensor& input, const AvgPool2dOptions& options) {
  return lowered("avg_pool2d", 2, input, avg_pooled, lifted(options));
}
Tensor avg_pool3d(const Tensor& input, const AvgPool3dOptions& options) {
  return avg_pooled("avg_pool3d", input, options);
}

Tensor adaptive_max_pool1d(const Tensor& input, Int output_size) {
  return lowered("adaptive_max_pool1d", 1, input, adaptive_max_pooled,
                 lift_output("adaptive_max_pool1d", output_size));
}
Tensor adaptive_max_pool2d(const Tensor& input, const Pair& output_size) {
  return lowered("adaptive_max_pool2d", 2, input, adaptive_max_pooled,
                 lift_output("adaptive_max_pool2d", output_size));
}
Tensor adaptive_max_pool3d(const Tensor& input, const Triple& output_size) {
  return adaptive_max_pooled("adaptive_max_pool3d", input, output_size);
}

Tensor adaptive_avg_pool1d(const Tensor& input, Int output_size) {
  return lowered("adaptive_avg_pool1d", 1, input, adaptive_avg_pooled,
                 lift_output("adaptive_avg_pool1d", output_size));
}
Tensor adaptive_avg_pool2d(const Tensor& input, const Pair& output_size) {
  return lowered("adaptive_avg_pool2d", 2, input, adaptive_avg_pooled,
                 lift_output("adaptive_avg_pool2d", output_size));
}
Tensor adaptive_avg_pool3d(const Tensor& input, const Triple& output_size) {
  return adaptive_avg_pooled("adaptive_avg_pool3d", input, output_size);
}

}  // namespace vox
