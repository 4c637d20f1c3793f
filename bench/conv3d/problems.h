#pragma once

#include <voxgrad/voxgrad.h>

// The transposed convolutions that are measured, and their passes.

/// A transposed convolution; `input` is its coarse grid.
struct Problem {
  int number;  ///< in KernelBench level 1
  int64_t batch, c_in, c_out;
  vox::Triple input, kernel;
  vox::ConvTranspose3dOptions options = {};
};

/// The seven problems of KernelBench level 1 (https://github.com/ScalingIntelligence/KernelBench) that are
/// 3-D transposed convolutions. This is the only list of them: bench/vs_pytorch/problems.py reads it from
/// here, so it contains nothing but names, numbers and braces.
inline const Problem problems[] = {
    {.number = 58, .batch = 16, .c_in = 32, .c_out = 16, .input = {16, 32, 64}, .kernel = {3, 5, 7}},
    {.number = 61, .batch = 8, .c_in = 48, .c_out = 48, .input = {64, 64, 64}, .kernel = {3, 3, 3}},
    {.number = 68, .batch = 16, .c_in = 32, .c_out = 64, .input = {64, 64, 64}, .kernel = {3, 5, 5}},
    {.number = 70, .batch = 8, .c_in = 48, .c_out = 24, .input = {96, 96, 96}, .kernel = {3, 3, 3}},
    {.number = 72,
     .batch = 8,
     .c_in = 32,
     .c_out = 32,
     .input = {12, 24, 48},
     .kernel = {3, 5, 7},
     .options = {.stride = 2, .padding = {1, 2, 3}, .output_padding = 1, .groups = 4}},
    {.number = 73,
     .batch = 4,
     .c_in = 32,
     .c_out = 32,
     .input = {32, 64, 128},
     .kernel = {3, 3, 3},
     .options = {.stride = 2, .padding = 1}},
    {.number = 77,
     .batch = 16,
     .c_in = 32,
     .c_out = 64,
     .input = {16, 32, 32},
     .kernel = {3, 3, 3},
     .options = {.stride = 2, .padding = 1, .dilation = 2}},
};

/// The problem at batch 1.
inline Problem one_of(Problem p) {
  p.batch = 1;
  return p;
}

/// The shape of the input of a Problem, or of a point of the sweep.
inline vox::Shape input_shape(const auto& p) { return {p.batch, p.c_in, p.input.d, p.input.h, p.input.w}; }

/// The shape of the weight.
inline vox::Shape weight_shape(const auto& p) {
  return {p.c_in, p.c_out / p.options.groups, p.kernel.d, p.kernel.h, p.kernel.w};
}

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

/// A pass of a problem on the CPU by the public functions, with its operands.
class Convolution {
 public:
  Convolution(const Problem& p, const Pass& pass)
      : options_(p.options), pass_(pass), operands_(operands_of(p, pass)) {
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

  /// Useful operations: 2 * input elements * C_out / groups * kernel volume for the output and for the
  /// gradients of input and weight each; none for the gradient of the bias.
  double operations() const {
    const auto& [x, weight, bias] = operands_;
    const double each = 2.0 * static_cast<double>(x.numel() * weight.numel() / weight.size(0));
    return each * (pass_.is_forward() ? 1 : pass_.input + pass_.weight);
  }

 private:
  struct Operands {
    vox::Tensor x, weight, bias;
  };
  static Operands operands_of(const Problem& p, const Pass& pass) {
    return {vox::randn(input_shape(p)).set_requires_grad(pass.input),
            vox::randn(weight_shape(p)).set_requires_grad(pass.weight),
            vox::randn({p.c_out}).set_requires_grad(pass.bias)};
  }

  vox::ConvTranspose3dOptions options_;
  Pass pass_;
  Operands operands_;
  std::vector<vox::Tensor> wanted_;
  vox::Tensor y_, grad_y_;
};
