#pragma once

#include <voxgrad/voxgrad.h>

// The seven problems of KernelBench level 1 (https://github.com/ScalingIntelligence/KernelBench) that are
// 3-D transposed convolutions, at batch 1.

struct Problem {
  int number;
  int64_t c_in, c_out;
  vox::Triple input, kernel;
  vox::ConvTranspose3dOptions options = {};
};

inline const Problem problems[] = {
    {58, 32, 16, {16, 32, 64}, {3, 5, 7}},
    {61, 48, 48, {64, 64, 64}, {3, 3, 3}},
    {68, 32, 64, {64, 64, 64}, {3, 5, 5}},
    {70, 48, 24, {96, 96, 96}, {3, 3, 3}},
    {72,
     32,
     32,
     {12, 24, 48},
     {3, 5, 7},
     {.stride = 2, .padding = {1, 2, 3}, .output_padding = 1, .groups = 4}},
    {73, 32, 32, {32, 64, 128}, {3, 3, 3}, {.stride = 2, .padding = 1}},
    {77, 32, 64, {16, 32, 32}, {3, 3, 3}, {.stride = 2, .padding = 1, .dilation = 2}},
};

/// What a pass computes: the output, or the gradients of some operands.
struct Pass {
  const char* name;
  bool input, weight, bias;
  bool is_forward() const { return !input && !weight && !bias; }
};

inline const Pass passes[] = {{"forward", false, false, false},
                              {"backward", true, true, true},
                              {"grad_input", true, false, false},
                              {"grad_weight", false, true, false},
                              {"grad_bias", false, false, true}};

/// A pass with its operands.
class Convolution {
 public:
  Convolution(const Problem& p, const Pass& pass, vox::Device device)
      : options_(p.options), pass_(pass), operands_(operands_of(p, pass, device)) {
    const auto& [x, weight, bias] = operands_;
    if (pass.input) wanted_.push_back(x);
    if (pass.weight) wanted_.push_back(weight);
    if (pass.bias) wanted_.push_back(bias);
    if (pass.is_forward()) return;
    y_ = vox::conv_transpose3d(x, weight, bias, options_);
    grad_y_ = vox::randn(y_.shape(), y_.options());
  }

  std::vector<vox::Tensor> run() const {
    const auto& [x, weight, bias] = operands_;
    if (pass_.is_forward()) return {vox::conv_transpose3d(x, weight, bias, options_)};
    return vox::grad({y_}, wanted_, {.grad_outputs = {grad_y_}, .retain_graph = true});
  }

  /// Useful ones: 2 * input elements * C_out / groups * kernel volume, for each output of the pass but the
  /// bias's gradient.
  double operations() const {
    const auto& [x, weight, bias] = operands_;
    const double each = 2.0 * static_cast<double>(x.numel() * weight.numel() / weight.size(0));
    return each * (pass_.is_forward() ? 1 : pass_.input + pass_.weight);
  }

 private:
  struct Operands {
    vox::Tensor x, weight, bias;
  };
  static Operands operands_of(const Problem& p, const Pass& pass, vox::Device device) {
    const auto [d, h, w] = p.input;
    const auto [kd, kh, kw] = p.kernel;
    const vox::TensorOptions options{.device = device};
    return {
        vox::randn({1, p.c_in, d, h, w}, options).set_requires_grad(pass.input),
        vox::randn({p.c_in, p.c_out / p.options.groups, kd, kh, kw}, options).set_requires_grad(pass.weight),
        vox::randn({p.c_out}, options).set_requires_grad(pass.bias)};
  }

  vox::ConvTranspose3dOptions options_;
  Pass pass_;
  Operands operands_;
  std::vector<vox::Tensor> wanted_;
  vox::Tensor y_, grad_y_;
};
