#include <voxgrad/autograd/autocast.h>
#include <voxgrad/nn/init.h>
#include <voxgrad/nn/layer.h>
#include <voxgrad/nn/linear.h>
#include <voxgrad/ops/elementwise.h>
#include <voxgrad/ops/matmul.h>

namespace vox::nn {

Linear::Linear(const Options& o) : options(o) {
  check<ValueError>(o.in_features >= 0 && o.out_features >= 0,
                    "nn::Linear: in_features and out_features must be >= 0, got ", o.in_features, " and ",
                    o.out_features);
  detail::check_dtype("nn::Linear", o.tensor.dtype);
  Tensor w = vox::detail::empty_for("nn::Linear", {o.out_features, o.in_features}, o.tensor);
  weight = register_parameter("weight", init::default_uniform_(w, o.in_features));
  if (!o.bias) return;
  Tensor b = vox::detail::empty_for("nn::Linear", {o.out_features}, o.tensor);
  bias = register_parameter("bias", init::default_uniform_(b, o.in_features));
}

Tensor Linear::forward(const Tensor& input) {
  vox::detail::check_defined("nn::Linear", "input", input);
  check<ShapeError>(input.rank() >= 1 && input.size(-1) == options.in_features,
                    "nn::Linear: the input's last size must be in_features = ", options.in_features,
                    ", got shape ", input.shape());
  detail::check_input("nn::Linear", input, weight);
  // One matrix for all leading dimensions, because a batch of products repeats the weight and its gradient.
  const Tensor rows = input.rank() > 2 ? input.flatten(0, -2) : input;
  Tensor output = matmul(rows, vox::detail::autocast_operand(weight).transpose(0, 1));
  if (bias.defined()) output = output + vox::detail::autocast_operand(bias);
  if (input.rank() <= 2) return output;
  Shape shape = input.shape();
  shape[shape.rank() - 1] = options.out_features;
  return output.reshape(shape);
}

std::string Linear::describe() const {
  return str("Linear(", options.in_features, ", ", options.out_features, options.bias ? "" : ", bias=false",
             ")");
}

}  // namespace vox::nn
