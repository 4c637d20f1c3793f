#include <voxgrad/core/factories.h>
#include <voxgrad/ops/elementwise.h>
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

}  // namespace vox
