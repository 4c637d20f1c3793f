#include "shim.h"

#include <voxgrad/config.h>
#if VOXGRAD_HAS_CUDA
#include <voxgrad/cuda/conv3d/select.h>
#endif

// Single convolutions, for vs_pytorch and for the layer profile of networks.

namespace bench {
namespace {

struct Convolution {
  bool transposed, bias;
  vox::ConvTranspose3dOptions o;

  explicit Convolution(const Spec& spec)
      : transposed(spec.name == "conv_transpose3d"),
        bias(spec.operands.size() > (spec.pass == "forward" ? 2 : 3)) {
    const auto triple = [&](size_t i) {
      return vox::Triple(spec.options.at(i), spec.options.at(i + 1), spec.options.at(i + 2));
    };
    o = {.stride = triple(0),
         .padding = triple(3),
         .output_padding = triple(9),
         .groups = spec.options.at(12),
         .dilation = triple(6)};
  }

  vox::Conv3dOptions plain_options() const {
    return {.stride = o.stride, .padding = o.padding, .dilation = o.dilation, .groups = o.groups};
  }

  vox::Tensor operator()(const Tensors& t) const {
    const vox::Tensor b = bias ? t[2] : vox::Tensor();
    return transposed ? vox::conv_transpose3d(t[0], t[1], b, o) : vox::conv3d(t[0], t[1], b, plain_options());
  }
};

/// The kernel that the table chooses for the pass: forward, or the gradient of the operand that requires it.
std::string kernel([[maybe_unused]] const Convolution& c, [[maybe_unused]] const Spec& spec) {
#if VOXGRAD_HAS_CUDA
  using enum vox::Conv3dPass;
  const vox::Tensor &x = spec.operands[0], &weight = spec.operands[1];
  if (!x.device().is_cuda()) return {};
  const vox::Shape &in = x.shape(), &w = weight.shape();
  const vox::Conv3dGeometry geometry = c.transposed
                                           ? vox::detail::conv_transpose3d_geometry("bench", in, w, c.o)
                                           : vox::detail::conv3d_geometry("bench", in, w, c.plain_options());
  const bool upwards = c.transposed == (spec.pass == "forward");  // from the coarse grid to the fine one
  const auto pass = spec.pass != "forward" && weight.requires_grad() ? weight_grad
                    : upwards                                        ? conv_transpose3d
                                                                     : conv3d;
  return std::string(vox::cuda::chosen_conv3d_kernel({pass, geometry, x.dtype(), vox::float32_precision()}));
#else
  return {};
#endif
}

}  // namespace

/// Operands: x, weight, a bias or none, and the output's gradient, except for "forward". Options: stride,
/// padding, dilation and output_padding along each axis, groups. A "step" results in y and the gradients of
/// all operands.
Task conv(const Spec& spec) {
  const Convolution convolution(spec);
  if (spec.pass != "step") {
    Task task = differentiate(spec, convolution);
    task.kernel = kernel(convolution, spec);
    return task;
  }
  return {[spec, convolution] {
    Tensors wanted = spec.operands;
    const vox::Tensor gy = wanted.back(), y = convolution(spec.operands);
    wanted.pop_back();
    Tensors results = vox::grad({y}, wanted, {.grad_outputs = {gy}});
    results.insert(results.begin(), y.detach());
    return results;
  }};
}

}  // namespace bench
