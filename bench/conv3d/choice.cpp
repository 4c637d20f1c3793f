// Says which kernel computes a layer, and why.
//
//   bench_conv3d_choice LAYER ARITHMETIC INPUT WEIGHT [NAME=VALUE]...
//
//   bench_conv3d_choice conv3d bf16 2,32,64,64,64 32,32,3,3,3 padding=1
//   bench_conv3d_choice conv_transpose3d high 2,64,32,32,32 64,32,2,2,2 stride=2
//
// LAYER is conv3d or conv_transpose3d; ARITHMETIC is highest, high or medium, which are precisions of f32, or
// bf16, f16 or f64; then shapes, and options that are not the defaults (three numbers as 1,2,2, or one for
// all axes).
//
// For each pass of the family (one is the layer, the others are its gradients) it prints the kernels that
// support it, the fastest by prediction first: the predicted microseconds, and of which kinds of work they
// are the sum (cuda/conv3d/model/time.h). It needs no GPU. It chooses as on an H200, or with VOXGRAD_WGMMA=0
// in the environment as on a GPU without wgmma.

#include <algorithm>
#include <cstdio>
#include <exception>
#include <limits>
#include <sstream>

#include <voxgrad/cuda/conv3d/common/hopper.h>
#include <voxgrad/cuda/conv3d/select.h>
#include <voxgrad/voxgrad.h>

#include "../../examples/common/options.h"

namespace {

using vox::Conv3dPass;
using enum vox::Float32Precision;

struct Arithmetic {
  std::string_view name;
  vox::DType dtype;
  vox::Float32Precision precision = highest;
};
constexpr Arithmetic arithmetics[]{
    {"highest", vox::f32}, {"high", vox::f32, high}, {"medium", vox::f32, medium},
    {"bf16", vox::bf16},   {"f16", vox::f16},        {"f64", vox::f64}};

std::vector<int64_t> numbers(const std::string& name, const std::string& text) {
  std::vector<int64_t> found;
  std::istringstream words(text);
  for (std::string word; std::getline(words, word, ',');)
    found.push_back(mri::parse_number<int64_t>(name, word, 0, std::numeric_limits<int64_t>::max()));
  return found;
}

mri::Setter stored_in(vox::Triple& to) {
  return [&to](const std::string& name, const std::string& text) {
    const std::vector<int64_t> n = numbers(name, text);
    vox::check<vox::ValueError>(n.size() == 1 || n.size() == 3, "bench_conv3d_choice: ", name, ": \"", text,
                                "\" is not a number for each axis, nor one for all");
    to = n.size() == 1 ? vox::Triple(n[0]) : vox::Triple{n[0], n[1], n[2]};
  };
}

/// Of the layer in the first, third and later arguments.
vox::Conv3dGeometry geometry(int argc, char** argv) {
  const bool transposed = argv[1] == std::string("conv_transpose3d");
  vox::ConvTranspose3dOptions o;
  mri::Settings settings{{"stride", stored_in(o.stride)},
                         {"padding", stored_in(o.padding)},
                         {"dilation", stored_in(o.dilation)},
                         {"groups", mri::stored_in(o.groups, 0, std::numeric_limits<int64_t>::max())}};
  if (transposed) settings["output_padding"] = stored_in(o.output_padding);
  mri::parse_arguments(argc, argv, 5, {}, settings);
  const vox::Shape input(numbers("input", argv[3])), weight(numbers("weight", argv[4]));
  if (transposed) return vox::detail::conv_transpose3d_geometry("bench_conv3d_choice", input, weight, o);
  return vox::detail::conv3d_geometry(
      "bench_conv3d_choice", input, weight,
      {.stride = o.stride, .padding = o.padding, .dilation = o.dilation, .groups = o.groups});
}

void print(const vox::cuda::Conv3dProblem& problem) {
  using namespace vox::cuda::conv;
  std::printf("%s\n", vox::to_string(problem.pass));
  for (const auto& c : vox::cuda::conv3d_candidates(problem, wgmma_allowed() ? h200 : since_sm_80)) {
    std::printf("  %-20s %9.4g us = %.3g launch", std::string(c.kernel).c_str(), c.microseconds,
                c.price.launch);
    for (size_t kind = 0; kind < kinds_of_work.size(); ++kind)
      if (const double us = amounts(c.work)[kind] * amounts(c.price.each)[kind]; us > 0)
        std::printf(" + %.3g %s", us, std::string(kinds_of_work[kind]).c_str());
    std::puts("");
  }
}

}  // namespace

int main(int argc, char** argv) try {
  const std::string layer = argc > 4 ? argv[1] : "";
  vox::check<vox::ValueError>(layer == "conv3d" || layer == "conv_transpose3d",
                              "usage: bench_conv3d_choice conv3d|conv_transpose3d ARITHMETIC INPUT WEIGHT "
                              "[stride=N] [padding=N] [dilation=N] [output_padding=N] [groups=N]");
  const auto* arithmetic = std::ranges::find(arithmetics, std::string_view(argv[2]), &Arithmetic::name);
  vox::check<vox::ValueError>(arithmetic != std::end(arithmetics), "bench_conv3d_choice: no arithmetic \"",
                              argv[2], "\"");
  const vox::Conv3dGeometry g = geometry(argc, argv);
  for (const Conv3dPass pass : {Conv3dPass::conv3d, Conv3dPass::conv_transpose3d, Conv3dPass::weight_grad})
    print({pass, g, arithmetic->dtype, arithmetic->precision});
  return 0;
} catch (const std::exception& error) {
  std::fprintf(stderr, "%s\n", error.what());
  return 1;
}
