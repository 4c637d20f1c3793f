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
#include <charconv>
#include <cstdio>
#include <exception>
#include <sstream>

#include <voxgrad/cuda/conv3d/common/hopper.h>
#include <voxgrad/cuda/conv3d/select.h>
#include <voxgrad/voxgrad.h>

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

int64_t number(const std::string& text) {
  int64_t value = 0;
  const char* const end = text.data() + text.size();
  const auto [rest, error] = std::from_chars(text.data(), end, value);
  vox::check<vox::ValueError>(error == std::errc() && rest == end && value >= 0, "bench_conv3d_choice: \"",
                              text, "\" is no whole number from 0 on");
  return value;
}

std::vector<int64_t> numbers(const std::string& text) {
  std::vector<int64_t> found;
  std::istringstream words(text);
  for (std::string word; std::getline(words, word, ',');) found.push_back(number(word));
  return found;
}

vox::Triple triple(const std::string& text) {
  const std::vector<int64_t> n = numbers(text);
  vox::check<vox::ValueError>(n.size() == 1 || n.size() == 3, "bench_conv3d_choice: \"", text,
                              "\" is not a number for each axis, nor one for all");
  return n.size() == 1 ? vox::Triple(n[0]) : vox::Triple{n[0], n[1], n[2]};
}

/// Of the layer in the first, third and later words.
vox::Conv3dGeometry geometry(const std::vector<std::string>& words) {
  vox::ConvTranspose3dOptions o;
  for (size_t i = 4; i < words.size(); ++i) {
    const std::string name = words[i].substr(0, words[i].find('='));
    vox::check<vox::ValueError>(name != words[i], "bench_conv3d_choice: \"", name, "\" is not NAME=VALUE");
    const std::string value = words[i].substr(name.size() + 1);
    if (name == "groups")
      o.groups = number(value);
    else if (name == "stride")
      o.stride = triple(value);
    else if (name == "padding")
      o.padding = triple(value);
    else if (name == "dilation")
      o.dilation = triple(value);
    else if (name == "output_padding" && words[0] == "conv_transpose3d")
      o.output_padding = triple(value);
    else
      throw vox::ValueError("bench_conv3d_choice: " + words[0] + " has no option \"" + name + "\"");
  }
  const vox::Shape input(numbers(words[2])), weight(numbers(words[3]));
  if (words[0] == "conv_transpose3d")
    return vox::detail::conv_transpose3d_geometry("bench_conv3d_choice", input, weight, o);
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
  const std::vector<std::string> words(argv + 1, argv + argc);
  const bool named = words.size() >= 4 && (words[0] == "conv3d" || words[0] == "conv_transpose3d");
  vox::check<vox::ValueError>(named,
                              "usage: bench_conv3d_choice conv3d|conv_transpose3d ARITHMETIC INPUT WEIGHT "
                              "[NAME=VALUE]...");
  const auto* arithmetic = std::ranges::find(arithmetics, words[1], &Arithmetic::name);
  vox::check<vox::ValueError>(arithmetic != std::end(arithmetics), "bench_conv3d_choice: no arithmetic \"",
                              words[1], "\"");
  for (const Conv3dPass pass : {Conv3dPass::conv3d, Conv3dPass::conv_transpose3d, Conv3dPass::weight_grad})
    print({pass, geometry(words), arithmetic->dtype, arithmetic->precision});
  return 0;
} catch (const std::exception& error) {
  std::fprintf(stderr, "%s\n", error.what());
  return 1;
}
