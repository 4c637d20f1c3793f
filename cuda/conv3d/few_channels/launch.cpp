#include <voxgrad/cuda/conv3d/call.h>
#include <voxgrad/cuda/conv3d/common/recent.h>
#include <voxgrad/cuda/conv3d/few_channels/launch.h>

#include <optional>
#include <tuple>

namespace vox::cuda::conv::few_channels {

namespace {

const std::optional<Plan>& plan_of(const Conv3dGeometry& g, bool transposed) {
  thread_local Recent<std::tuple<Conv3dGeometry, bool>, std::optional<Plan>> recent;
  return recent.of({g, transposed}, [&] { return make_plan(g, transposed); });
}

const std::optional<WeightGradPlan>& weight_grad_plan_of(const Conv3dGeometry& g) {
  thread_local Recent<Conv3dGeometry, std::optional<WeightGradPlan>> recent;
  return recent.of(g, [&] { return make_weight_grad_plan(g); });
}

/// Calls `f` with a value of the storage type, which is f32, bf16 or f16.
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

bool takes(const Conv3dGeometry& g, bool transposed) { return plan_of(g, transposed).has_value(); }

bool takes_weight_grad(const Conv3dGeometry& g) { return weight_grad_plan_of(g).has_value(); }

void run(const Conv3dCall& call) {
  visit_storage(call.output.dtype(),
                [&]<class T>(T) { product<T>(call, *plan_of(call.geometry, call.transposed)); });
}

void run_weight_grad(const WeightGradCall& call) {
  visit_storage(call.dweight.dtype(),
                [&]<class T>(T) { weight_grad<T>(call, *weight_grad_plan_of(call.geometry)); });
}

}  // namespace vox::cuda::conv::few_channels
