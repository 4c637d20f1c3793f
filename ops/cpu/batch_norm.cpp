// A task is a channel: its statistics, then its results while the channel is still in the cache, so memory is
// read once. Each dense piece is summed in blocks of 1024 elements. The block sums are a row that is summed
// in the same way, as in ops/cpu/reduce.cpp.
//
// If channels lie side by side (channels last), memory is read twice. The first reading gives the statistics.
// A block of rows, of a few channels, stays in the first-level cache. It is read for the sums, and then for
// the squares about the block's own rounded mean b. With d = x - b, the squares about the mean m of all rows
// are the sum of d^2 + 2 (b - m) d + (b - m)^2. The second reading gives the results, as an elementwise op.

#include <voxgrad/core/factories.h>
#include <voxgrad/core/parallel.h>
#include <voxgrad/ops/cpu/interleaved.h>
#include <voxgrad/ops/cpu/isa.h>
#include <voxgrad/ops/cpu/simd/normalize.h>
#include <voxgrad/ops/cpu/simd/reduce.h>
#include <voxgrad/ops/cpu/walk.h>
#include <voxgrad/ops/kernels.h>
#include <voxgrad/ops/layout.h>

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

  /// Calls f(offset, length) for the blocks of a channel.
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

/// Mean and (biased) variance of each channel of an x whose channels lie side by side.
template <class T>
void interleaved_statistics(const Tensor& x, const InterleavedPlanes& planes, T* means, T* variances) {
  const int64_t side = planes.side, channels = x.shape()[1];
  Shape shape, strides;  // the dimensions that enumerate rows, by falling stride
  const auto row_dims = [&] {
    std::vector<int64_t> dims;
    for (int64_t d = 0; d < x.rank(); ++d) {
      if (d == 0 ? !planes.has_batch : d != 1) dims.push_back(d);
    }
    std::stable_sort(dims.begin(), dims.end(),
                     [&](int64_t a, int64_t b) { return x.strides()[a] > x.strides()[b]; });
    return dims;
  }();
  for (const int64_t d : row_dims) shape.push_back(x.shape()[d]), strides.push_back(x.strides()[d]);
  shape.push_back(side), strides.push_back(1);
  const detail::RowView v = detail::rows_of(detail::alias(x, x.impl()->offset, shape, strides), 1);
  const T* const from = detail::ptr<T>(x);

  // Two vectors of each row of a block fit the first-level cache. Fewer rows make too many blocks.
  constexpr int64_t block_bytes = 16 << 10;
  const int64_t run = v.kept.back(), row_bytes = side * static_cast<int64_t>(sizeof(T));
  const int64_t block_rows = std::min(run, std::clamp<int64_t>(block_bytes / row_bytes, 128, 256));
  const int64_t blocks_of_run = (run + block_rows - 1) / block_rows, blocks = v.rows / run * blocks_of_run;
  const int64_t grain = std::max<int64_t>(1, 65536 / (block_rows * side));
  const auto first_row = [&](int64_t b) { return b / blocks_of_run * run + b % blocks_of_run * block_rows; };
  const auto rows_of_block = [&](int64_t b) { return std::min(block_rows, run - first_row(b) % run); };
  const Tensor sum_tensor = empty({blocks, side}, x.options()), rest_tensor = empty_like(sum_tensor),
               squares_tensor = empty_like(sum_tensor);
  T *const sum = detail::mutable_ptr<T>(sum_tensor), *const rest = detail::mutable_ptr<T>(rest_tensor),
           *const squares = detail::mutable_ptr<T>(squares_tensor);
  parallel_for(blocks, grain, [&, kernel = kernels.of<T>().statistics_of_rows](int64_t begin, int64_t end) {
    for (int64_t b = begin; b < end; ++b) {
      kernel(from + detail::offset_of(v.kept, v.kept_strides, first_row(b)), v.kept_strides.back(),
             rows_of_block(b), side, sum + b * side, rest + b * side, squares + b * side);
    }
  });

  // The mean of the blocks' numbers: over blocks for each column, then over the columns of a channel.
  const auto mean_of = [&](const Tensor& of_blocks, T* to) {
    Tensor of_columns = empty({side}, x.options());
    reduce(ReduceKind::sum, detail::alias(of_blocks, of_blocks.impl()->offset, {side, blocks}, {1, side}), 1,
           of_columns);
    std::fill_n(to, channels, T(0));
    for (int64_t i = 0; i < side; ++i) to[i / x.strides()[1] % channels] += detail::ptr<T>(of_columns)[i];
    for (int64_t c = 0; c < channels; ++c) to[c] /= static_cast<T>(v.rows * side / channels);
  };
  mean_of(sum_tensor, means);
  std::vector<T> column_means(static_cast<size_t>(side));
  for (int64_t i = 0; i < side; ++i)
    column_means[static_cast<size_t>(i)] = means[i / x.strides()[1] % channels];
  parallel_for(blocks, grain, [&, mean = column_means.data()](int64_t begin, int64_t end) {
    for (int64_t b = begin; b < end; ++b) {
      const T n = static_cast<T>(rows_of_block(b));
      for (int64_t i = 0; i < side; ++i) {
        const T away = sum[b * side + i] / n - mean[i];
        squares[b * side + i] += 2 * away * rest[b * side + i] + n * away * away;
      }
    }
  });
  mean_of(squares_tensor, variances);
}

/// t, which has C elements, expanded to the shape of x; zeros if t is undefined.
Tensor per_channel(const Tensor& t, const Tensor& x) {
  const Tensor values = t.defined() ? t : zeros({x.shape()[1]}, x.options());
  return values.reshape({1, x.shape()[1], 1, 1, 1}).expand(x.shape());
}

}  // namespace

void batch_norm(const Tensor& x_of_any_strides, const Tensor& weight, const Tensor& bias, double eps,
                Tensor& y_tensor, Tensor& mean, Tensor& variance) {
  const InterleavedPlanes planes(x_of_any_strides);
  const bool interleaved = planes.has_channels && planes.side >= 8 && !x_of_any_strides.is_contiguous();
  const Tensor x_tensor = interleaved ? x_of_any_strides : x_of_any_strides.contiguous();
  visit_floating("batch_norm", x_tensor.dtype(), [&]<class T>(T) {
    const Channels channels(x_tensor);
    const auto scale_of = [&, w = detail::ptr_or_null<T>(weight)](int64_t c, T v) {
      return (w ? w[c] : T(1)) * (T(1) / std::sqrt(v + static_cast<T>(eps)));
    };
    if (interleaved) {
      T *means = detail::mutable_ptr<T>(mean), *variances = detail::mutable_ptr<T>(variance);
      interleaved_statistics<T>(x_tensor, planes, means, variances);
      const Tensor scale = empty_like(mean);
      for (int64_t c = 0; c < channels.count; ++c)
        detail::mutable_ptr<T>(scale)[c] = scale_of(c, variances[c]);
      return scale_channels(x_tensor, mean, scale, bias, y_tensor);
    }
    const auto& kernel = kernels.of<T>();
    const T *x = detail::ptr<T>(x_tensor), *b = detail::ptr_or_null<T>(bias);
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
        const T scale = scale_of(c, v);
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

void scale_channels(const Tensor& x, const Tensor& mean, const Tensor& scale, const Tensor& shift,
                    Tensor& y) {
  visit_floating("batch_norm", x.dtype(), [&]<class T>(T) {
    const auto apply = kernels.of<T>().apply;
    for_runs(
        [=](const Run& r) {
          const T *from = r.pointer<T>(1), *m = r.pointer<T>(2), *s = r.pointer<T>(3), *b = r.pointer<T>(4);
          T* to = r.pointer<T>(0);
          if (r.step[1] == 1 && r.step[2] == 0 && r.step[3] == 0 && r.step[4] == 0)
            return apply(from, *m, *s, *b, to, r.n, r.stream);
          for (int64_t i = 0; i < r.n; ++i)
            apply(from + i * r.step[1], m[i * r.step[2]], s[i * r.step[3]], b[i * r.step[4]], to + i, 1,
                  false);
        },
        y, x, per_channel(mean, x), per_channel(scale, x), per_channel(shift, x));
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
        const T inverse = T(1) / std::sqrt(variances[c] + static_cast<T>(eps));  // of the standard deviation
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
