// Rows copied by index, and added by index. A chunk of index_select owns rows of y. A chunk of index_add owns
// rows of x, reads every index, and adds the rows of y that fall into its own. So additions are in the order
// of the indices, whatever the chunks.

#include <voxgrad/core/parallel.h>
#include <voxgrad/ops/layer_kernels.h>
#include <voxgrad/ops/layout.h>

#include <algorithm>

namespace vox::cpu {

void check_indices(const Tensor& indices, int64_t size) {
  const int64_t *index = detail::ptr<int64_t>(indices), stride = indices.strides()[0];
  if (indices.numel() == 0) return;
  check<ShapeError>(size > 0, "index_select: indices[0] is ", index[0],
                    ", but a dimension of size 0 has no index");
  for (int64_t k = 0; k < indices.numel(); ++k) {
    const int64_t i = index[k * stride];
    check<ShapeError>(i >= 0 && i < size, "index_select: indices[", k, "] is ", i,
                      ", outside a dimension of size ", size, "; allowed are 0 to ", size - 1);
  }
}

void index_select(const Tensor& x, int64_t dim, const Tensor& indices, Tensor& y) {
  visit_dtype(y.dtype(), [&]<class T>(T) {
    const AxisView to_view(y.shape(), dim);
    const int64_t inner = to_view.inner, step = x.strides()[dim];
    const auto slice = detail::slice_layout(x, dim);
    const T* from = detail::ptr<T>(x);
    const int64_t *index = detail::ptr<int64_t>(indices), index_stride = indices.strides()[0];
    T* to = detail::mutable_ptr<T>(y);
    const int64_t grain = std::max<int64_t>(1, 16384 / inner);
    parallel_for(to_view.outer * to_view.axis, grain, [&](int64_t begin, int64_t end) {
      for (int64_t row = begin; row < end; ++row) {
        const T* const source = from + index[row % to_view.axis * index_stride] * step;
        T* target = to + row * inner;
        slice.for_runs(0, row / to_view.axis * inner, inner, [&](int64_t at, int64_t n, int64_t stride) {
          if (stride == 1)
            std::copy_n(source + at, n, target);
          else
            for (int64_t j = 0; j < n; ++j) target[j] = source[at + j * stride];
          target += n;
        });
      }
    });
  });
}

void index_add(const Tensor& y, int64_t dim, const Tensor& indices, Tensor& x) {
  visit_floating("index_add", x.dtype(), [&]<class T>(T) {
    const AxisView to_view(x.shape(), dim);
    const int64_t inner = to_view.inner, size = to_view.axis, count = indices.numel();
    const T* from = detail::ptr<T>(y);
    const int64_t* index = detail::ptr<int64_t>(indices);
    T* to = detail::mutable_ptr<T>(x);
    // At most 16 chunks, because each reads all indices.
    const int64_t grain = std::max<int64_t>((size + 15) / 16, 16384 / inner);
    parallel_for(size, grain, [&](int64_t begin, int64_t end) {
      for (int64_t outer = 0; outer < to_view.outer; ++outer) {
        T* rows = to + outer * size * inner;
        std::fill(rows + begin * inner, rows + end * inner, T(0));
        for (int64_t k = 0; k < count; ++k) {
          if (index[k] < begin || index[k] >= end) continue;
          const T* row = from + (outer * count + k) * inner;
          T* sum = rows + index[k] * inner;
          for (int64_t j = 0; j < inner; ++j) sum[j] += row[j];
        }
      }
    });
  });
}

}  // namespace vox::cpu
