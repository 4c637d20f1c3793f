// kernel.cuh for f32 rounded to TF32, and for bf16 and f16, whose numbers are all TF32 numbers; and the
// kernel that adds partial results.
//
// Sums stay in the tensor core's accumulators for the whole slab. They truncate (Note [Truncating sums] in
// common/operands.cuh), which on data of one sign adds an error of the order of TF32's own after some 10^4
// cells.

#include <voxgrad/cuda/conv3d/weight_grad/kernel.cuh>

namespace vox::cuda::conv::weight_grad {

namespace {

/// Adds the slabs. A lane owns one accumulator of one thread of partial_kernel. `parts` warps share the slabs
/// of 32 accumulators, so that many loads are in flight even for few accumulators. The order depends only on
/// the plan.
template <class T, int parts>
__global__ void __launch_bounds__(256)
    add_slabs_kernel(const float* partials, T* dweight, const __grid_constant__ Plan p) {
  static_assert(parts == 1 || parts == 8);
  __shared__ double of_part[parts][32];
  const int64_t each = p.slice_floats(), all = p.slices * each;
  const int part = parts == 1 ? 0 : static_cast<int>(threadIdx.x / 32);
  const int64_t i = int64_t{blockIdx.x} * (256 / parts) + threadIdx.x % (256 / parts);
  double sum = 0;  // in f32 the rounding of some 100 additions would exceed all other errors
  if (i < all) {
#pragma unroll 8
    for (int64_t slab = part; slab < p.slabs; slab += parts) sum += partials[slab * all + i];
  }
  if constexpr (parts > 1) {
    of_part[part][threadIdx.x % 32] = sum;
    __syncthreads();
    if (part > 0) return;
    for (int other = 1; other < parts; ++other) sum += of_part[other][threadIdx.x];
  }
  if (i >= all) return;
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

/// Measured: 28,672 accumulators take 8.4 us in parts and 13.0 without; 65,536 take 13.4 and 9.5.
constexpr int64_t most_in_parts = 40'000;

/// One grid holds all of them, because the size of partial results is limited (plan.h).
unsigned blocks_for(int64_t accumulators, int each) {
  return static_cast<unsigned>((accumulators + each - 1) / each);
}

}  // namespace

void add_slabs(const Launch& launch, const float* partials, const Tensor& dweight, const Plan& p) {
  const auto add = [&]<class T>(T) {
    const int64_t accumulators = p.slices * p.slice_floats();
    T* const to = vox::detail::mutable_ptr<T>(dweight);
    if (accumulators <= most_in_parts)
      add_slabs_kernel<T, 8><<<blocks_for(accumulators, 32), 256, 0, launch.stream()>>>(partials, to, p);
    else
      add_slabs_kernel<T, 1><<<blocks_for(accumulators, 256), 256, 0, launch.stream()>>>(partials, to, p);
  };
  if (dweight.dtype() == bf16)
    add(bfloat16{});
  else if (dweight.dtype() == f16)
    add(float16{});
  else
    add(float{});
}

template bool takes<Tf32>(const Conv3dGeometry& g);
template void run<Tf32>(const WeightGradCall& call);

}  // namespace vox::cuda::conv::weight_grad
