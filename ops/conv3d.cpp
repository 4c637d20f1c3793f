#include <voxgrad/autograd/autocast_scope.h>
#include <voxgrad/autograd/record.h>
#include <voxgrad/ops/conv3d.h>
#include <voxgrad/ops/conv3d_recorded.h>
#include <voxgrad/ops/dispatch.h>
#include <voxgrad/ops/kernels.h>
#include <voxgrad/ops/precision.h>
#include <voxgrad/ops/sum.h>

#include <array>

// Note [The conv3d family]
//
// The three ops contract one trilinear form: the sum of big * small * weight over all (fine cell, coarse
// cell, tap) that touch. With the geometry held fixed, every gradient of one of them is another of them, to
// any order:
//
//   recorded op                          gradient of first input      gradient of second input
//   conv3d(big, w), g on small           conv_transpose3d(g, w)       weight_grad(big, g)
//   conv_transpose3d(small, w), g on big conv3d(g, w)                 weight_grad(g, small)
//   weight_grad(big, small), g a weight  conv_transpose3d(small, g)   conv3d(big, g)
//
// A bias is added when an output is written; its gradient sums g over batch and cells. One recorded op with
// two outputs, weight_bias_grad, gives the gradients of weight and bias. Its own gradient with respect to g
// is the forward op again, with the gradients that it receives as weight and bias.
//
// A node keeps the precision of its forward. Its backward runs under a guard with that precision, so every op
// that it calls, and every node that these record, has the same one.

namespace vox {

using autograd::Gradient;
using autograd::Gradients;
using autograd::Node;
using autograd::SavedTensor;

namespace {

constexpr ByDevice conv3d_kernel{"conv3d", &cpu::conv3d, VOX_CUDA(&cuda::conv3d)};
constexpr ByDevice conv_transpose3d_kernel{"conv_transpose3d", &cpu::conv_transpose3d,
                                           VOX_CUDA(&cuda::conv_transpose3d)};
constexpr ByDevice weight_grad_kernel{"conv3d_weight_grad", &cpu::conv3d_weight_grad,
                                      VOX_CUDA(&cuda::conv3d_weight_grad)};

Tensor dense(const Tensor& t) { return t.defined() ? t.contiguous() : t; }

/// Gradients of weight (input 1) and bias (input 2) of a forward op; in one pass if both are needed.
std::array<Gradient, 2> parameter_gradients(const Node& node, const Tensor& big, const Tensor& small,
                                            const Conv3dGeometry& geometry, Grid bias_of) {
  const bool weight = node.needs_grad(1), bias = node.needs_grad(2);
  if (weight && bias) {
    auto grads = detail::weight_bias_grad(big, small, geometry, bias_of);
    return {grads.weight, grads.bias};
  }
  if (weight) return {detail::conv3d_weight_grad(big, small, geometry), std::nullopt};
  if (bias) return {std::nullopt, sum(bias_of == Grid::big ? big : small, {0, 2, 3, 4})};
  return {};
}

}  // namespace

namespace detail {

// ---- conv3d and conv_transpose3d --------------------------------------------------------------------------

namespace {

template <bool transposed>
struct ConvolutionNode final : Node {
  SavedTensor saved_input_{this}, saved_weight_{this};
  Conv3dGeometry geometry_;
  const Float32Precision precision_ = float32_precision();

  const char* name() const override { return transposed ? "conv_transpose3d" : "conv3d"; }

  Gradients backward(Gradients gradients) override {
    const PrecisionGuard as_forward(precision_);
    const Tensor& g = *gradients[0];
    const Tensor input = needs_grad(1) ? saved_input_.get() : Tensor();
    auto [grad_weight, grad_bias] = transposed ? parameter_gradients(*this, g, input, geometry_, Grid::big)
                                               : parameter_gradients(*this, input, g, geometry_, Grid::small);
    const auto grad_input = [&] {
      const Tensor weight = saved_weight_.get();
      return transposed ? conv3d(g, weight, {}, geometry_) : conv_transpose3d(g, weight, {}, geometry_);
    };
    return {if_needed(0, grad_input), grad_weight, grad_bias};
  }
};

template <bool transposed>
Tensor convolution(const Tensor& input, const Tensor& weight, const Tensor& bias,
                   const Conv3dGeometry& geometry, const char* function) {
  constexpr ByDevice kernel = transposed ? conv_transpose3d_kernel : conv3d_kernel;
  Tensor y = empty_for(function, transposed ? geometry.big_shape() : geometry.small_shape(), input.options());
  const Tensor x = dense(input), w = dense(weight), b = dense(bias);
  kernel.on(y.device())(x, w, b, y, geometry, float32_precision());
  if (auto node = autograd::record<ConvolutionNode<transposed>>({x, w, b}, y)) {
    node->saved_input_.save_for(1, x);
    node->saved_weight_.save_for(0, w);
    node->geometry_ = geometry;
  }
  return y;
}

}  // namespace

Tensor conv3d(const Tensor& big, const Tensor& weight, const Tensor& bias, const Conv3dGeometry& geometry,
              const char* function) {
  return convolution<false>(big, weight, bias, geometry, function);
}

Tensor conv_transpose3d(const Tensor& small, const Tensor& weight, const Tensor& bias,
                        const Conv3dGeometry& geometry, const char* function) {
  return convolution<true>(small, weight, bias, geometry, function);
}

// ---- weight_grad, alone and with the bias -----------------------------------------------------------------

namespace {
struct Conv3dWeightGradNode final : Node {
  SavedTensor saved_big_{this}, saved_small_{this};
  Conv3dGeometry geometry_;
  const Float32Precision precision_ = float32_precision();
  Grid bias_of_ = Grid::small;  // used only if there is a second output

  const char* name() const override { return "conv3d_weight_grad"; }

  Gradients backward(Gradients gradients) override {
    const PrecisionGuard as_forward(precision_);
    const Gradient& grad_weight = gradients[0];
    const Tensor grad_bias = gradients.size() == 2 && gradients[1] ? *gradients[1] : Tensor();
    const auto of = [&](Grid grid) -> Gradient {
      const bool is_big = grid == Grid::big;
      const Tensor bias = grid == bias_of_ ? grad_bias : Tensor();
      if (!needs_grad(is_big ? 0 : 1) || (!grad_weight && !bias.defined())) return std::nullopt;
      if (!grad_weight) return spread(bias, is_big ? geometry_.big_shape() : geometry_.small_shape());
      return is_big ? conv_transpose3d(saved_small_.get(), *grad_weight, bias, geometry_)
                    : conv3d(saved_big_.get(), *grad_weight, bias, geometry_);
    };
    return {of(Grid::big), of(Grid::small)};
  }

  /// Repeats the number of each channel in all its cells.
  static Tensor spread(const Tensor& bias, const Shape& shape) {
    return bias.reshape({1, bias.numel(), 1, 1, 1}).expand(shape);
  }
};

/// dweight, and dbias if it is defined, in one pass; recorded as one op.
void weight_grad(const Tensor& big_operand, const Tensor& small_operand, Tensor& dweight, Tensor& dbias,
                 Grid bias_of, const Conv3dGeometry& geometry) {
  const Tensor big = dense(big_operand), small = dense(small_operand);
  weight_grad_kernel.on(big.device())(big, small, dweight, dbias, bias_of, geometry, float32_precision());
  const std::array<Tensor, 2> inputs{big, small}, outputs{dweight, dbias};
  const std::span<const Tensor> defined(outputs.data(), dbias.defined() ? 2 : 1);
  if (auto node = autograd::record<Conv3dWeightGradNode>(inputs, defined)) {
    node->saved_big_.save_for(1, big);
    node->saved_small_.save_for(0, small);
    node->geometry_ = geometry;
    node->bias_of_ = bias_of;
  }
}
}  // namespace

Tensor conv3d_weight_grad(const Tensor& big, const Tensor& small, const Conv3dGeometry& geometry) {
  Tensor dweight = empty_for("conv3d_weight_grad", geometry.weight_shape(), big.options()), no_bias;
  weight_grad(big, small, dweight, no_bias, Grid::small, geometry);
  return dweight;
}

WeightBiasGrad weight_bias_grad(const Tensor& big, const Tensor& small, const Conv3dGeometry& geometry,
                                Grid bias_of) {
  const int64_t channels = bias_of == Grid::big ? geometry.big_channels : geometry.small_channels;
  WeightBiasGrad grads{empty_for("conv3d_weight_grad", geometry.weight_shape(), big.options()),
                       empty_for("conv3d_weight_grad", {channels}, big.options())};
  weight_grad(big, small, grads.weight, grads.bias, bias_of, geometry);
  return grads;
}

// ---- Public calls -----------------------------------------------------------------------------------------

void check_operands(const char* function, const char* first_name, const Tensor& first,
                    const char* second_name, const Tensor& second) {
  check_floating(function, first_name, first);
  check_defined(function, second_name, second);
  check_same_dtype(function, first, second);
  check_same_device(function, first, second);
}

void check_bias(const char* function, const Tensor& input, const Tensor& bias, int64_t channels) {
  if (!bias.defined()) return;
  check_same_dtype(function, input, bias);
  check_same_device(function, input, bias);
  check<ShapeError>(bias.shape() == Shape{channels}, function,
                    ": bias must have one number per output channel, shape ", Shape{channels}, ", got ",
                    bias.shape());
}

namespace {

/// Calls `op`, on a batch of one if `input` has no batch dimension.
template <class Op>
Tensor with_batch(Caller function, const Tensor& input, Op op) {
  check<ShapeError>(input.rank() == 5 || input.rank() == 4, function,
                    ": input must be (N, C, D, H, W) or (C, D, H, W), got shape ", input.shape());
  if (input.rank() == 5) return op(function, input);
  function.batched = false;
  return op(function, input.unsqueeze(0)).squeeze(0);
}

}  // namespace

Tensor conv3d(const Caller& function, const Tensor& input_operand, const Tensor& weight_operand,
              const Tensor& bias_operand, const Conv3dOptions& options) {
  const Tensor input = autocast_operand(input_operand), weight = autocast_operand(weight_operand),
               bias = autocast_operand(bias_operand);
  check_operands(function, "input", input, "weight", weight);
  return with_batch(function, input, [&](const Caller& caller, const Tensor& x) {
    const Conv3dGeometry geometry = conv3d_geometry(caller, x.shape(), weight.shape(), options);
    check_bias(function, input, bias, geometry.small_channels);
    return conv3d(x, weight, bias, geometry, caller);
  });
}

Tensor conv_transpose3d(const Caller& function, const Tensor& input_operand, const Tensor& weight_operand,
                        const Tensor& bias_operand, const ConvTranspose3dOptions& options) {
  const Tensor input = autocast_operand(input_operand), weight = autocast_operand(weight_operand),
               bias = autocast_operand(bias_operand);
  check_operands(function, "input", input, "weight", weight);
  return with_batch(function, input, [&](const Caller& caller, const Tensor& x) {
    const Conv3dGeometry geometry = conv_transpose3d_geometry(caller, x.shape(), weight.shape(), options);
    check_bias(function, input, bias, geometry.big_channels);
    return conv_transpose3d(x, weight, bias, geometry, caller);
  });
}

}  // namespace detail

Tensor conv3d(const Tensor& input, const Tensor& weight, const Tensor& bias, const Conv3dOptions& options) {
  return detail::conv3d("conv3d", input, weight, bias, options);
}

Tensor conv_transpose3d(const Tensor& input, const Tensor& weight, const Tensor& bias,
                        const ConvTranspose3dOptions& options) {
  return detail::conv_transpose3d("conv_transpose3d", input, weight, bias, options);
}

Tensor conv3d_weight_grad(const Tensor& big, const Tensor& small, Triple kernel_size,
                          const Conv3dOptions& options) {
  detail::check_operands("conv3d_weight_grad", "big", big, "small", small);
  return detail::conv3d_weight_grad(
      big, small, detail::conv3d_weight_grad_geometry(big.shape(), small.shape(), kernel_size, options));
}

}  // namespace vox
