#include <voxgrad/core/parallel.h>
#include <voxgrad/ops/kernels.h>

namespace vox::cpu {

void one_hot(const Tensor& target, int64_t classes, int64_t inner, Tensor& y) {
  const auto* t = detail::ptr<int64_t>(target);
  auto* hot = detail::mutable_ptr<bool>(y);
  if (y.numel() == 0) return;
  const int64_t lines = y.numel() / inner;  // a line: one n and one class
  parallel_for(lines, 1 + 32768 / inner, [&](int64_t begin, int64_t end) {
    for (int64_t line = begin; line < end; ++line) {
      const int64_t c = line % classes, n = line / classes;
      for (int64_t r = 0; r < inner; ++r) hot[line * inner + r] = t[n * inner + r] == c;
    }
  });
}

}  // namespace vox::cpu
