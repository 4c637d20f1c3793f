#include <voxgrad/ops/conv3d_geometry.h>

#include <algorithm>
#include <limits>

namespace vox::detail {

std::ostream& operator<<(std::ostream& out, const Caller::Axes& axes) {
  if (axes.spatial == 3) return out << axes.triple;
  if (axes.spatial == 1) return out << axes.triple.w;
  return out << '(' << axes.triple.h << ',' << axes.triple.w << ')';
}

std::ostream& operator<<(std::ostream& out, const Caller::Sizes& sizes) {
  Shape shape = sizes.shape;
  for (int64_t i = sizes.spatial; i < 3; ++i) shape.erase(2);
  if (!sizes.batched) shape.erase(0);
  return out << shape;
}

namespace {

void check_at_least(const Caller& function, const char* argument, const Triple& got, int64_t least) {
  check<ValueError>(std::min({got.d, got.h, got.w}) >= least, function, ": ", argument, " must be >= ", least,
                    " on every axis, got ", function.axes(got));
}

/// The cells of an input or weight: (D,H,W) of a shape of rank 5. Throws if one is 0.
Triple extents(const Caller& function, const char* argument, const Shape& shape,
               const Caller::Sizes& as_written_by_caller) {
  check<ShapeError>(shape.rank() == 5, function, ": ", argument, " must have 5 dimensions, got shape ",
                    shape);
  check<ShapeError>(std::min({shape[1], shape[2], shape[3], shape[4]}) >= 1, function, ": ", argument,
                    " must have at least one channel and one cell on every axis, got shape ",
                    as_written_by_caller);
  return {shape[2], shape[3], shape[4]};
}

/// dilation * (kernel - 1): how far the last tap lies from the first.
int64_t reach(const Caller& function, const Triple& kernel, const Triple& dilation, int64_t axis) {
  int64_t cells;
  check<ShapeError>(!__builtin_mul_overflow(dilation[axis], kernel[axis] - 1, &cells), function,
                    ": dilation * (kernel_size - 1) must fit 64 bits, got dilation ", function.axes(dilation),
                    " and kernel_size ", function.axes(kernel));
  return cells;
}
int64_t reach(const Caller& function, const Conv3dGeometry& g, int64_t axis) {
  return reach(function, g.kernel, g.dilation, axis);
}

/// The checks of options that all builders share.
template <class Options>
void check_steps(const Caller& function, const Triple& kernel, const Options& options) {
  check_at_least(function, "kernel_size", kernel, 1);
  check_at_least(function, "stride", options.stride, 1);
  check_at_least(function, "padding", options.padding, 0);
  check_at_least(function, "dilation", options.dilation, 1);
  check<ValueError>(options.groups >= 1, function, ": groups must be >= 1, got ", options.groups);
  for (int64_t axis = 0; axis < 3; ++axis) {
    check<ShapeError>(options.padding[axis] < int64_t{1} << 62, function,
                      ": padding must be below 2^62 on every axis, got ", function.axes(options.padding));
    reach(function, kernel, options.dilation, axis);
  }
}

/// Copies the options into g, whose kernel is already set.
template <class Options>
void take_options(const Caller& function, const Options& options, Conv3dGeometry& g) {
  g.groups = options.groups;
  g.stride = options.stride;
  g.padding = options.padding;
  g.dilation = options.dilation;
  check_options(function, g.kernel, options);
}

void check_groups(const Caller& function, const char* what, int64_t channels, int64_t groups) {
  check<ShapeError>(channels % groups == 0, function, ": groups must divide the ", what, ", got groups ",
                    groups, " and ", channels, " channels");
}

/// floor((big + 2 padding - reach - 1) / stride) + 1, the number of coarse cells whose taps all lie in the
/// padded fine grid.
Triple conv3d_output(const Caller& function, const Conv3dGeometry& g) {
  Triple output;
  for (int64_t axis = 0; axis < 3; ++axis) {
    const int64_t padded = checked_add(function, g.big[axis], checked_mul(function, 2, g.padding[axis]));
    const int64_t room = padded - reach(function, g, axis) - 1;
    output[axis] = room < 0 ? 0 : room / g.stride[axis] + 1;
  }
  check<ShapeError>(std::min({output.d, output.h, output.w}) >= 1, function,
                    ": the output would be empty: input ", function.axes(g.big), " with padding ",
                    function.axes(g.padding), " is smaller than kernel ", function.axes(g.kernel),
                    " with dilation ", function.axes(g.dilation), "; use more padding or a smaller kernel");
  return output;
}

/// (small - 1) * stride - 2 padding + reach + 1: the fine cells without output_padding. May be <= 0.
Triple conv_transpose3d_output(const Caller& function, const Conv3dGeometry& g) {
  Triple output;
  for (int64_t axis = 0; axis < 3; ++axis) {
    const int64_t last_cell = checked_mul(function, g.small[axis] - 1, g.stride[axis]);
    const int64_t full = checked_add(function, checked_add(function, last_cell, reach(function, g, axis)), 1);
    output[axis] = full - checked_mul(function, 2, g.padding[axis]);
  }
  return output;
}

/// The largest legal output_padding: one more gives a size that a longer input reaches.
Triple most_output_padding(const Triple& stride, const Triple& dilation) {
  Triple most;
  for (int64_t axis = 0; axis < 3; ++axis) most[axis] = std::max(stride[axis], dilation[axis]) - 1;
  return most;
}

/// a + b for b >= 0, or the largest int64_t if that overflows.
int64_t saturated_add(int64_t a, int64_t b) {
  int64_t sum;
  return __builtin_add_overflow(a, b, &sum) ? std::numeric_limits<int64_t>::max() : sum;
}

/// The fine grid that the options ask for, by output_padding or by output_size.
Triple conv_transpose3d_size(const Caller& function, const Conv3dGeometry& g,
                             const ConvTranspose3dOptions& options) {
  const Triple least = conv_transpose3d_output(function, g),
               most_padding = most_output_padding(g.stride, g.dilation);
  const Triple size = options.output_size.value_or(Triple());
  check<ValueError>(!options.output_size || options.output_padding == Triple(0), function,
                    ": give output_size or output_padding, not both, got ", function.axes(size), " and ",
                    function.axes(options.output_padding));
  Triple padding = options.output_padding, most;
  bool legal = true;
  for (int64_t axis = 0; axis < 3; ++axis) {
    if (options.output_size && __builtin_sub_overflow(size[axis], least[axis], &padding[axis])) legal = false;
    legal &= padding[axis] >= 0 && padding[axis] <= most_padding[axis];
    most[axis] = saturated_add(least[axis], most_padding[axis]);
  }
  check<ShapeError>(legal, function, ": output_size ", function.axes(size),
                    " is not reachable: ", function.axes(least), " to ", function.axes(most),
                    " are, with output_padding ", function.axes(0), " to ", function.axes(most_padding));
  Triple output;
  for (int64_t axis = 0; axis < 3; ++axis) output[axis] = checked_add(function, least[axis], padding[axis]);
  check<ShapeError>(std::min({output.d, output.h, output.w}) >= 1, function,
                    ": the output would be empty, of size ", function.axes(output), ": input ",
                    function.axes(g.small), " with stride ", function.axes(g.stride), " and kernel ",
                    function.axes(g.kernel), " is cropped by padding ", function.axes(g.padding),
                    " at both ends; use less padding");
  return output;
}

/// Refuses element counts that no 64-bit index can address.
Conv3dGeometry checked(const Caller& function, const Conv3dGeometry& g) {
  const Shape big = g.big_shape(), small = g.small_shape(), weight = g.weight_shape();
  for (const Caller::Sizes& sizes : {function.input(big), function.input(small), function.weight(weight)})
    check<ShapeError>(is_countable(sizes.shape, 8), function,
                      ": a tensor of a convolution has at most 2^60 - 1 elements, got shape ", sizes);
  return g;
}

}  // namespace

void check_options(const Caller& function, const Triple& kernel_size, const Conv3dOptions& options) {
  check_steps(function, kernel_size, options);
}

void check_options(const Caller& function, const Triple& kernel_size, const ConvTranspose3dOptions& options) {
  check_steps(function, kernel_size, options);
  const Triple &padding = options.output_padding,
               most = most_output_padding(options.stride, options.dilation);
  check_at_least(function, "output_padding", padding, 0);
  check<ValueError>(padding.d <= most.d && padding.h <= most.h && padding.w <= most.w, function,
                    ": output_padding must be smaller than stride or dilation, got ", function.axes(padding),
                    " with stride ", function.axes(options.stride), " and dilation ",
                    function.axes(options.dilation), "; allowed are ", function.axes(0), " to ",
                    function.axes(most));
}

Conv3dGeometry conv3d_geometry(const Caller& function, const Shape& input, const Shape& weight,
                               const Conv3dOptions& options) {
  Conv3dGeometry g;
  g.big = extents(function, "input", input, function.input(input));
  g.kernel = extents(function, "weight", weight, function.weight(weight));
  g.batch = input[0];
  g.big_channels = input[1];
  g.small_channels = weight[0];
  take_options(function, options, g);
  check_groups(function, "input channels", g.big_channels, g.groups);
  check_groups(function, "output channels (weight dimension 0)", g.small_channels, g.groups);
  check<ShapeError>(g.small_channels >= 1, function, ": weight must have at least one output channel, got ",
                    function.weight(weight));
  check<ShapeError>(weight[1] == g.big_per_group(), function, ": weight must be (C_out, C_in/groups, ",
                    function.taps(), ") with C_in/groups = ", g.big_per_group(), ", got weight ",
                    function.weight(weight), " for input ", function.input(input), " and groups ", g.groups);
  g.small = conv3d_output(function, g);
  return checked(function, g);
}

Conv3dGeometry conv_transpose3d_geometry(const Caller& function, const Shape& input, const Shape& weight,
                                         const ConvTranspose3dOptions& options) {
  Conv3dGeometry g;
  g.small = extents(function, "input", input, function.input(input));
  g.kernel = extents(function, "weight", weight, function.weight(weight));
  g.batch = input[0];
  g.small_channels = input[1];
  take_options(function, options, g);
  check<ShapeError>(weight[0] == g.small_channels, function, ": weight must be (C_in, C_out/groups, ",
                    function.taps(), ") with C_in = ", g.small_channels, ", got weight ",
                    function.weight(weight), " for input ", function.input(input));
  check_groups(function, "input channels", g.small_channels, g.groups);
  g.big_channels = checked_mul(function, weight[1], g.groups);
  g.big = conv_transpose3d_size(function, g, options);
  return checked(function, g);
}

Conv3dGeometry conv3d_weight_grad_geometry(const Shape& big, const Shape& small, Triple kernel_size,
                                           const Conv3dOptions& options) {
  const Caller function = "conv3d_weight_grad";
  Conv3dGeometry g;
  g.big = extents(function, "big", big, function.input(big));
  g.kernel = kernel_size;
  g.batch = big[0];
  g.big_channels = big[1];
  take_options(function, options, g);
  const Triple small_extents = extents(function, "small", small, function.input(small));
  g.small_channels = small[1];
  check<ShapeError>(small[0] == g.batch, function, ": big and small must have one batch size, got ", big,
                    " and ", small);
  check_groups(function, "channels of big", g.big_channels, g.groups);
  check_groups(function, "channels of small", g.small_channels, g.groups);
  g.small = conv3d_output(function, g);
  check<ShapeError>(g.small == small_extents, function, ": conv3d takes big ", big, " with kernel_size ",
                    g.kernel, " to the grid ", g.small, ", but small has ", small_extents);
  return checked(function, g);
}

}  // namespace vox::detail
