// conv3d and conv_transpose3d of f32 on the tensor cores of sm_80 and later, as accurate as f32 arithmetic:
// operands are split into two TF32 numbers, and three of their products are made (implicit_gemm_mma.cuh).
//
// Values that are infinite or NaN once rounded have no split. Where there is one, the kernels leave a mark,
// and `direct` does the work over, without the host having to know.

#include <voxgrad/core/factories.h>
#include <voxgrad/cuda/conv3d/kernels.h>
#include <voxgrad/cuda/conv3d/implicit_gemm_mma.cuh>

namespace vox::cuda {

namespace {

void split_product(const char* op, const Tensor& wanted, Tensor mark, const Tensor& input,
                   const Tensor& weight, const Tensor& bias, Tensor& output, const Conv3dGeometry& g,
                   bool transposed) {
  if (g.batch == 0) return;
  const Launch launch(op, output, {&input, &weight, &bias, &mark, &wanted});
  mma::implicit_gemm_mma<true>(launch, op, input, weight, bias, output, g, transposed,
                               detail::mutable_ptr<int64_t>(mark),
                               wanted.defined() ? detail::ptr<int64_t>(wanted) : nullptr);
}

}  // namespace

void conv3d_implicit_gemm_mma_split_if(const Tensor& wanted, const Tensor& mark, const Tensor& big,
                                       const Tensor& weight, const Tensor& bias, Tensor& small,
                                       Conv3dGeometry g) {
  split_product("conv3d", wanted, mark, big, weight, bias, small, g, false);
  conv3d_direct_if(mark, big, weight, bias, small, g);
}

void conv_transpose3d_implicit_gemm_mma_split_if(const Tensor& wanted, const Tensor& mark,
                                                 const Tensor& small, const Tensor& weight,
                                                 const Tensor& bias, Tensor& big, Conv3dGeometry g) {
  split_product("conv_transpose3d", wanted, mark, small, weight, bias, big, g, true);
  conv_transpose3d_direct_if(mark, small, weight, bias, big, g);
}

void conv3d_implicit_gemm_mma_split(const Tensor& big, const Tensor& weight, const Tensor& bias,
                                    Tensor& small, Conv3dGeometry g) {
  const Tensor mark = zeros({1}, {.dtype = i64, .device = small.device()});
  conv3d_implicit_gemm_mma_split_if({}, mark, big, weight, bias, small, g);
}

void conv_transpose3d_implicit_gemm_mma_split(const Tensor& small, const Tensor& weight, const Tensor& bias,
                                              Tensor& big, Conv3dGeometry g) {
  const Tensor mark = zeros({1}, {.dtype = i64, .device = big.device()});
  conv_transpose3d_implicit_gemm_mma_split_if({}, mark, small, weight, bias, big, g);
}

}  // namespace vox::cuda
