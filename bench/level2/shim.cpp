#include "../common/shim.h"

#include <limits>

// KernelBench level 2: what follows the transposed convolution in each problem of problems.py.

namespace bench {
namespace {

using namespace vox;
constexpr double infinity = std::numeric_limits<double>::infinity();

Tensor max2(const Tensor& x, int64_t size = 2) { return max_pool3d(x, {.kernel_size = size}); }
Tensor avg2(const Tensor& x) { return avg_pool3d(x, {.kernel_size = 2}); }
Tensor global_mean(const Tensor& x) { return mean(x, {2, 3, 4}, true); }

/// The tail of a problem: y is the convolution's output. `t` are the problem's further operands.
using Tail = std::function<Tensor(const Tensor& y)>;

/// Batch norm in training mode, with running statistics.
Tail batch_norm(const Tensor& weight, const Tensor& bias) {
  const Tensor mean = zeros_like(weight), variance = ones_like(weight);
  return
      [=](const Tensor& y) { return vox::batch_norm(y, mean, variance, weight, bias, {.training = true}); };
}

Tail tail(int number, const Tensors& t) {
  switch (number) {
    case 3:
      return [=](const Tensor& y) { return gelu(avg2(layer_norm(y + t[0], t[1].shape(), t[1], t[2]))); };
    case 13:
      return [=](const Tensor& y) { return tanh(softmax(mean(y, {2}, true) + t[0], 1)) * 2; };
    case 15:
      return [norm = batch_norm(t[0], t[1])](const Tensor& y) {
        const Tensor z = norm(y);
        return z - global_mean(z);
      };
    case 20:
      return [=](const Tensor& y) {
        const Tensor constant = y.detach();
        return (y + t[0] + constant) * constant + constant;
      };
    case 26:
      return [=](const Tensor& y) {
        const Tensor z = y + t[0];
        return z * hardswish(z);
      };
    case 34:
      return [=](const Tensor& y) { return gelu(layer_norm(y, t[0].shape(), t[0], t[1])) * 1.0; };
    case 38:
      return [=](const Tensor& y) {
        const Tensor rows = clamp(y, 0, 1).reshape({y.size(0), y.size(1), -1});
        return softmax(rows, 2).reshape(y.shape()) * t[0];
      };
    case 49:
      return [](const Tensor& y) { return sigmoid(softmax(y, 1)); };
    case 50:
      return [=](const Tensor& y) { return (avg2(y * t[0]) + t[1]) * t[2]; };
    case 58:
      return [=](const Tensor& y) {
        const Tensor z = logsumexp(y, {1}, true);
        return clamp(z * sigmoid(z + 3) / 6 - t[0], -1, 1);
      };
    case 60:
      return [=](const Tensor& y) { return hardswish(group_norm(silu(y), 4, t[0], t[1])); };
    case 61:
      return [=](const Tensor& y) { return group_norm(relu(y), 8, t[0], t[1]); };
    case 72:
      return [norm = batch_norm(t[0], t[1])](const Tensor& y) { return avg2(avg2(norm(y))); };
    case 74:
      return [=](const Tensor& y) { return max2(leaky_relu(leaky_relu(y, 0.2) * t[0], 0.2)); };
    case 77:
      return [norm = batch_norm(t[0], t[1])](const Tensor& y) { return global_mean(norm(y * 2)); };
    case 78:
      return [](const Tensor& y) { return sum(max2(max2(y), 3), {1}, true); };
    case 89:
      return [=](const Tensor& y) {
        return max(silu(softmax(max2(y), 1) - t[0].reshape({-1, 1, 1, 1})), {1});
      };
    case 96:
      return [](const Tensor& y) { return clamp(global_mean(max2(y * 0.5)), 0, 1); };
    case 100:
      return [](const Tensor& y) { return clamp(y, -1, infinity) / 2; };
  }
  throw ValueError("bench: level 2 has no problem " + std::to_string(number) + " here");
}

}  // namespace

/// Operands: x, weight, bias unless the problem has none (option 3 is 0), the tail's, and the output's
/// gradient except in "forward". Options: stride, padding, output_padding, bias.
Task level2(const Spec& spec) {
  const int number = std::stoi(spec.name);
  const bool bias = spec.options.at(3) != 0;
  const ConvTranspose3dOptions options{
      .stride = spec.options[0], .padding = spec.options[1], .output_padding = spec.options[2]};
  const Tail finish = tail(number, Tensors(spec.operands.begin() + (bias ? 3 : 2), spec.operands.end()));
  return differentiate(spec, [=](const Tensors& t) {
    const Tensor x = number == 38 ? avg2(t[0]) : t[0];
    return finish(conv_transpose3d(x, t[1], bias ? t[2] : Tensor(), options));
  });
}

}  // namespace bench
