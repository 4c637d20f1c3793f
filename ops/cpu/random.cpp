#include <voxgrad/core/distributions.h>
#include <voxgrad/ops/cpu/tasks.h>
#include <voxgrad/ops/kernels.h>

// output[i] = element i % count of block i / count (core/distributions.h). One chunk owns a run of blocks.

namespace vox::cpu {

namespace {

template <class D>
void fill(const Tensor& output, GeneratorState at, D distribution) {
  auto* data = detail::mutable_ptr<typename D::Element>(output);
  const int64_t numel = output.numel();
  const int64_t blocks = numel / D::count + (numel % D::count != 0);
  for_tasks(blocks, 4096, [&](int64_t block) {
    detail::write_block(distribution, at.seed, at.offset, block, numel, data);
  });
}

}  // namespace

void rand(const Tensor& output, GeneratorState at) {
  visit_floating_storage("rand", output.dtype(), [&]<class T>(T) { fill(output, at, detail::Uniform<T>{}); });
}

void randn(const Tensor& output, GeneratorState at) {
  visit_floating_storage("randn", output.dtype(), [&]<class T>(T) { fill(output, at, detail::Normal<T>{}); });
}

void randint(const Tensor& output, GeneratorState at, int64_t low, uint64_t range) {
  visit_dtype(output.dtype(), [&]<class T>(T) { fill(output, at, detail::Integers<T>{low, range}); });
}

}  // namespace vox::cpu
