// kernel.cuh for f32 split into two f16 numbers (f16x3.cuh): as accurate as f32 arithmetic, at half the cost
// of two TF32 numbers. It fails (sets `failed`) on values that f16 cannot represent.
//
// Guarantee. If the kernel does not fail,
//
//   |y - exact| <= (2^-21 + the f32 sum's own error) * sum |x||w|
//                  + 2^-47 * sum (M(x)|w|) + 2^-38 * sum (|x| M(w)),
//
// where M(x) is the largest value in the same window of a plane and the same 8 channels, and M(w) the largest
// weight of the output channel. The first line is the error of f32: a single product may reach 2^-21, and
// long sums stay far below it. The second line is smaller if one of the summed values has a normal size.
//
// The second line dominates where all 8 channels of a position are far below M(x), or all 8 weights of a tap
// far below M(w), and not all are 0: outputs may consist of such values alone. There the kernel fails: below
// 2^-25 M(x) at most (2^-29 mostly), and below 2^-17 M(w). It also fails on Inf, NaN, and planes whose
// largest value is beyond 2^96 or below 2^-80. Zeros are exact, so sparse data are computed here.
//
// Not guaranteed: a channel far smaller (as above) than another of its 8 at the same place is known only to
// 2^-47 of the larger one, which shows where the larger one meets weights that are 0 or much smaller. The
// same holds for a weight whose larger neighbours among the 8 channels meet zeros of the input.

#include <voxgrad/cuda/conv3d/flat/launch.cuh>

namespace vox::cuda::conv::flat {

template bool takes<float, F16x3>(const Conv3dGeometry& g, bool transposed);
template void run<float, F16x3>(const Conv3dCall& call);

}  // namespace vox::cuda::conv::flat
