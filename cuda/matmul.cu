#include <voxgrad/cuda/runtime/launch.h>
#include <voxgrad/ops/kernels.h>
#include <voxgrad/ops/layout.h>

#include <cstdint>

// matmul on CUDA: y[n, m] = sum over k of a[n, k] b[k, m], for every batch.
//
// A thread block owns a 64 x 64 tile of y, and each thread 4 x 4 elements of it. The block goes through k 16
// indices at a time, with both operands' tiles in shared memory: each element read from there is used 4
// times, each read from memory 64 times. Every element of y adds its k products from first to last, one fused
// multiply-add each. Strides only decide which thread loads what, so they do not change the bits.
//
// 16-bit operands become f32 on their way into shared memory. Ideas not tried: tensor cores (wgmma), and
// splitting k where there are few tiles.

namespace vox::cuda {
namespace {

constexpr int tile = 64, depth = 16, side = 16, own = tile / side;
constexpr int threads = side * side;

/// One operand: element (i, j) of batch number p lies at offset_of(batch, batch_strides, p) + i * row + j *
/// column.
template <class T>
struct Operand {
  const T* data;
  Shape batch_strides;
  int64_t row, column;
};

template <class T>
Operand<T> operand_of(const Tensor& x) {
  const Shape& s = x.strides();
  Operand<T> o{detail::ptr<T>(x), {}, s[s.rank() - 2], s[s.rank() - 1]};
  for (int64_t i = 0; i < s.rank() - 2; ++i) o.batch_strides.push_back(s[i]);
  if (o.batch_strides.empty()) o.batch_strides.push_back(0);
  return o;
}

/// Fills a tile of `height` x `width` from rows `row0` and columns `column0` on, by put(i, j, value), with 0
/// beyond the operand's `rows` x `columns`. Neighbouring threads read neighbours in memory.
template <int height, int width, class T, class Put>
__device__ void load_tile(const T* data, const Operand<T>& o, int64_t row0, int64_t column0, int64_t rows,
                          int64_t columns, Put put) {
  static_assert(height * width % threads == 0);
  for (int e = threadIdx.x; e < height * width; e += threads) {
    const int i = o.column == 1 ? e / width : e % height, j = o.column == 1 ? e % width : e / height;
    const bool inside = row0 + i < rows && column0 + j < columns;
    put(i, j, inside ? data[(row0 + i) * o.row + (column0 + j) * o.column] : T(0));
  }
}

template <class T>
__global__ void __launch_bounds__(threads) matmul_kernel(Operand<T> a, Operand<T> b, T* y, Shape batch,
                                                         int64_t batches, int64_t n, int64_t k, int64_t m) {
  using Acc = opmath_t<T>;
  __shared__ Acc a_tile[depth][tile + 1];  // (k, n): + 1 spreads the columns that load_tile writes over banks
  __shared__ Acc b_tile[depth][tile + 1];  // (k, m)
  const int c = threadIdx.x % side, r = threadIdx.x / side;
  const int64_t down = (n + tile - 1) / tile, across = (m + tile - 1) / tile;

  for (int64_t task = blockIdx.x; task < batches * down * across; task += gridDim.x) {
    const int64_t p = task / across / down;
    const int64_t row0 = task / across % down * tile, column0 = task % across * tile;
    const T* a_data = a.data + detail::offset_of(batch, a.batch_strides, p);
    const T* b_data = b.data + detail::offset_of(batch, b.batch_strides, p);

    Acc sum[own][own] = {};
    for (int64_t k0 = 0; k0 < k; k0 += depth) {
      load_tile<tile, depth>(a_data, a, row0, k0, n, k, [&](int i, int j, T value) { a_tile[j][i] = value; });
      load_tile<depth, tile>(b_data, b, k0, column0, k, m,
                             [&](int i, int j, T value) { b_tile[i][j] = value; });
      __syncthreads();
#pragma unroll
      for (int kk = 0; kk < depth; ++kk) {
        Acc left[own], right[own];
        for (int i = 0; i < own; ++i) left[i] = a_tile[kk][r + i * side];
        for (int j = 0; j < own; ++j) right[j] = b_tile[kk][c + j * side];
        for (int i = 0; i < own; ++i)
          for (int j = 0; j < own; ++j) sum[i][j] = fma(left[i], right[j], sum[i][j]);
      }
      __syncthreads();  // before the next tiles are loaded
    }
    for (int i = 0; i < own; ++i) {
      for (int j = 0; j < own; ++j) {
        const int64_t row = row0 + r + i * side, column = column0 + c + j * side;
        if (row < n && column < m) y[(p * n + row) * m + column] = T(sum[i][j]);
      }
    }
  }
}

}  // namespace

void matmul(const Tensor& a, const Tensor& b, Tensor& y) {
  visit_floating_storage("matmul", y.dtype(), [&]<class T>(T) {
    const Launch launch("matmul", y, {&a, &b});
    const int64_t n = a.size(-2), k = a.size(-1), m = b.size(-1), batches = y.numel() / (n * m);
    Shape batch(y.shape().begin(), y.shape().end() - 2);
    if (batch.empty()) batch.push_back(1);
    const int64_t tiles = batches * ((n + tile - 1) / tile) * ((m + tile - 1) / tile);
    matmul_kernel<T><<<grid_for(tiles, 1), threads, 0, launch.stream()>>>(
        operand_of<T>(a), operand_of<T>(b), detail::mutable_ptr<T>(y), batch, batches, n, k, m);
    launch.check();
  });
}

}  // namespace vox::cuda
