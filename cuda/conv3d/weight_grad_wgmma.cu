// conv3d_weight_grad of f32 on Hopper, operands rounded to TF32 (weight_grad_wgmma.cuh), and of bf16 and f16,
// whose numbers are TF32 numbers as they are; and the kernel that adds partial results.
//
// Sums stay in the tensor core's accumulators for the whole slab; they truncate, which on data of one sign
// adds an error of the order of TF32's own after some 10^4 cells.
//
// Non-finite values: where a tap falls outside the fine grid lies a zero, so an Inf or NaN of small also
// makes NaN of the weights whose tap is outside for its cell; what either operand touches is never finite.

#include <voxgrad/cuda/conv3d/kernels.h>
#include <voxgrad/cuda/conv3d/weight_grad_wgmma.cuh>

namespace vox::cuda {

namespace {

/// Adds the slabs in order. A thread owns one accumulator of one thread of partial_kernel.
template <class T>
__global__ void __launch_bounds__(256)
    add_slabs_kernel(const float* partials, T* dweight, const __grid_constant__ WeightGradPlan p) {
  const int64_t each = p.slice_floats(), all = p.slices * each;
  for (int64_t i = int64_t{blockIdx.x} * blockDim.x + threadIdx.x; i < all;
       i += int64_t{gridDim.x} * blockDim.x) {
    const int at = static_cast<int>(i % each), thread = at % group_threads, lane = thread % 32;
    const int accumulator = at / group_threads % (p.columns / 2),
              product = at / group_threads / (p.columns / 2);
    const Slice slice = slice_of(p, i / each);
    const int octet = (product * 4 + thread / 32) * 2 + accumulator / 2 % 2;
    const int tap = slice.first_tap + octet % p.slice_taps;
    const int b = (slice.first_octet + octet / p.slice_taps) * 8 + lane / 4;
    const int column = slice.first_column + accumulator / 4 * 8 + lane % 4 * 2 + accumulator % 2;
    if (octet >= p.octets_in_slice() || tap >= p.taps || b >= p.big_per_group || column >= p.small_per_group)
      continue;
    double sum = 0;  // in f32 some 100 additions would err more than all the rest
#pragma unroll 8
    for (int64_t slab = 0; slab < p.slabs; ++slab) sum += partials[slab * all + i];
    dweight[((int64_t{slice.group} * p.small_per_group + column) * p.big_per_group + b) * p.taps + tap] =
        static_cast<T>(sum);
  }
}

}  // namespace

void add_weight_grad_slabs(const Launch& launch, const float* partials, Tensor& dweight,
                           const WeightGradPlan& p) {
  const auto add = [&]<class T>(T) {
    add_slabs_kernel<<<grid_for(p.slices * p.slice_floats(), 256), 256, 0, launch.stream()>>>(
        partials, detail::mutable_ptr<T>(dweight), p);
  };
  if (dweight.dtype() == bf16)
    add(bfloat16{});
  else if (dweight.dtype() == f16)
    add(float16{});
  else
    add(float{});
}

void conv3d_weight_grad_wgmma(const Tensor& big, const Tensor& small, Tensor& dweight, Tensor& dbias,
                              Grid bias_of, Conv3dGeometry g) {
  const Launch launch("conv3d_weight_grad", dweight, {&big, &small});
  weight_grad_in_slices<false>(launch, big, small, dweight, nullptr, *weight_grad_plan(g, false));
  if (dbias.defined()) conv3d_bias_grad(bias_of == Grid::big ? big : small, dbias);
}

}  // namespace vox::cuda
