// kernel.cuh for f32 rounded to TF32, and the kernel that adds partial results.
//
// Sums stay in the tensor core's accumulators for the whole split. They truncate (Note [Truncating sums] in
// common/operands.cuh), which on data of one sign adds an error of the order of TF32's own after some 10^4
// cells.

#include <voxgrad/cuda/conv3d/common/splits.cuh>
#include <voxgrad/cuda/conv3d/weight_grad/kernel.cuh>

namespace vox::cuda::conv::weight_grad {

namespace {

/// Stores sums, which lie like the accumulators of the threads of partial_kernel.
template <class T>
struct StoreSum {
  Plan p;
  T* dweight;

  __device__ __forceinline__ void operator()(int64_t i, double sum) const {
    const int64_t each = p.slice_floats();
    const int at = static_cast<int>(i % each), thread = at % group_threads, lane = thread % 32;
    const int accumulator = at / group_threads % (p.columns / 2),
              product = at / group_threads / (p.columns / 2);
    const Slice slice = slice_of(p, i / each);
    const int octet = (product * 4 + thread / 32) * 2 + accumulator / 2 % 2;
    const int tap = slice.first_tap + octet % p.slice_taps;
    const int b = (slice.first_octet + octet / p.slice_taps) * 8 + lane / 4;
    const int column = slice.first_column + accumulator / 4 * 8 + lane % 4 * 2 + accumulator % 2;
    if (octet < p.octets_in_slice() && tap < p.taps && b < p.big_per_group && column < p.small_per_group)
      dweight[((int64_t{slice.group} * p.small_per_group + column) * p.big_per_group + b) * p.taps + tap] =
          static_cast<T>(sum);
  }
};

}  // namespace

void add_splits(const Launch& launch, const float* partials, const Tensor& dweight, const Plan& p) {
  const auto add = [&]<class T>(T) {
    sum_splits(launch, partials, p.slices * p.slice_floats(), p.splits,
               StoreSum<T>{p, vox::detail::mutable_ptr<T>(dweight)});
  };
  if (dweight.dtype() == bf16)
    add(bfloat16{});
  else if (dweight.dtype() == f16)
    add(float16{});
  else
    add(float{});
}

template void run<Tf32>(const WeightGradCall& call);

}  // namespace vox::cuda::conv::weight_grad
