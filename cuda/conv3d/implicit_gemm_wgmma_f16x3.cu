// implicit_gemm_wgmma.cuh of f32 as a sum of two f16 numbers (implicit_gemm_wgmma_f16x3.cuh): as accurate as
// f32 arithmetic, at half the cost of two TF32 numbers. What f16 has no room for leaves a mark, and
// implicit_gemm_wgmma_split does the work over, without the host having to know.
//
// What is promised. Where there is no mark, and K products are summed,
//
//   |y - exact| <= (2^-21 + the f32 sum's own error) * sum |x||w|
//                  + 2^-48 * sum (M(x)|w|) + 2^-39 * sum (|x| M(w)),
//
// M(x) being the largest value in the same window of a plane and the same 8 channels, M(w) the largest weight
// of the output channel. The first line is f32's (two to four units of its last place for one product, and
// less the more there are); the others are below it as long as something of a normal size is among what is
// summed. They would not be where all 8 channels of a position are below 2^-27 M(x) at least, or all 8
// weights of a tap below 2^-18 M(w), and not all are 0, since outputs may consist of such alone: that is what
// marks. So are Inf, NaN and planes whose largest value is beyond 2^96 or below 2^-80. Zeros are exact and
// mark nothing: sparse data run here.
//
// What is not promised: a channel that is 2^27 times smaller than another of its 8, at the same place, where
// the larger meets weights that are 0 (or much smaller), is known only to 2^-48 of the larger; likewise a
// weight, where the larger weights of its 8 channels meet zeros of the input.

#include <voxgrad/core/factories.h>
#include <voxgrad/cuda/conv3d/implicit_gemm_wgmma_launch.cuh>

namespace vox::cuda {

bool implicit_gemm_wgmma_f16x3_takes(const Conv3dGeometry& g, bool transposed) {
  return flat::takes<float, flat::F16x3>(g, transposed) && implicit_gemm_wgmma_split_takes(g, transposed);
}

void conv3d_implicit_gemm_wgmma_f16x3(const Tensor& big, const Tensor& weight, const Tensor& bias,
                                      Tensor& small, Conv3dGeometry g) {
  const Tensor not_split = zeros({1}, {.dtype = i64, .device = small.device()});
  flat::run<float, flat::F16x3>("conv3d", big, weight, bias, small, g, false, not_split);
  conv3d_implicit_gemm_wgmma_split_if(not_split, big, weight, bias, small, g);
}

void conv_transpose3d_implicit_gemm_wgmma_f16x3(const Tensor& small, const Tensor& weight, const Tensor& bias,
                                                Tensor& big, Conv3dGeometry g) {
  const Tensor not_split = zeros({1}, {.dtype = i64, .device = big.device()});
  flat::run<float, flat::F16x3>("conv_transpose3d", small, weight, bias, big, g, true, not_split);
  conv_transpose3d_implicit_gemm_wgmma_split_if(not_split, small, weight, bias, big, g);
}

}  // namespace vox::cuda
