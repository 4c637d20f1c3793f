#include <voxgrad/ops/cpu/tasks.h>
#include <voxgrad/ops/kernels.h>
#include <voxgrad/ops/layout.h>

#include <Eigen/Core>
#include <algorithm>
#include <cstdint>

// matmul on the CPU: Eigen's product, on tiles of the output whose borders depend on the shape alone.
//
// A task owns one tile of one batch. Operands are read dense, so a strided view gives the same bits as its
// copy. Eigen's own choices depend on the sizes only, and its loads are unaligned or from packed copies, so
// addresses change no bit.

namespace vox::cpu {
namespace {

constexpr int64_t tile_rows = 128, tile_columns = 512;
constexpr int64_t task_operations = 65536;  // multiply-adds worth a task of parallel_for

/// Batches as one list of dense matrices. Repeated batches keep stride 0; only matrices that are not dense
/// are copied.
struct Operand {
  Tensor dense;  // (distinct batches..., rows, columns)
  Shape batch, strides;

  explicit Operand(const Tensor& x) : batch(x.shape().begin(), x.shape().end() - 2) {
    Shape distinct = x.shape();
    for (int64_t i = 0; i < batch.rank(); ++i) {
      if (x.strides()[i] == 0) distinct[i] = 1;
    }
    dense = detail::alias(x, x.impl()->offset, distinct, x.strides()).contiguous();
    strides = contiguous_strides(distinct);
    for (int64_t i = 0; i < batch.rank(); ++i) {
      if (distinct[i] == 1) strides[i] = 0;
    }
  }

  int64_t offset(int64_t index) const { return detail::offset_of(batch, strides, index); }
};

template <class T>
void matmul_as(const Tensor& a_tensor, const Tensor& b_tensor, Tensor& y_tensor) {
  using Matrix = Eigen::Matrix<T, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;
  using Stride = Eigen::OuterStride<>;
  const Operand a_operand(a_tensor), b_operand(b_tensor);
  const T* a = detail::ptr<T>(a_operand.dense);
  const T* b = detail::ptr<T>(b_operand.dense);
  T* y = detail::mutable_ptr<T>(y_tensor);
  const int64_t n = a_tensor.size(-2), k = a_tensor.size(-1), m = b_tensor.size(-1);

  const int64_t down = (n + tile_rows - 1) / tile_rows, across = (m + tile_columns - 1) / tile_columns;
  const int64_t operations = std::min(n, tile_rows) * std::min(m, tile_columns) * std::max<int64_t>(k, 1);
  const int64_t tasks = y_tensor.numel() / (n * m) * down * across;
  for_tasks(tasks, task_operations / operations, [&](int64_t task) {
    const int64_t batch = task / across / down;
    const int64_t row = task / across % down * tile_rows, column = task % across * tile_columns;
    const int64_t rows = std::min(tile_rows, n - row), columns = std::min(tile_columns, m - column);
    using Map = Eigen::Map<Matrix, 0, Stride>;
    using ConstMap = Eigen::Map<const Matrix, 0, Stride>;
    const ConstMap left(a + a_operand.offset(batch) + row * k, rows, k, Stride(k));     // (rows, k)
    const ConstMap right(b + b_operand.offset(batch) + column, k, columns, Stride(m));  // (k, columns)
    Map out(y + (batch * n + row) * m + column, rows, columns, Stride(m));              // (rows, columns)
    out.noalias() = left * right;
  });
}

}  // namespace

void matmul(const Tensor& a, const Tensor& b, Tensor& y) {
  visit_floating("matmul", a.dtype(), [&]<class T>(T) { matmul_as<T>(a, b, y); });
}

}  // namespace vox::cpu
