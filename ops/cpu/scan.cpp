// Linear recurrences: a chunk owns rows, and goes along each in order.

#include <voxgrad/ops/cpu/tasks.h>
#include <voxgrad/ops/layer_kernels.h>

namespace vox::cpu {

void recurrence(const Tensor& a, const Tensor& b, bool reverse, Tensor& y) {
  const int64_t n = y.size(-1);
  const auto run = [&]<class T>(T) {
    const T *const factors = detail::ptr_or_null<T>(a), *const terms = detail::ptr<T>(b);
    T* const out = detail::mutable_ptr<T>(y);
    for_tasks(y.numel() / n, 16384 / n, [&](int64_t row) {
      const int64_t first = row * n, step = reverse ? -1 : 1;
      int64_t i = reverse ? first + n - 1 : first;
      T sum = out[i] = terms[i];
      for (int64_t k = 1; k < n; ++k) {
        i += step;
        out[i] = sum = (factors ? factors[reverse ? i + 1 : i] * sum : sum) + terms[i];
      }
    });
  };
  if (y.dtype() == i64) return run(uint64_t{});  // wraps around
  visit_floating("cumsum", y.dtype(), run);
}

}  // namespace vox::cpu
