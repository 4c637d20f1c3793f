#include <voxgrad/core/factories.h>
#include <voxgrad/ops/elementwise.h>
#include <voxgrad/ops/layout.h>
#include <voxgrad/ops/reduce.h>
#include <voxgrad/ops/shaping.h>

#include <algorithm>
#include <vector>

// Ops that move the elements of x. All are composed of other ops, so they need no kernels or gradients.

namespace vox {

namespace {

/// x read along `dim` at index(0), ..., index(count - 1), which the host computes. Memory for the result is
/// asked for first, so that a result that is too large fails before its indices take time.
template <class Index>
Tensor read_at(const char* op, const Tensor& x, int64_t dim, int64_t count, Index index) {
  Shape shape = x.shape();
  shape[dim] = count;
  empty(shape, x.options());
  detail::checked_bytes(op, count, i64);
  std::vector<int64_t> indices(static_cast<size_t>(count));
  for (int64_t i = 0; i < count; ++i) indices[static_cast<size_t>(i)] = index(i);
  return detail::index_select(x, dim, from_vector<int64_t>(indices, count, x.device()));
}

/// The index in [0, size) that stands for position i of the padded axis, which begins at -before.
int64_t source_of(int64_t i, int64_t size, PadMode mode) {
  if (mode == PadMode::replicate) return std::clamp<int64_t>(i, 0, size - 1);
  if (mode == PadMode::circular) return (i + size) % size;
  return i < 0 ? -i : i < size ? i : 2 * (size - 1) - i;
}

}  // namespace

Tensor flip(const Tensor& x, const Shape& dims) {
  detail::check_defined("flip", "x", x);
  return in_the_name_of("flip", [&] {
    Tensor y = x;
    Shape seen;
    for (int64_t dim : dims) {
      dim = normalize_dim_or_0("flip", dim, x.rank());
      check<ShapeError>(std::find(seen.begin(), seen.end(), dim) == seen.end(), "flip: dim ", dim,
                        " occurs twice in dims ", dims);
      seen.push_back(dim);
      if (x.numel() == 0 || x.rank() == 0) continue;
      const int64_t size = x.shape()[dim];
      y = read_at("flip", y, dim, size, [&](int64_t i) { return size - 1 - i; });
    }
    return y.impl() == x.impl() ? x.clone() : y;
  });
}

Tensor roll(const Tensor& x, const Shape& shifts, const Shape& dims) {
  detail::check_defined("roll", "x", x);
  return in_the_name_of("roll", [&] {
    check<ValueError>(!shifts.empty(), "roll: needs at least one shift, got none");
    if (dims.empty() && shifts.rank() == 1) return roll(x.flatten(), shifts, 0).reshape(x.shape());
    check<ShapeError>(shifts.rank() == dims.rank(), "roll: needs one shift for each dim, got shifts ", shifts,
                      " and dims ", dims);
    Tensor y = x;
    for (int64_t i = 0; i < dims.rank(); ++i) {
      const int64_t dim = normalize_dim_or_0("roll", dims[i], x.rank());
      const int64_t size = x.rank() > 0 ? x.shape()[dim] : 0;
      if (size == 0) continue;
      const int64_t tail = (size - shifts[i] % size) % size;  // of the element that comes first
      y = cat({y.slice(dim, tail), y.slice(dim, 0, tail)}, dim);
    }
    return y.impl() == x.impl() ? x.clone() : y;
  });
}

Tensor repeat(const Tensor& x, const Shape& repeats) {
  detail::check_defined("repeat", "x", x);
  const int64_t added = repeats.rank() - x.rank();
  check<ShapeError>(added >= 0, "repeat: needs a number for each of the ", x.rank(), " dimensions, got ",
                    repeats);
  return in_the_name_of("repeat", [&] {
    Shape shape = x.shape();
    for (int64_t i = 0; i < added; ++i) shape.insert(0, 1);
    Tensor y = x.reshape(shape);
    for (int64_t d = 0; d < shape.rank(); ++d) {
      check<ShapeError>(repeats[d] >= 0, "repeat: numbers must be >= 0, got ", repeats);
      if (repeats[d] == 1) continue;
      const AxisView view(shape, d);  // y as (outer, rest), the rest repeated
      const int64_t rest = view.axis * view.inner;
      shape[d] = checked_mul("repeat", shape[d], repeats[d]);
      y = y.reshape({view.outer, 1, rest}).expand({view.outer, repeats[d], rest}).reshape(shape);
    }
    return y.impl()->storage == x.impl()->storage || !y.is_contiguous() ? y.clone() : y;
  });
}

Tensor tile(const Tensor& x, const Shape& repeats) {
  detail::check_defined("tile", "x", x);
  Shape all = repeats;
  while (all.rank() < x.rank()) all.insert(0, 1);
  return in_the_name_of("tile", [&] { return repeat(x, all); });
}

std::vector<Tensor> meshgrid(const std::vector<Tensor>& tensors) {
  check<ValueError>(!tensors.empty(), "meshgrid: needs at least one tensor, got none");
  return in_the_name_of("meshgrid", [&] {
    Shape shape;
    for (const Tensor& t : tensors) {
      detail::check_defined("meshgrid", "tensors", t);
      check<ShapeError>(t.rank() <= 1, "meshgrid: tensors have at most one dimension, got shape ", t.shape());
      detail::check_same_dtype("meshgrid", tensors[0], t);
      detail::check_same_device("meshgrid", tensors[0], t);
      shape.push_back(t.numel());
    }
    std::vector<Tensor> grids;
    for (int64_t d = 0; d < shape.rank(); ++d) {
      Shape along = Shape::filled(shape.rank(), 1);
      along[d] = shape[d];
      grids.push_back(tensors[static_cast<size_t>(d)].reshape(along).expand(shape));
    }
    return grids;
  });
}

namespace {

/// x as (batch, channels, cells) for pixel_shuffle and its reverse.
Tensor checked_pixels(const char* function, const Tensor& x, int64_t factor, int64_t axes) {
  detail::check_defined(function, "x", x);
  check<ValueError>(factor >= 1 && axes >= 1 && axes <= 3, function,
                    ": needs a factor >= 1 and 1 to 3 axes, got ", factor, " and ", axes);
  check<ShapeError>(x.rank() > axes, function, ": x must have channels and ", axes,
                    " axes behind them, got shape ", x.shape());
  Shape shape(x.shape().end() - axes - 1, x.shape().end());
  shape.insert(0, 1);
  for (int64_t d = 0; d < x.rank() - axes - 1; ++d) shape[0] *= x.shape()[d];
  return x.reshape(shape);
}

/// The order of (batch, channels, r..., cells...) that puts each r behind its axis of cells.
Shape interleaved(int64_t axes) {
  Shape order{0, 1};
  for (int64_t i = 0; i < axes; ++i) order.push_back(2 + axes + i), order.push_back(2 + i);
  return order;
}

}  // namespace

Tensor pixel_shuffle(const Tensor& x, Int upscale_factor, Int axes) {
  return in_the_name_of("pixel_shuffle", [&] {
    const Tensor pixels = checked_pixels("pixel_shuffle", x, upscale_factor, axes);
    const int64_t r = upscale_factor, channels = pixels.size(1);
    int64_t group = 1;
    for (int64_t i = 0; i < axes; ++i) group = checked_mul("pixel_shuffle", group, r);
    check<ShapeError>(channels % group == 0, "pixel_shuffle: the channels must be a multiple of ", group,
                      ", got shape ", x.shape());
    Shape apart{pixels.size(0), channels / group}, shape = x.shape();
    for (int64_t i = 0; i < axes; ++i) apart.push_back(r);
    for (int64_t i = 0; i < axes; ++i) apart.push_back(pixels.size(2 + i));
    shape[x.rank() - axes - 1] /= group;
    for (int64_t i = 1; i <= axes; ++i) shape[x.rank() - i] *= r;
    return pixels.reshape(apart).permute(interleaved(axes)).reshape(shape).contiguous();
  });
}

Tensor pixel_unshuffle(const Tensor& x, Int downscale_factor, Int axes) {
  return in_the_name_of("pixel_unshuffle", [&] {
    const Tensor pixels = checked_pixels("pixel_unshuffle", x, downscale_factor, axes);
    const int64_t r = downscale_factor;
    Shape apart{pixels.size(0), pixels.size(1)}, shape = x.shape(), order{0, 1};
    for (int64_t i = 0; i < axes; ++i) {
      const int64_t size = pixels.size(2 + i);
      check<ShapeError>(size % r == 0, "pixel_unshuffle: the last ", axes, " sizes must be multiples of ", r,
                        ", got shape ", x.shape());
      apart.push_back(size / r), apart.push_back(r);
      shape[x.rank() - axes + i] = size / r;
      shape[x.rank() - axes - 1] *= r;
    }
    for (int64_t i = 0; i < axes; ++i) order.push_back(3 + 2 * i);
    for (int64_t i = 0; i < axes; ++i) order.push_back(2 + 2 * i);
    return pixels.reshape(apart).permute(order).reshape(shape).contiguous();
  });
}

Tensor pad(const Tensor& x, const std::vector<int64_t>& padding, PadMode mode) {
  detail::check_defined("pad", "x", x);
  const auto entries = static_cast<int64_t>(padding.size());
  check<ShapeError>(entries % 2 == 0 && entries <= 2 * x.rank(),
                    "pad: padding must be (before, after) for up to ", x.rank(), " dimensions, got ", entries,
                    " entries");
  return in_the_name_of("pad", [&] {
    Tensor y = x;
    for (int64_t i = 0; i < entries / 2; ++i) {
      const int64_t before = padding[static_cast<size_t>(2 * i)],
                    after = padding[static_cast<size_t>(2 * i + 1)];
      const int64_t dim = x.rank() - 1 - i, size = x.shape()[dim];
      check<ValueError>(std::min(before, after) >= 0, "pad: padding must be >= 0, got (", before, ", ", after,
                        ") (use slice() to crop)");
      check<ShapeError>(size > 0, "pad: an empty dimension can only be padded by a value, got shape ",
                        x.shape());
      const int64_t most = mode == PadMode::reflect ? size - 1 : mode == PadMode::circular ? size : INT64_MAX;
      check<ShapeError>(std::max(before, after) <= most, "pad: mode ",
                        mode == PadMode::reflect ? "reflect" : "circular", " pads a dimension of size ", size,
                        " by at most ", most, " at each end, got (", before, ", ", after, ")");
      const int64_t count = checked_add("pad: padding", checked_add("pad: padding", before, size), after);
      if (count > size)
        y = read_at("pad", y, dim, count, [&](int64_t k) { return source_of(k - before, size, mode); });
    }
    return y.impl() == x.impl() ? x.clone() : y;
  });
}

Tensor one_hot(const Tensor& classes, Int num_classes) {
  detail::check_defined("one_hot", "classes", classes);
  check<DTypeError>(classes.dtype() == i64, "one_hot: classes must have dtype i64, got ", classes.dtype());
  check<ValueError>(num_classes >= 1, "one_hot: num_classes must be >= 1, got ", num_classes);
  return in_the_name_of("one_hot", [&] {
    if (classes.numel() > 0) {
      const int64_t lowest = classes.min().item<int64_t>(), highest = classes.max().item<int64_t>();
      check<ValueError>(lowest >= 0 && highest < num_classes, "one_hot: classes must be from 0 to ",
                        num_classes - 1, ", got ", lowest, " to ", highest);
    }
    return eq(classes.unsqueeze(-1), arange(num_classes, {i64, classes.device()})).to(i64);
  });
}

Tensor Tensor::squeeze() const {
  checked("squeeze");
  Shape new_shape;
  for (const int64_t size : shape())
    if (size != 1) new_shape.push_back(size);
  return reshape(new_shape);
}

Tensor Tensor::flatten(Int start_dim, Int end_dim) const {
  checked("flatten");
  if (rank() == 0) return reshape({1});
  start_dim = normalize_dim("flatten", start_dim, rank());
  end_dim = normalize_dim("flatten", end_dim, rank());
  check<ShapeError>(start_dim <= end_dim, "flatten: start_dim ", start_dim, " comes after end_dim ", end_dim);
  Shape new_shape;
  int64_t run = 1;
  for (int64_t i = 0; i < rank(); ++i) {
    if (i < start_dim || i > end_dim)
      new_shape.push_back(shape()[i]);
    else
      run *= shape()[i];
    if (i == end_dim) new_shape.push_back(run);
  }
  return reshape(new_shape);
}

}  // namespace vox
