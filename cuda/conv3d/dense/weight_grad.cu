#include <voxgrad/cuda/conv3d/dense/weight_grad.cuh>

namespace vox::cuda::conv::dense {

template <class Operand>
bool takes_weight_grad(const Conv3dGeometry& g) {
  return recall<make_weight_grad_plan>(g, h200).has_value();
}
template bool takes_weight_grad<Bf16>(const Conv3dGeometry&);
template bool takes_weight_grad<F16>(const Conv3dGeometry&);
template bool takes_weight_grad<ScaledF16>(const Conv3dGeometry&);

template void run_weight_grad<Bf16>(const WeightGradCall&);
template void run_weight_grad<F16>(const WeightGradCall&);
template void run_weight_grad<ScaledF16>(const WeightGradCall&);

}  // namespace vox::cuda::conv::dense
