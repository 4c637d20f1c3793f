#pragma once

#include <vector>

#include <voxgrad/core/tensor.h>

// Ops that move elements without computing. Those that copy are declared here. The views (slice, select,
// permute, transpose, expand, reshape, squeeze, unsqueeze, flatten) are members of Tensor, defined in
// views.cpp and slice.cpp. Any dtype; floating dtypes are differentiable any number of times.

namespace vox {

/// Joins one or more tensors along `dim`; all other sizes, dtypes and devices must be equal. Gradient: slices
/// of g. Throws ValueError for no tensors, and ShapeError, DTypeError or DeviceError for tensors that do not
/// match.
Tensor cat(const std::vector<Tensor>& tensors, Int dim = 0);
/// The same along a new dimension: tensors of equal shape, `dim` from -rank-1 to rank.
Tensor stack(const std::vector<Tensor>& tensors, Int dim = 0);

/// Pads with `value`. `padding` lists (before, after) from the LAST dimension backwards, like
/// torch.nn.functional.pad; entries are >= 0 (use slice() to crop). Gradient: the slice of g. Throws
/// ShapeError for an odd number of entries or more than two per dimension, ValueError for negative entries
/// and for a value that the dtype cannot hold.
Tensor pad(const Tensor& x, const std::vector<int64_t>& padding, Element value = 0);
/// Pads with elements of x: its mirror image without the border itself (the padding must be smaller than x),
/// its border repeated, or x repeated (the padding must not be larger than x). Gradients add up.
enum class PadMode { reflect, replicate, circular };
Tensor pad(const Tensor& x, const std::vector<int64_t>& padding, PadMode mode);

/// x with the order of the elements along `dims` reversed.
Tensor flip(const Tensor& x, const Shape& dims);
/// x with the elements along dims[i] shifted by shifts[i] places towards the end; those beyond the end move
/// to the front. Without dims, x is rolled as if it were one-dimensional.
Tensor roll(const Tensor& x, const Shape& shifts, const Shape& dims = {});

/// x joined to itself repeats[i] times along dimension i. Further dimensions in front are added if there are
/// more repeats than dimensions. ShapeError for fewer, or for a negative number.
Tensor repeat(const Tensor& x, const Shape& repeats);
/// The same, with 1 in front if there are fewer numbers than dimensions.
Tensor tile(const Tensor& x, const Shape& repeats);

/// Coordinates of a grid: tensor i has the elements of tensors[i] along dimension i, repeated along the
/// others (PyTorch's indexing="ij"). They are views with strides of 0. The tensors have rank 0 or 1, one
/// dtype and one device. ValueError for none.
std::vector<Tensor> meshgrid(const std::vector<Tensor>& tensors);

/// (..., C * r^axes, D, H, W) -> (..., C, r * D, r * H, r * W) for axes = 3, which may be 1 or 2 too: the
/// channel ((c r + i) r + j) r + k goes to the cells (r d + i, r h + j, r w + k) of channel c (Shi et al.,
/// arXiv 1609.05158). pixel_unshuffle is the reverse. ValueError unless r >= 1 and 1 <= axes <= 3; ShapeError
/// if the channels, or the cells of the reverse, are no multiple.
Tensor pixel_shuffle(const Tensor& x, Int upscale_factor, Int axes = 2);
Tensor pixel_unshuffle(const Tensor& x, Int downscale_factor, Int axes = 2);

/// For classes (i64, in [0, num_classes)) of any shape: an i64 tensor with one more dimension of num_classes,
/// 1 at the class and 0 elsewhere. The check waits for the classes. Not differentiable.
Tensor one_hot(const Tensor& classes, Int num_classes);

/// Takes the slices `indices` (i64, one dimension, each in [0, size), on x's device) of dimension `dim`. The
/// gradient adds up slices that were taken more than once, in the order of `indices`, without atomics, so it
/// gives the same bits every time.
///
/// An index outside [0, size) throws ShapeError. On CUDA this check waits for the indices. It cannot wait
/// while a CUDA graph is captured: then such an index reads as NaN (0 in other dtypes), gets no gradient, and
/// never touches memory outside x.
Tensor index_select(const Tensor& x, Int dim, const Tensor& indices);

namespace detail {

/// Which elements of one dimension a slice takes: start, start + step, ..., `size` of them.
struct SliceRange {
  int64_t dim, start, size, step;
};

/// The adjoint of slice: zeros of `shape` with `g` written where the slice was taken. Recorded; its own
/// gradient is the slice again.
Tensor slice_adjoint(const Tensor& g, const Shape& shape, SliceRange range);

/// vox::index_select for indices that have been checked.
Tensor index_select(const Tensor& x, int64_t dim, const Tensor& indices);

}  // namespace detail

}  // namespace vox
