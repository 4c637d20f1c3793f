#include <voxgrad/ops/kernels.h>
#include <voxgrad/cuda/for_each_index.cuh>

// One thread per element of the mask; neighbours read neighbouring targets.

namespace vox::cuda {

void one_hot(const Tensor& target, int64_t classes, int64_t inner, Tensor& y) {
  const Launch launch("cross_entropy", y, {&target});
  const auto* t = detail::ptr<int64_t>(target);
  auto* hot = detail::mutable_ptr<bool>(y);
  for_each_index(launch, y.numel(), [=] __device__(int64_t i) {
    const int64_t r = i % inner, c = i / inner % classes, n = i / inner / classes;
    hot[i] = t[n * inner + r] == c;
  });
}

}  // namespace vox::cuda
