#include "../common/shim.h"

#include <map>
#include <memory>

#include "../common/missing.h"

// The ops of cases.py by name.

namespace bench {
namespace {

using namespace vox;
constexpr auto trilinear = InterpolateOptions::Mode::trilinear;

Tensor max_pool(const Tensor& x, int64_t size, int64_t stride, int64_t padding) {
  return max_pool3d(x, {.kernel_size = size, .stride = Triple(stride), .padding = padding});
}

const std::map<std::string, Forward> ops{
    {"add", [](const Tensors& t) { return t[0] + t[1]; }},
    {"mul", [](const Tensors& t) { return t[0] * t[1]; }},
    {"div", [](const Tensors& t) { return t[0] / t[1]; }},
    {"maximum", [](const Tensors& t) { return maximum(t[0], t[1]); }},
    {"mul scalar", [](const Tensors& t) { return t[0] * 1.5; }},
    {"where", [](const Tensors& t) { return where(t[2], t[0], t[1]); }},
    {"compare", [](const Tensors& t) { return gt(t[0], t[1]); }},
    {"abs", [](const Tensors& t) { return abs(t[0]); }},
    {"exp", [](const Tensors& t) { return exp(t[0]); }},
    {"sqrt", [](const Tensors& t) { return sqrt(t[0]); }},
    {"tanh", [](const Tensors& t) { return tanh(t[0]); }},
    {"sigmoid", [](const Tensors& t) { return sigmoid(t[0]); }},
    {"relu", [](const Tensors& t) { return relu(t[0]); }},
    {"leaky_relu", [](const Tensors& t) { return leaky_relu(t[0]); }},
    {"gelu", [](const Tensors& t) { return gelu(t[0]); }},
    {"silu", [](const Tensors& t) { return silu(t[0]); }},
    {"clamp", [](const Tensors& t) { return clamp(t[0], -1, 1); }},
    {"hardswish", [](const Tensors& t) { return missing::hardswish(t[0]); }},
    {"instance_norm", [](const Tensors& t) { return missing::instance_norm(t[0], t[1], t[2]); }},
    {"instance_norm leaky_relu",
     [](const Tensors& t) { return leaky_relu(missing::instance_norm(t[0], t[1], t[2])); }},
    {"group_norm", [](const Tensors& t) { return missing::group_norm(t[0], 8, t[1], t[2]); }},
    {"group_norm silu", [](const Tensors& t) { return silu(missing::group_norm(t[0], 8, t[1], t[2])); }},
    {"layer_norm", [](const Tensors& t) { return missing::layer_norm(t[0], t[1], t[2]); }},
    {"softmax rows", [](const Tensors& t) { return softmax(t[0], -1); }},
    {"softmax channels", [](const Tensors& t) { return softmax(t[0], 1); }},
    {"log_softmax rows", [](const Tensors& t) { return log_softmax(t[0], -1); }},
    {"logsumexp rows", [](const Tensors& t) { return missing::logsumexp(t[0], -1); }},
    {"cross_entropy", [](const Tensors& t) { return cross_entropy(t[0], t[1]); }},
    {"mse_loss", [](const Tensors& t) { return mse_loss(t[0], t[1]); }},
    {"l1_loss", [](const Tensors& t) { return l1_loss(t[0], t[1]); }},
    {"sum", [](const Tensors& t) { return sum(t[0]); }},
    {"sum rows", [](const Tensors& t) { return sum(t[0], {-1}); }},
    {"sum columns", [](const Tensors& t) { return sum(t[0], {0}); }},
    {"sum to channels",
     [](const Tensors& t) {
       return sum(t[0], {0, 2, 3, 4});
     }},
    {"global mean",
     [](const Tensors& t) {
       return mean(t[0], {2, 3, 4}, true);
     }},
    {"max rows", [](const Tensors& t) { return max(t[0], {-1}); }},
    {"max_pool3d 2", [](const Tensors& t) { return max_pool(t[0], 2, 2, 0); }},
    {"max_pool3d 3", [](const Tensors& t) { return max_pool(t[0], 3, 2, 1); }},
    {"avg_pool3d 2", [](const Tensors& t) { return avg_pool3d(t[0], {.kernel_size = 2}); }},
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

/// nn::BatchNorm3d in training mode with the operands' weight and bias.
Forward batch_norm(const Spec& spec, Tensor activation(const Tensor&)) {
  const Tensor &weight = spec.operands.at(1), &bias = spec.operands.at(2);
  auto layer = std::make_shared<nn::BatchNorm3d>(
      nn::BatchNorm3d::Options{.num_features = weight.numel(), .tensor = weight.options()});
  layer->weight = weight;
  layer->bias = bias;
  return [=](const Tensors& t) { return activation((*layer)(t[0])); };
}

/// A step of an optimiser: the first half of the operands are parameters, the others their gradients.
Task optimiser_step(const Spec& spec) {
  const auto half = spec.operands.begin() + static_cast<std::ptrdiff_t>(spec.operands.size() / 2);
  Tensors parameters;
  for (auto p = spec.operands.begin(); p != half; ++p) {
    parameters.push_back(p->clone().set_requires_grad());
    parameters.back().set_grad(*(half + (p - spec.operands.begin())));
  }
  std::shared_ptr<optim::Optimizer> optimiser;
  if (spec.name == "sgd")
    optimiser = std::make_shared<optim::SGD>(
        parameters, optim::SGDOptions{.lr = 1e-2, .momentum = 0.99, .weight_decay = 3e-5, .nesterov = true});
  else if (spec.name == "adam")
    optimiser = std::make_shared<optim::Adam>(parameters);
  else
    optimiser = std::make_shared<optim::AdamW>(parameters);
  return {[=] {
    optimiser->step();
    return parameters;
  }};
}

}  // namespace

Task memory_bound(const Spec& spec) {
  if (spec.pass == "optimiser") return optimiser_step(spec);
  if (spec.name == "batch_norm")
    return differentiate(spec, batch_norm(spec, [](const Tensor& y) { return y; }));
  if (spec.name == "batch_norm relu") return differentiate(spec, batch_norm(spec, relu));
  const auto op = ops.find(spec.name);
  check<ValueError>(op != ops.end(), "bench: no op ", spec.name);
  return differentiate(spec, op->second);
}

}  // namespace bench
