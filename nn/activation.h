#pragma once

#include <voxgrad/nn/module.h>
#include <voxgrad/ops/elementwise.h>

// The activations of ops/elementwise.h as layers.

namespace vox::nn {

struct ReLU final : Module {
  Tensor forward(const Tensor& input) override { return relu(input); }
};

struct LeakyReLU final : Module {
  explicit LeakyReLU(double slope = 0.01) : negative_slope(slope) {}
  Tensor forward(const Tensor& input) override { return leaky_relu(input, negative_slope); }
  double negative_slope;
};

struct GELU final : Module {
  Tensor forward(const Tensor& input) override { return gelu(input); }
};

struct SiLU final : Module {
  Tensor forward(const Tensor& input) override { return silu(input); }
};

struct Sigmoid final : Module {
  Tensor forward(const Tensor& input) override { return sigmoid(input); }
};

struct Tanh final : Module {
  Tensor forward(const Tensor& input) override { return tanh(input); }
};

}  // namespace vox::nn
