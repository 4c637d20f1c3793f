#include "../common/shim.h"

#include <map>

// The ops of cases.py by name.

namespace bench {
namespace {

using namespace vox;
constexpr auto trilinear = InterpolateOptions::Mode::trilinear;
constexpr Activation none = Activation::none(), with_relu = Activation::relu(),
                     with_leaky_relu = Activation::leaky_relu();

Forward of_one(Tensor op(const Tensor&)) {
  return [op](const Tensors& t) { return op(t[0]); };
}

Forward of_two(Tensor op(const Tensor&, const Tensor&)) {
  return [op](const Tensors& t) { return op(t[0], t[1]); };
}

// Norms of x, weight and bias.
Forward batch_norm(Activation activation) {
  return [=](const Tensors& t) {
    return vox::batch_norm(t[0], {}, {}, t[1], t[2], {.training = true, .activation = activation});
  };
}

Forward instance_norm(Activation activation) {
  return [=](const Tensors& t) {
    return vox::instance_norm(t[0], {}, {}, t[1], t[2], {.activation = activation});
  };
}

Forward group_norm(Activation activation) {
  return [=](const Tensors& t) { return vox::group_norm(t[0], 8, t[1], t[2], 1e-5, activation); };
}

Forward layer_norm(Activation activation) {
  return [=](const Tensors& t) { return vox::layer_norm(t[0], t[1].shape(), t[1], t[2], 1e-5, activation); };
}

Forward max_pool(const MaxPool3dOptions& options) {
  return [=](const Tensors& t) { return max_pool3d(t[0], options); };
}

Forward reduction(Tensor op(const Tensor&, const Shape&, Flag), const Shape& dims, bool keepdim = false) {
  return [=](const Tensors& t) { return op(t[0], dims, keepdim); };
}

Forward var_mean(const Shape& dims) {
  return [=](const Tensors& t) {
    const VarMean both = vox::var_mean(t[0], dims);
    return both.var + both.mean;
  };
}

const std::map<std::string, Forward> ops{
    {"add", of_two(add)},
    {"sub", of_two(sub)},
    {"mul", of_two(mul)},
    {"div", of_two(div)},
    {"pow", of_two(pow)},
    {"maximum", of_two(maximum)},
    {"minimum", of_two(minimum)},
    {"compare", of_two(gt)},
    {"where", [](const Tensors& t) { return where(t[2], t[0], t[1]); }},
    {"mul scalar", [](const Tensors& t) { return t[0] * 1.5; }},
    {"neg", of_one(neg)},
    {"abs", of_one(abs)},
    {"exp", of_one(exp)},
    {"log", of_one(log)},
    {"sqrt", of_one(sqrt)},
    {"rsqrt", of_one(rsqrt)},
    {"erf", of_one(erf)},
    {"tanh", of_one(tanh)},
    {"sigmoid", of_one(sigmoid)},
    {"relu", of_one(relu)},
    {"gelu", of_one(gelu)},
    {"silu", of_one(silu)},
    {"mish", of_one(mish)},
    {"relu6", of_one(relu6)},
    {"hardswish", of_one(hardswish)},
    {"leaky_relu", [](const Tensors& t) { return leaky_relu(t[0]); }},
    {"elu", [](const Tensors& t) { return elu(t[0]); }},
    {"softplus", [](const Tensors& t) { return softplus(t[0]); }},
    {"hardtanh", [](const Tensors& t) { return hardtanh(t[0]); }},
    {"clamp", [](const Tensors& t) { return clamp(t[0], -1, 1); }},
    {"batch_norm", batch_norm(none)},
    {"batch_norm relu", batch_norm(with_relu)},
    {"instance_norm", instance_norm(none)},
    {"instance_norm leaky_relu", instance_norm(with_leaky_relu)},
    {"group_norm", group_norm(none)},
    {"group_norm relu", group_norm(with_relu)},
    {"group_norm silu", [](const Tensors& t) { return silu(vox::group_norm(t[0], 8, t[1], t[2])); }},
    {"layer_norm", layer_norm(none)},
    {"layer_norm relu", layer_norm(with_relu)},
    {"softmax rows", [](const Tensors& t) { return softmax(t[0], -1); }},
    {"softmax channels", [](const Tensors& t) { return softmax(t[0], 1); }},
    {"log_softmax rows", [](const Tensors& t) { return log_softmax(t[0], -1); }},
    {"cross_entropy", [](const Tensors& t) { return cross_entropy(t[0], t[1]); }},
    {"mse_loss", [](const Tensors& t) { return mse_loss(t[0], t[1]); }},
    {"l1_loss", [](const Tensors& t) { return l1_loss(t[0], t[1]); }},
    {"sum", reduction(sum, {})},
    {"sum rows", reduction(sum, {-1})},
    {"sum columns", reduction(sum, {0})},
    {"sum to channels", reduction(sum, {0, 2, 3, 4})},
    {"global mean", reduction(mean, {2, 3, 4}, true)},
    {"max rows", reduction(max, {-1})},
    {"argmax rows", reduction(argmax, {-1})},
    {"logsumexp rows", reduction(logsumexp, {-1})},
    {"logsumexp channels", reduction(logsumexp, {1})},
    {"norm rows", [](const Tensors& t) { return norm(t[0], 2, {-1}); }},
    {"var_mean rows", var_mean({-1})},
    {"var_mean to channels", var_mean({0, 2, 3, 4})},
    {"max_pool3d 2", max_pool({.kernel_size = 2})},
    {"max_pool3d 3", max_pool({.kernel_size = 3, .stride = 2, .padding = 1})},
    {"avg_pool3d 2", [](const Tensors& t) { return avg_pool3d(t[0], {.kernel_size = 2}); }},
    {"adaptive_max_pool3d 7", [](const Tensors& t) { return adaptive_max_pool3d(t[0], 7); }},
    {"adaptive_avg_pool3d 7", [](const Tensors& t) { return adaptive_avg_pool3d(t[0], 7); }},
    {"nearest x2", [](const Tensors& t) { return interpolate(t[0], {.scale_factor = 2}); }},
    {"trilinear x2",
     [](const Tensors& t) { return interpolate(t[0], {.scale_factor = 2, .mode = trilinear}); }},
    {"cat",
     [](const Tensors& t) {
       return cat({t[0], t[1]}, 1);
     }},
    {"pad",
     [](const Tensors& t) {
       return pad(t[0], {1, 1, 1, 1, 1, 1});
     }},
    {"copy transposed", [](const Tensors& t) { return t[0].transpose(-1, -2).contiguous(); }},
    {"copy every second", [](const Tensors& t) { return t[0].slice(-1, 0, t[0].size(-1), 2).contiguous(); }},
    {"channels last",
     [](const Tensors& t) {
       return t[0].permute({0, 2, 3, 4, 1}).contiguous();
     }},
    {"cast to f32", [](const Tensors& t) { return t[0].to(f32); }},
};

/// A step of an optimiser: the first half of the operands are parameters, the others their gradients.
Task optimiser_step(const Spec& spec) {
  const size_t count = spec.operands.size() / 2;
  Tensors parameters;
  for (size_t i = 0; i < count; ++i) {
    parameters.push_back(spec.operands[i].clone().set_requires_grad());
    parameters.back().set_grad(spec.operands[count + i]);
  }
  return {[parameters, optimiser = optimiser(spec.name, parameters)] {
    optimiser->step();
    return parameters;
  }};
}

}  // namespace

Task memory_bound(const Spec& spec) {
  if (spec.pass == "optimiser") return optimiser_step(spec);
  const auto op = ops.find(spec.name);
  check<ValueError>(op != ops.end(), "bench: no op ", spec.name);
  return differentiate(spec, op->second);
}

}  // namespace bench
