// The conv3d family by its definition, o = i * stride - padding + k * dilation. Each output has one owner,
// and nothing is clever. It is the reference of the tests for conv3d.cpp, and its fallback, for example for
// Inf and NaN operands, which must not be multiplied with the halo's zeros.

#include <voxgrad/core/parallel.h>
#include <voxgrad/ops/kernels.h>

#include <algorithm>

namespace vox::cpu {

namespace {

/// The grain of a loop whose outputs cost `each` multiply-adds: outputs worth about `work` of them.
int64_t grain_for(int64_t each, int64_t work = 1 << 16) {
  return std::max<int64_t>(1, work / std::max<int64_t>(each, 1));
}

/// The coarse cell whose tap k touches fine cell o, or -1.
int64_t cell_of(int64_t o, int64_t k, int64_t cells, int64_t stride, int64_t padding, int64_t dilation) {
  const int64_t distance = o + padding - k * dilation;
  if (distance < 0 || distance % stride != 0) return -1;
  const int64_t i = distance / stride;
  return i < cells ? i : -1;
}

/// A flat index over (n, c, d, h, w).
struct Cell {
  int64_t n, c, d, h, w;
  Cell(int64_t flat, int64_t channels, const Triple& extent) {
    w = flat % extent.w, flat /= extent.w;
    h = flat % extent.h, flat /= extent.h;
    d = flat % extent.d, flat /= extent.d;
    c = flat % channels;
    n = flat / channels;
  }
};

template <class T>
T conv3d_at(const T* big, const T* weight, T sum, Cell y, const Conv3dGeometry& g) {
  const int64_t group = y.c / g.small_per_group();
  for (int64_t b = 0; b < g.big_per_group(); ++b) {
    const T* x = big + (y.n * g.big_channels + group * g.big_per_group() + b) * g.big_cells();
    const T* w = weight + (y.c * g.big_per_group() + b) * g.taps();
    for (int64_t kd = 0; kd < g.kernel.d; ++kd) {
      const int64_t d = y.d * g.stride.d - g.padding.d + kd * g.dilation.d;
      for (int64_t kh = 0; kh < g.kernel.h; ++kh) {
        const int64_t h = y.h * g.stride.h - g.padding.h + kh * g.dilation.h;
        for (int64_t kw = 0; kw < g.kernel.w; ++kw) {
          const int64_t i = y.w * g.stride.w - g.padding.w + kw * g.dilation.w;
          if (d < 0 || d >= g.big.d || h < 0 || h >= g.big.h || i < 0 || i >= g.big.w) continue;
          sum += x[(d * g.big.h + h) * g.big.w + i] * w[(kd * g.kernel.h + kh) * g.kernel.w + kw];
        }
      }
    }
  }
  return sum;
}

template <class T>
T conv_transpose3d_at(const T* small, const T* weight, T sum, Cell y, const Conv3dGeometry& g) {
  const int64_t group = y.c / g.big_per_group(), b = y.c % g.big_per_group();
  for (int64_t s = group * g.small_per_group(); s < (group + 1) * g.small_per_group(); ++s) {
    const T* x = small + (y.n * g.small_channels + s) * g.small_cells();
    const T* w = weight + (s * g.big_per_group() + b) * g.taps();
    for (int64_t kd = 0; kd < g.kernel.d; ++kd) {
      const int64_t d = cell_of(y.d, kd, g.small.d, g.stride.d, g.padding.d, g.dilation.d);
      if (d < 0) continue;
      for (int64_t kh = 0; kh < g.kernel.h; ++kh) {
        const int64_t h = cell_of(y.h, kh, g.small.h, g.stride.h, g.padding.h, g.dilation.h);
        if (h < 0) continue;
        for (int64_t kw = 0; kw < g.kernel.w; ++kw) {
          const int64_t i = cell_of(y.w, kw, g.small.w, g.stride.w, g.padding.w, g.dilation.w);
          if (i < 0) continue;
          sum += x[(d * g.small.h + h) * g.small.w + i] * w[(kd * g.kernel.h + kh) * g.kernel.w + kw];
        }
      }
    }
  }
  return sum;
}

/// One weight: small channel s, column b of its group, tap k.
template <class T>
T weight_grad_at(const T* big, const T* small, int64_t s, int64_t b, const Triple& k,
                 const Conv3dGeometry& g) {
  const int64_t group = s / g.small_per_group();
  T sum = 0;
  for (int64_t n = 0; n < g.batch; ++n) {
    const T* x = big + (n * g.big_channels + group * g.big_per_group() + b) * g.big_cells();
    const T* y = small + (n * g.small_channels + s) * g.small_cells();
    for (int64_t d = 0; d < g.small.d; ++d) {
      const int64_t od = d * g.stride.d - g.padding.d + k.d * g.dilation.d;
      if (od < 0 || od >= g.big.d) continue;
      for (int64_t h = 0; h < g.small.h; ++h) {
        const int64_t oh = h * g.stride.h - g.padding.h + k.h * g.dilation.h;
        if (oh < 0 || oh >= g.big.h) continue;
        for (int64_t w = 0; w < g.small.w; ++w) {
          const int64_t ow = w * g.stride.w - g.padding.w + k.w * g.dilation.w;
          if (ow < 0 || ow >= g.big.w) continue;
          sum += y[(d * g.small.h + h) * g.small.w + w] * x[(od * g.big.h + oh) * g.big.w + ow];
        }
      }
    }
  }
  return sum;
}

}  // namespace

void conv3d_direct(const Tensor& big, const Tensor& weight, const Tensor& bias, Tensor& small,
                   Conv3dGeometry g) {
  visit_floating("conv3d", big.dtype(), [&]<class T>(T) {
    const T *x = detail::ptr<T>(big), *w = detail::ptr<T>(weight);
    const T* b = bias.defined() ? detail::ptr<T>(bias) : nullptr;
    T* y = detail::mutable_ptr<T>(small);
    parallel_for(small.numel(), grain_for(g.big_per_group() * g.taps()), [&](int64_t begin, int64_t end) {
      for (int64_t j = begin; j < end; ++j) {
        const Cell cell(j, g.small_channels, g.small);
        y[j] = conv3d_at(x, w, b ? b[cell.c] : T(0), cell, g);
      }
    });
  });
}

void conv_transpose3d_direct(const Tensor& small, const Tensor& weight, const Tensor& bias, Tensor& big,
                             Conv3dGeometry g) {
  visit_floating("conv_transpose3d", small.dtype(), [&]<class T>(T) {
    const T *x = detail::ptr<T>(small), *w = detail::ptr<T>(weight);
    const T* b = bias.defined() ? detail::ptr<T>(bias) : nullptr;
    T* y = detail::mutable_ptr<T>(big);
    parallel_for(big.numel(), grain_for(g.small_per_group() * g.taps()), [&](int64_t begin, int64_t end) {
      for (int64_t j = begin; j < end; ++j) {
        const Cell cell(j, g.big_channels, g.big);
        y[j] = conv_transpose3d_at(x, w, b ? b[cell.c] : T(0), cell, g);
      }
    });
  });
}

void conv3d_weight_grad_direct(const Tensor& big, const Tensor& small, Tensor& dweight, Conv3dGeometry g) {
  visit_floating("conv3d_weight_grad", big.dtype(), [&]<class T>(T) {
    const T *x = detail::ptr<T>(big), *y = detail::ptr<T>(small);
    T* dw = detail::mutable_ptr<T>(dweight);
    parallel_for(dweight.numel(), grain_for(g.batch * g.small_cells()), [&](int64_t begin, int64_t end) {
      for (int64_t j = begin; j < end; ++j) {
        const Cell at(j, g.big_per_group(), g.kernel);  // (n, c) of a weight are its (small, big) channels
        dw[j] = weight_grad_at(x, y, at.n, at.c, {at.d, at.h, at.w}, g);
      }
    });
  });
}

}  // namespace vox::cpu
