#include <voxgrad/ops/in_f32.h>
#include <voxgrad/ops/kernels.h>
#include <voxgrad/plain/loops.h>

#include <algorithm>

// Matrix products and the conv3d family. Each sum is of type T and added in a fixed order.

namespace vox::cpu {

void matmul(const Tensor& a, const Tensor& b, Tensor& y) {
  const int64_t last = y.rank() - 1, k = a.size(-1);
  const int64_t a_step = a.strides()[last], b_step = b.strides()[last - 1];
  // Of y's shape: the first element of the row of a, and of the column of b, that a result multiplies.
  Shape row_strides = a.strides(), column_strides = b.strides();
  row_strides[last] = column_strides[last - 1] = 0;
  const Tensor rows = detail::alias(a, a.impl()->offset, y.shape(), row_strides);
  const Tensor columns = detail::alias(b, b.impl()->offset, y.shape(), column_strides);
  visit_floating("matmul", y.dtype(), [&]<class T>(T) {
    plain::for_each_element(
        [&](const auto& at) {
          const T *row = detail::ptr<T>(rows) + at[1], *column = detail::ptr<T>(columns) + at[2];
          T sum = 0;
          for (int64_t i = 0; i < k; ++i) sum += row[i * a_step] * column[i * b_step];
          detail::mutable_ptr<T>(y)[at[0]] = sum;
        },
        y, rows, columns);
  });
}

// ---- The conv3d family: one loop for all three ------------------------------------------------------------

namespace {

/// (d, h, w) of a flat index.
Triple unflatten(int64_t i, const Triple& size) {
  Triple at;
  at.d = i / (size.h * size.w), at.h = i / size.w % size.h, at.w = i % size.w;
  return at;
}

/// The cell of the fine grid that coarse cell i and tap k touch, as a flat index; -1 if it lies outside.
int64_t touched_cell(const Conv3dGeometry& g, const Triple& i, const Triple& k) {
  int64_t flat = 0;
  for (int64_t axis = 0; axis < 3; ++axis) {
    const int64_t o = i[axis] * g.stride[axis] - g.padding[axis] + k[axis] * g.dilation[axis];
    if (o < 0 || o >= g.big[axis]) return -1;
    flat = flat * g.big[axis] + o;
  }
  return flat;
}

/// Calls f(b, s, w) for every product of the trilinear form (Note [The conv3d family] in ops/conv3d.cpp),
/// with the places of its factors in big, small and weight.
template <class F>
void for_each_product(const Conv3dGeometry& g, F f) {
  for (int64_t n = 0; n < g.batch; ++n) {
    for (int64_t s = 0; s < g.small_channels; ++s) {
      for (int64_t b = 0; b < g.big_per_group(); ++b) {
        const int64_t big_plane = n * g.big_channels + s / g.small_per_group() * g.big_per_group() + b;
        const int64_t small_plane = n * g.small_channels + s, weights = s * g.big_per_group() + b;
        for (int64_t k = 0; k < g.taps(); ++k) {
          for (int64_t i = 0; i < g.small_cells(); ++i) {
            const int64_t o = touched_cell(g, unflatten(i, g.small), unflatten(k, g.kernel));
            if (o >= 0)
              f(big_plane * g.big_cells() + o, small_plane * g.small_cells() + i, weights * g.taps() + k);
          }
        }
      }
    }
  }
}

/// Fills y (N, C, D, H, W) with the bias of each channel, or zeros.
template <class T>
void start_with(const Tensor& bias, const Tensor& y) {
  const int64_t channels = y.shape()[1], cells = y.shape()[2] * y.shape()[3] * y.shape()[4];
  for (int64_t i = 0; i < y.numel(); ++i)
    detail::mutable_ptr<T>(y)[i] = bias.defined() ? detail::ptr<T>(bias)[i / cells % channels] : T(0);
}

void conv3d_f32(const Tensor& big, const Tensor& weight, const Tensor& bias, Tensor& small,
                Conv3dGeometry g) {
  visit_floating("conv3d", big.dtype(), [&]<class T>(T) {
    start_with<T>(bias, small);
    for_each_product(g,
                     [x = detail::ptr<T>(big), v = detail::ptr<T>(weight), y = detail::mutable_ptr<T>(small)](
                         int64_t b, int64_t s, int64_t w) { y[s] += x[b] * v[w]; });
  });
}

void conv_transpose3d_f32(const Tensor& small, const Tensor& weight, const Tensor& bias, Tensor& big,
                          Conv3dGeometry g) {
  visit_floating("conv_transpose3d", small.dtype(), [&]<class T>(T) {
    start_with<T>(bias, big);
    for_each_product(g,
                     [x = detail::ptr<T>(small), v = detail::ptr<T>(weight), y = detail::mutable_ptr<T>(big)](
                         int64_t b, int64_t s, int64_t w) { y[b] += x[s] * v[w]; });
  });
}

void weight_grad_f32(const Tensor& big, const Tensor& small, Tensor& dweight, Tensor& dbias, Grid bias_of,
                     Conv3dGeometry g) {
  visit_floating("conv3d_weight_grad", big.dtype(), [&]<class T>(T) {
    start_with<T>({}, dweight);
    for_each_product(
        g, [x = detail::ptr<T>(big), y = detail::ptr<T>(small), v = detail::mutable_ptr<T>(dweight)](
               int64_t b, int64_t s, int64_t w) { v[w] += x[b] * y[s]; });
    if (!dbias.defined()) return;
    const Tensor& grad = bias_of == Grid::big ? big : small;
    const int64_t cells = grad.numel() / (grad.shape()[0] * grad.shape()[1]);
    T* const sums = detail::mutable_ptr<T>(dbias);
    std::fill_n(sums, dbias.numel(), T(0));
    for (int64_t i = 0; i < grad.numel(); ++i) sums[i / cells % dbias.numel()] += detail::ptr<T>(grad)[i];
  });
}

}  // namespace

void conv3d(const Tensor& big, const Tensor& weight, const Tensor& bias, Tensor& small, Conv3dGeometry g,
            Float32Precision) {
  in_f32<&conv3d_f32>(big, weight, bias, small, g);
}

void conv_transpose3d(const Tensor& small, const Tensor& weight, const Tensor& bias, Tensor& big,
                      Conv3dGeometry g, Float32Precision) {
  in_f32<&conv_transpose3d_f32>(small, weight, bias, big, g);
}

void conv3d_weight_grad(const Tensor& big, const Tensor& small, Tensor& dweight, Tensor& dbias, Grid bias_of,
                        Conv3dGeometry g, Float32Precision) {
  in_f32<&weight_grad_f32>(big, small, dweight, dbias, bias_of, g);
}

}  // namespace vox::cpu
