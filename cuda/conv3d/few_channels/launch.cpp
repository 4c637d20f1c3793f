#include <voxgrad/cuda/conv3d/call.h>
#include <voxgrad/cuda/conv3d/common/recent.h>
#include <voxgrad/cuda/conv3d/few_channels/launch.h>

namespace vox::cuda::conv::few_channels {

namespace {

/// Calls `f` with a number of a dtype that these kernels have: f32, bf16 or f16.
template <class F>
void visit_supported(DType dtype, F f) {
  if (dtype == bf16)
    f(bfloat16{});
  else if (dtype == f16)
    f(float16{});
  else
    f(float{});
}

}  // namespace

void run(const Conv3dCall& call) {
  visit_supported(call.output.dtype(),
                  [&]<class T>(T) { product<T>(call, *recall<make_plan>(call.geometry, call.transposed)); });
}

void run_weight_grad(const WeightGradCall& call) {
  visit_supported(call.dweight.dtype(),
                  [&]<class T>(T) { weight_grad<T>(call, *recall<make_weight_grad_plan>(call.geometry)); });
}

}  // namespace vox::cuda::conv::few_channels
