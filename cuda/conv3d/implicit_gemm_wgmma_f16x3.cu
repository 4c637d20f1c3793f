// implicit_gemm_wgmma.cuh of f32 as a sum of two f16 numbers (implicit_gemm_wgmma_f16x3.cuh): as accurate as
// f32 arithmetic, at half the cost of two TF32 numbers. What f16 has no room for leaves a mark, and
// implicit_gemm_wgmma_split does the work over, without the host having to know.
//
// What is promised. Where there is no mark,
//
//   |y - exact| <= (2^-21 + the f32 sum's own error) * sum |x||w|
//                  + 2^-47 * sum (M(x)|w|) + 2^-38 * sum (|x| M(w)),
//
// M(x) being the largest value in the same window of a plane and the same 8 channels, M(w) the largest weight
// of the output channel. The first line is f32's: 2^-21 is met by a single product, and the more are summed,
// the less of it is left. The second is below it as long as something of a normal size is among what is
// summed. It would not be where all 8 channels of a position are far below M(x), or all 8 weights of a tap
// far below M(w), and not all are 0, since outputs may consist of such alone. So that marks: below 2^-25 M(x)
// at the most (2^-29 mostly), and below 2^-17 M(w). So do Inf, NaN, and planes whose largest value is beyond
// 2^96 or below 2^-80. Zeros are exact and mark nothing: sparse data run here.
//
// What is not promised: a channel far smaller (as above) than another of its 8, at the same place, where the
// larger meets weights that are 0 or much smaller, is known only to 2^-47 of the larger; likewise a weight,
// where the larger weights of its 8 channels meet zeros of the input.

#include <voxgrad/core/factories.h>
#include <voxgrad/cuda/conv3d/implicit_gemm_wgmma_launch.cuh>

namespace vox::cuda {

bool implicit_gemm_wgmma_f16x3_takes(const Conv3dGeometry& g, bool transposed) {
  return flat::takes<float, flat::F16x3>(g, transposed) && implicit_gemm_wgmma_split_takes(g, transposed);
}

void conv3d_implicit_gemm_wgmma_f16x3(const Tensor& big, const Tensor& weight, const Tensor& bias,
                                      Tensor& small, Conv3dGeometry g) {
  const Tensor marks = zeros({2}, {.dtype = i64, .device = small.device()});
  const Tensor not_f16 = marks.select(0, 0), not_tf32 = marks.select(0, 1);
  flat::run<float, flat::F16x3>("conv3d", big, weight, bias, small, g, false, not_f16);
  conv3d_implicit_gemm_wgmma_split_if(not_f16, not_tf32, big, weight, bias, small, g);
}

void conv_transpose3d_implicit_gemm_wgmma_f16x3(const Tensor& small, const Tensor& weight, const Tensor& bias,
                                                Tensor& big, Conv3dGeometry g) {
  const Tensor marks = zeros({2}, {.dtype = i64, .device = big.device()});
  const Tensor not_f16 = marks.select(0, 0), not_tf32 = marks.select(0, 1);
  flat::run<float, flat::F16x3>("conv_transpose3d", small, weight, bias, big, g, true, not_f16);
  conv_transpose3d_implicit_gemm_wgmma_split_if(not_f16, not_tf32, small, weight, bias, big, g);
}

}  // namespace vox::cuda
