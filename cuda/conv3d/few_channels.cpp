#include <voxgrad/cuda/conv3d/few_channels_launch.h>
#include <voxgrad/cuda/conv3d/kernels.h>
#include <voxgrad/cuda/conv3d/recent.h>

#include <optional>
#include <tuple>

namespace vox::cuda {

namespace {

const std::optional<FewChannelsPlan>& plan_of(const Conv3dGeometry& g, bool transposed) {
  thread_local Recent<std::tuple<Conv3dGeometry, bool>, std::optional<FewChannelsPlan>> recent;
  return recent.of({g, transposed}, [&] { return few_channels_plan(g, transposed); });
}

const std::optional<FewWeightGradPlan>& weight_grad_plan_of(const Conv3dGeometry& g) {
  thread_local Recent<Conv3dGeometry, std::optional<FewWeightGradPlan>> recent;
  return recent.of(g, [&] { return few_weight_grad_plan(g); });
}

/// Calls `f` with a number of the storage, which is f32, bf16 or f16.
template <class F>
void visit_storage(DType dtype, F f) {
  if (dtype == bf16)
    f(bfloat16{});
  else if (dtype == f16)
    f(float16{});
  else
    f(float{});
}

}  // namespace

bool few_channels_takes(const Conv3dGeometry& g, bool transposed) {
  return plan_of(g, transposed).has_value();
}

bool few_channels_weight_grad_takes(const Conv3dGeometry& g) { return weight_grad_plan_of(g).has_value(); }

void conv3d_few_channels(const Tensor& big, const Tensor& weight, const Tensor& bias, Tensor& small,
                         Conv3dGeometry g) {
  visit_storage(small.dtype(),
                [&]<class T>(T) { few::product<T>("conv3d", big, weight, bias, small, *plan_of(g, false)); });
}

void conv_transpose3d_few_channels(const Tensor& small, const Tensor& weight, const Tensor& bias, Tensor& big,
                                   Conv3dGeometry g) {
  visit_storage(big.dtype(), [&]<class T>(T) {
    few::product<T>("conv_transpose3d", small, weight, bias, big, *plan_of(g, true));
  });
}

void conv3d_weight_grad_few_channels(const Tensor& big, const Tensor& small, Tensor& dweight, Tensor& dbias,
                                     Grid bias_of, Conv3dGeometry g) {
  visit_storage(dweight.dtype(),
                [&]<class T>(T) { few::weight_grad<T>(big, small, dweight, *weight_grad_plan_of(g)); });
  if (dbias.defined()) conv3d_bias_grad(bias_of == Grid::big ? big : small, dbias);
}

}  // namespace vox::cuda
