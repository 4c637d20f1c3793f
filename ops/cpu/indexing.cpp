// Elements gathered by index, and scattered by index. A chunk of gather owns rows of y. A chunk of scatter
// owns some slices of x, reads every index, and writes what falls into its own. So the writes to an element
// are in the order of the indices, whatever the chunks.

#include <voxgrad/ops/cpu/tasks.h>
#include <voxgrad/ops/layer_kernels.h>
#include <voxgrad/ops/layout.h>

#include <algorithm>

namespace vox::cpu {

namespace {

/// Where the kernels find the index of row (outer, k): one for all of its elements, or one for each.
struct IndexRows {
  const int64_t* index;
  int64_t count, inner;
  bool whole_rows;

  IndexRows(const Tensor& indices, const AxisView& y)
      : index(detail::ptr<int64_t>(indices)),
        count(y.axis),
        inner(y.inner),
        whole_rows(indices.rank() == 1) {}
  const int64_t* of(int64_t row) const { return index + (whole_rows ? row % count : row * inner); }
};

/// The place of element k of `indices`, as errors print it.
std::string place(const Tensor& indices, int64_t k) {
  Shape at = indices.shape();
  if (at.rank() == 1) return str(k);
  for (int64_t d = at.rank() - 1; d >= 0; --d) {
    const int64_t size = at[d];
    at[d] = k % size, k /= size;
  }
  return str(at);
}

}  // namespace

void check_indices(const char* function, const char* argument, const Tensor& indices, int64_t size) {
  const Tensor dense = indices.contiguous();
  const int64_t* index = detail::ptr<int64_t>(dense);
  check<ShapeError>(size > 0, function, ": ", argument, "[", place(indices, 0), "] is ", index[0],
                    ", but a dimension of size 0 has no index");
  for (int64_t k = 0; k < dense.numel(); ++k) {
    const int64_t i = index[k];
    if (i < 0 || i >= size)
      throw ShapeError(str(function, ": ", argument, "[", place(indices, k), "] is ", i,
                           ", outside a dimension of size ", size, "; allowed are 0 to ", size - 1));
  }
}

void gather(const Tensor& x, int64_t dim, const Tensor& indices, Tensor& y) {
  visit_bits(y.dtype(), [&]<class T>(T) {
    const AxisView to_view(y.shape(), dim);
    const IndexRows rows(indices, to_view);
    const int64_t inner = to_view.inner, step = x.strides()[dim];
    const auto slice = detail::slice_layout(x, dim);
    const T* from = static_cast<const T*>(x.impl()->data());
    T* to = static_cast<T*>(y.impl()->data());
    for_tasks(to_view.outer * to_view.axis, 16384 / inner, [&](int64_t row) {
      const int64_t* index = rows.of(row);
      T* target = to + row * inner;
      slice.for_runs(0, row / to_view.axis * inner, inner, [&](int64_t at, int64_t n, int64_t stride) {
        if (!rows.whole_rows)
          for (int64_t j = 0; j < n; ++j) target[j] = from[at + j * stride + *index++ * step];
        else if (stride == 1)
          std::copy_n(from + at + *index * step, n, target);
        else
          for (int64_t j = 0; j < n; ++j) target[j] = from[at + j * stride + *index * step];
        target += n;
      });
    });
  });
}

namespace {

/// Calls write(element of x, place of the element in y, k) for each element of y, where x has its index.
template <class T, class Write>
void scatter_by(int64_t dim, const Tensor& indices, const AxisView& y, Tensor& x, Write write) {
  const IndexRows rows(indices, y);
  const int64_t size = x.shape()[dim], step = x.strides()[dim], inner = y.inner, count = y.axis;
  const auto slice = detail::slice_layout(x, dim);
  T* to = static_cast<T*>(x.impl()->data());
  // At most 16 ranges of slices, because each reads all indices.
  const int64_t wanted = std::clamp<int64_t>(16 / y.outer, 1, size), length = (size + wanted - 1) / wanted;
  const int64_t ranges = (size + length - 1) / length;
  for_tasks(y.outer * ranges, 16384 / (count * inner), [&](int64_t t) {
    const int64_t outer = t / ranges, first = t % ranges * length, last = std::min(first + length, size);
    for (int64_t row = outer * count; row < (outer + 1) * count; ++row) {
      const int64_t* index = rows.of(row);
      if (rows.whole_rows && (*index < first || *index >= last)) continue;
      int64_t place = row * inner;
      slice.for_runs(0, outer * inner, inner, [&](int64_t at, int64_t n, int64_t stride) {
        if (rows.whole_rows) {
          T* const target = to + at + *index * step;
          for (int64_t j = 0; j < n; ++j) write(target[j * stride], place + j, row % count);
        } else {
          for (int64_t j = 0; j < n; ++j, ++index)
            if (*index >= first && *index < last)
              write(to[at + j * stride + *index * step], place + j, row % count);
        }
        place += n;
      });
    }
  });
}

/// Sizes of the tensor that is scattered to x.
AxisView scattered_view(const Tensor& source, int64_t dim, const Tensor& indices) {
  return {source.defined() ? source.shape() : indices.shape(), dim};
}

}  // namespace

void scatter(const Tensor& source, int64_t dim, const Tensor& indices, Tensor& x) {
  const AxisView y = scattered_view(source, dim, indices);
  if (!source.defined())
    return scatter_by<int64_t>(dim, indices, y, x, [](int64_t& to, int64_t, int64_t k) { to = k; });
  const auto add = [&]<class T>(T) {
    const T* from = detail::ptr<T>(source);
    scatter_by<T>(dim, indices, y, x, [from](T& to, int64_t place, int64_t) { to += from[place]; });
  };
  if (x.dtype() == i64) return add(uint64_t{});  // wraps around
  visit_floating("scatter", x.dtype(), add);
}

}  // namespace vox::cpu
