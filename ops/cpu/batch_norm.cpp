// A task is a channel: its statistics, and then its results, while it still lies in the cache: memory is read
// once. Sums: blocks of 1024 elements of each dense piece, whose sums are a row that is summed in the same
// way, as in ops/cpu/reduce.cpp.

#include <voxgrad/core/parallel.h>
#include <voxgrad/ops/batch_norm_kernels.h>
#include <voxgrad/ops/cpu/isa.h>
#include <voxgrad/ops/cpu/simd/normalize.h>
#include <voxgrad/ops/cpu/simd/reduce.h>
#include <voxgrad/ops/cpu/walk.h>

#include <algorithm>
#include <cmath>
#include <vector>

namespace vox::cpu {
namespace {

constexpr ByIsa kernels = VOX_BY_ISA(normalize_kernels);
constexpr ByIsa sums = VOX_BY_ISA(reduce_kernels);

constexpr int64_t block = 1024;

template <class T>
T block_sum(const T* x, int64_t n) {
  return sums.of<T>().sum.block(x, n);
}

/// The sum of a row, block by block; the row is overwritten.
template <class T>
T sum_of(std::vector<T>& row) {
  auto n = static_cast<int64_t>(row.size());
  for (; n > 1; n = (n + block - 1) / block) {
    for (int64_t b = 0; b * block < n; ++b)
      row[static_cast<size_t>(b)] = block_sum(row.data() + b * block, std::min(block, n - b * block));
  }
  return row[0];
}

/// (N, C, inner...) as N pieces of `size` elements for each channel.
struct Channels {
  int64_t batch, count, size;
  explicit Channels(const Tensor& x)
      : batch(x.shape()[0]), count(x.shape()[1]), size(x.numel() / (batch * count)) {}
  int64_t offset(int64_t n, int64_t c) const { return (n * count + c) * size; }
  int64_t numel() const { return batch * size; }

  /// f(offset, length) for the blocks of a channel.
  template <class F>
  void for_blocks(int64_t c, F f) const {
    for (int64_t n = 0; n < batch; ++n) {
      for (int64_t i = 0; i < size; i += block) f(offset(n, c) + i, std::min(block, size - i));
    }
  }
};

template <class T>
bool streams(const Tensor& y) {
  return y.numel() * static_cast<int64_t>(sizeof(T)) >= stream_bytes;
}

}  // namespace

void batch_norm(const Tensor& x_tensor, const Tensor& weight, const Tensor& bias, double eps,
                Tensor& y_tensor, Tensor& mean, Tensor& variance) {
  visit_floating("batch_norm", x_tensor.dtype(), [&]<class T>(T) {
    const Channels channels(x_tensor);
    const auto& kernel = kernels.of<T>();
    const T *x = detail::ptr<T>(x_tensor), *w = detail::ptr_or_null<T>(weight),
            *b = detail::ptr_or_null<T>(bias);
    T *y = detail::mutable_ptr<T>(y_tensor), *means = detail::mutable_ptr<T>(mean),
      *variances = detail::mutable_ptr<T>(variance);
    const bool stream = streams<T>(y_tensor);
    parallel_for(channels.count, 1, [&](int64_t begin, int64_t end) {
      std::vector<T> partial;
      for (int64_t c = begin; c < end; ++c) {
        partial.clear();
        channels.for_blocks(c, [&](int64_t at, int64_t n) { partial.push_back(block_sum(x + at, n)); });
        const T m = sum_of(partial) / static_cast<T>(channels.numel());
        partial.clear();
        channels.for_blocks(c,
                            [&](int64_t at, int64_t n) { partial.push_back(kernel.squares(x + at, m, n)); });
        const T v = sum_of(partial) / static_cast<T>(channels.numel());
        const T scale = (w ? w[c] : T(1)) * (T(1) / std::sqrt(v + static_cast<T>(eps)));
        for (int64_t n = 0; n < channels.batch; ++n) {
          const int64_t at = channels.offset(n, c);
          kernel.apply(x + at, m, scale, b ? b[c] : T(0), y + at, channels.size, stream);
        }
        means[c] = m;
        variances[c] = v;
      }
      if (stream) finish_streaming();
    });
  });
}

void scale_channels(const Tensor& x_tensor, const Tensor& mean, const Tensor& scale, const Tensor& shift,
                    Tensor& y_tensor) {
  visit_floating("batch_norm", x_tensor.dtype(), [&]<class T>(T) {
    const Channels channels(x_tensor);
    const auto& kernel = kernels.of<T>();
    const T *x = detail::ptr<T>(x_tensor), *m = detail::ptr<T>(mean), *s = detail::ptr<T>(scale),
            *b = detail::ptr_or_null<T>(shift);
    T* y = detail::mutable_ptr<T>(y_tensor);
    const bool stream = streams<T>(y_tensor);
    const int64_t grain = std::max<int64_t>(1, 32768 / channels.size);
    parallel_for(channels.batch * channels.count, grain, [&](int64_t begin, int64_t end) {
      for (int64_t piece = begin; piece < end; ++piece) {
        const int64_t c = piece % channels.count, at = piece * channels.size;
        kernel.apply(x + at, m[c], s[c], b ? b[c] : T(0), y + at, channels.size, stream);
      }
      if (stream) finish_streaming();
    });
  });
}

void batch_norm_gradient(const Tensor& g_tensor, const Tensor& x_tensor, const Tensor& weight,
                         const Tensor& mean, const Tensor& variance, double eps, Tensor& grad_x,
                         Tensor& grad_weight, Tensor& grad_bias) {
  visit_floating("batch_norm_gradient", x_tensor.dtype(), [&]<class T>(T) {
    const Channels channels(x_tensor);
    const auto& kernel = kernels.of<T>();
    const T *g = detail::ptr<T>(g_tensor), *x = detail::ptr<T>(x_tensor), *w = detail::ptr_or_null<T>(weight),
            *means = detail::ptr<T>(mean), *variances = detail::ptr<T>(variance);
    T *gx = detail::mutable_ptr<T>(grad_x), *gw = detail::mutable_ptr<T>(grad_weight),
      *gb = detail::mutable_ptr<T>(grad_bias);
    const bool stream = streams<T>(grad_x);
    parallel_for(channels.count, 1, [&](int64_t begin, int64_t end) {
      std::vector<T> sum, product;
      for (int64_t c = begin; c < end; ++c) {
        sum.clear();
        product.clear();
        channels.for_blocks(c, [&](int64_t at, int64_t n) {
          T s, p;
          kernel.gradient_sums(g + at, x + at, means[c], n, &s, &p);
          sum.push_back(s);
          product.push_back(p);
        });
        const T total = sum_of(sum), total_product = sum_of(product),
                count = static_cast<T>(channels.numel());
        const T inverse = T(1) / std::sqrt(variances[c] + static_cast<T>(eps));  // of the deviation
        const T scale = (w ? w[c] : T(1)) * inverse, slope = total_product / count * inverse * inverse;
        for (int64_t n = 0; n < channels.batch; ++n) {
          const int64_t at = channels.offset(n, c);
          kernel.gradient(g + at, x + at, means[c], scale, total / count, slope, gx + at, channels.size,
                          stream);
        }
        gw[c] = total_product * inverse;
        gb[c] = total;
      }
      if (stream) finish_streaming();
    });
  });
}

}  // namespace vox::cpu
