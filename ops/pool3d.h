#pragma once

#include <optional>

#include <voxgrad/core/tensor.h>
#include <voxgrad/ops/triple.h>

// Pooling over windows of (N, C, D, H, W) or (C, D, H, W) of floating dtype, with PyTorch's arguments and
// sizes. The forms with 1d and 2d take inputs without D and H, or without D.
//
// On each axis, window o covers the existing cells among o * stride - padding + k * dilation, k = 0 ..
// kernel_size - 1. There are floor((in + 2 * padding - dilation * (kernel_size - 1) - 1) / stride) + 1
// windows. With ceil_mode the quotient is rounded up, and a last window that begins beyond input and left
// padding is dropped. The adaptive forms are given the number `out` of windows instead: window o covers the
// cells from floor(o * in / out) to before ceil((o + 1) * in / out).
//
// All throw ShapeError for other ranks, for sizes of 0 and for sizes that leave no window; DTypeError for
// other dtypes; ValueError unless kernel_size, stride, dilation >= 1 and 0 <= padding <= kernel_size / 2, and
// for windows or strides of 2^60 cells or more. All are differentiable any number of times. Their gradients
// gather, so they give the same bits every time.

namespace vox {

/// `Size` is an int64_t, a Pair or a Triple.
template <class Size, class OptionalSize = std::optional<Size>>
struct MaxPoolOptions {
  detail::ByName by_name{};
  Size kernel_size = 1;
  OptionalSize stride = {};  ///< kernel_size if not given
  Size padding = 0, dilation = 1;
  bool ceil_mode = false;
};
template <class Size, class OptionalSize = std::optional<Size>>
struct AvgPoolOptions {
  detail::ByName by_name{};
  Size kernel_size = 1;
  OptionalSize stride = {};  ///< kernel_size if not given
  Size padding = 0;
  bool ceil_mode = false, count_include_pad = true;
  std::optional<int64_t> divisor_override = {};
};
using MaxPool1dOptions = MaxPoolOptions<int64_t>;
using MaxPool2dOptions = MaxPoolOptions<Pair>;
using MaxPool3dOptions = MaxPoolOptions<Triple, OptionalTriple>;
using AvgPool1dOptions = AvgPoolOptions<int64_t>;
using AvgPool2dOptions = AvgPoolOptions<Pair>;
using AvgPool3dOptions = AvgPoolOptions<Triple, OptionalTriple>;

/// Maximum of each window; NaN if the window holds one. The gradient goes to the first maximum in row-major
/// order or, as in PyTorch, to the last NaN. A window that covers no cell, which only dilation can cause,
/// gives -infinity and passes no gradient. If a window holds +0 and -0, the result may be either.
Tensor max_pool1d(const Tensor& input, const MaxPool1dOptions& options);
Tensor max_pool2d(const Tensor& input, const MaxPool2dOptions& options);
Tensor max_pool3d(const Tensor& input, const MaxPool3dOptions& options);

/// The same and, for each window, the i64 number of its maximum among the cells of its plane (d, h, w) in
/// row-major order.
ValuesAndIndices max_pool1d_with_indices(const Tensor& input, const MaxPool1dOptions& options);
ValuesAndIndices max_pool2d_with_indices(const Tensor& input, const MaxPool2dOptions& options);
ValuesAndIndices max_pool3d_with_indices(const Tensor& input, const MaxPool3dOptions& options);

/// Writes each element of the input to the cell of a plane of zeros that `indices` (i64, of the input's
/// shape) names, as max_pool_with_indices counts cells. If two go to one cell, the last stays and gets the
/// gradient. The planes have output_size cells on each axis, or (in - 1) * stride - 2 * padding +
/// kernel_size. ShapeError for sizes below 1, and for indices that do not fit.
template <class Size, class OptionalSize = std::optional<Size>>
struct MaxUnpoolOptions {
  detail::ByName by_name{};
  Size kernel_size = 1;
  OptionalSize stride = {};  ///< kernel_size if not given
  Size padding = 0;
  OptionalSize output_size = {};
};
Tensor max_unpool1d(const Tensor& input, const Tensor& indices, const MaxUnpoolOptions<int64_t>& options);
Tensor max_unpool2d(const Tensor& input, const Tensor& indices, const MaxUnpoolOptions<Pair>& options);
Tensor max_unpool3d(const Tensor& input, const Tensor& indices,
                    const MaxUnpoolOptions<Triple, OptionalTriple>& options);

/// Mean of each window: the sum over its cells, divided by their number. With count_include_pad, covered
/// padding counts as cells too, but positions beyond the padding, which ceil_mode can cover, do not.
/// divisor_override, which must not be 0, replaces this number. The kernel must not be larger than the input
/// with its padding, even in ceil_mode.
Tensor avg_pool1d(const Tensor& input, const AvgPool1dOptions& options);
Tensor avg_pool2d(const Tensor& input, const AvgPool2dOptions& options);
Tensor avg_pool3d(const Tensor& input, const AvgPool3dOptions& options);

/// Maximum of each of output_size windows, which must be >= 1 on each axis. The gradient as above, except
/// that of a single window of all cells it goes to the first NaN.
Tensor adaptive_max_pool1d(const Tensor& input, Int output_size);
Tensor adaptive_max_pool2d(const Tensor& input, const Pair& output_size);
Tensor adaptive_max_pool3d(const Tensor& input, const Triple& output_size);

/// Mean of each of output_size windows, which must be >= 1 on each axis. `adaptive_avg_pool3d(x, 1)` is
/// `mean(x, {-3, -2, -1}, true)`.
Tensor adaptive_avg_pool1d(const Tensor& input, Int output_size);
Tensor adaptive_avg_pool2d(const Tensor& input, const Pair& output_size);
Tensor adaptive_avg_pool3d(const Tensor& input, const Triple& output_size);

namespace detail {
/// Throws, naming `function`, what these options cause for every input.
void check_options(const char* function, const MaxPool3dOptions& options);
void check_options(const char* function, const AvgPool3dOptions& options);
void check_output_size(const char* function, const Triple& output_size);
}  // namespace detail

}  // namespace vox
