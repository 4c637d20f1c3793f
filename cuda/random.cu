#include <voxgrad/core/distributions.h>
#include <voxgrad/cuda/runtime/launch.h>
#include <voxgrad/ops/kernels.h>
#include <voxgrad/cuda/for_each_index.cuh>

// output[i] = element i % count of block i / count (core/distributions.h). One thread computes a block: 10
// rounds of Philox, then 16 bytes; neighbouring threads write neighbouring bytes. Normals are computed in
// double, so that they have the same bits as on the CPU. That is slow on GPUs with few double units, but
// happens once per parameter tensor.

namespace vox::cuda {

namespace {

template <class D>
struct WriteBlock {
  D distribution;
  GeneratorState at;
  int64_t numel;
  typename D::Element* data;
  __device__ void operator()(int64_t block) const {
    detail::write_block(distribution, at.seed, at.offset, block, numel, data);
  }
};

template <class D>
void fill(const char* op, const Tensor& output, GeneratorState at, D distribution) {
  const Launch launch(op, output);
  const int64_t numel = output.numel();
  const int64_t blocks = numel / D::count + (numel % D::count != 0);
  auto* data = detail::mutable_ptr<typename D::Element>(output);
  for_each_index(launch, blocks, WriteBlock<D>{distribution, at, numel, data});
}

}  // namespace

void rand(const Tensor& output, GeneratorState at) {
  visit_floating_storage("rand", output.dtype(),
                         [&]<class T>(T) { fill("rand", output, at, detail::Uniform<T>{}); });
}

void randn(const Tensor& output, GeneratorState at) {
  visit_floating_storage("randn", output.dtype(),
                         [&]<class T>(T) { fill("randn", output, at, detail::Normal<T>{}); });
}

void randint(const Tensor& output, GeneratorState at, int64_t low, uint64_t range) {
  visit_dtype(output.dtype(), [&]<class T>(T) {
    fill("randint", output, at, detail::Integers<T>{low, range});
  });
}

}  // namespace vox::cuda
