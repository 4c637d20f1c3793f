#include "../common/shim.h"

#include <voxgrad/config.h>
#if VOXGRAD_HAS_CUDA
#include <voxgrad/cuda/conv3d/select.h>
#endif

// Single convolutions, for the layer profile.

namespace bench {
namespace {

struct Layer {
  bool transposed;
  int64_t stride, padding;

  vox::Tensor operator()(const Tensors& t) const {
    if (transposed) return vox::conv_transpose3d(t[0], t[1], {}, {.stride = stride, .padding = padding});
    return vox::conv3d(t[0], t[1], {}, {.stride = stride, .padding = padding});
  }
};

/// The kernel that the table chooses for the pass: forward, or the gradient of the operand that requires it.
std::string kernel([[maybe_unused]] const Layer& layer, [[maybe_unused]] const Spec& spec) {
#if VOXGRAD_HAS_CUDA
  using enum vox::cuda::Conv3dPass;
  const vox::Tensor &x = spec.operands[0], &weight = spec.operands[1];
  if (!x.device().is_cuda()) return {};
  const vox::Conv3dGeometry geometry =
      layer.transposed
          ? vox::detail::conv_transpose3d_geometry("bench", x.shape(), weight.shape(),
                                                   {.stride = layer.stride, .padding = layer.padding})
          : vox::detail::conv3d_geometry("bench", x.shape(), weight.shape(),
                                         {.stride = layer.stride, .padding = layer.padding});
  const bool upwards = layer.transposed == (spec.pass == "forward");  // from the coarse grid to the fine one
  const auto pass = spec.pass != "forward" && weight.requires_grad() ? weight_grad
                    : upwards                                        ? conv_transpose3d
                                                                     : conv3d;
  return std::string(vox::cuda::chosen_conv3d_kernel({pass, geometry, x.dtype(), vox::float32_precision()}));
#else
  return {};
#endif
}

}  // namespace

/// Operands: x, weight and, for "backward", the output's gradient. Options: stride and padding.
Task conv(const Spec& spec) {
  const Layer layer{spec.name == "conv_transpose3d", spec.options.at(0), spec.options.at(1)};
  Task task = differentiate(spec, layer);
  task.kernel = kernel(layer, spec);
  return task;
}

}  // namespace bench
