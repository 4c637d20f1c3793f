#include <voxgrad/cuda/conv3d/common/hopper.h>
#include <voxgrad/cuda/conv3d/few_channels/plan.h>
#include <voxgrad/cuda/conv3d/mma/plan.h>
#include <voxgrad/cuda/conv3d/mma/weight_grad_plan.h>
#include <voxgrad/cuda/conv3d/patches/plan.h>
#include <voxgrad/cuda/conv3d/select.h>

#include "bench/conv3d/calls.h"
#include "tests/cuda/conv3d/support.h"

namespace vox {
namespace {

using cuda::chosen_conv3d_kernel, testing::all_passes;
using enum Float32Precision;

Conv3dGeometry geometry(int64_t in, int64_t out, int64_t groups = 1) {
  return detail::conv_transpose3d_geometry("select", {1, in, 2, 2, 2}, {in, out / groups, 2, 2, 2},
                                           {.groups = groups});
}

std::string_view chosen(Float32Precision precision, const Conv3dGeometry& g = geometry(16, 16),
                        DType dtype = f32, Conv3dPass pass = Conv3dPass::conv_transpose3d) {
  return chosen_conv3d_kernel({pass, g, dtype, precision});
}

/// Few and many channels, cells and taps; strides, dilations and groups; patches; one cell.
std::vector<Conv3dGeometry> various_geometries() {
  std::vector<Conv3dGeometry> list;
  const auto add = [&](const Shape& input, const Shape& weight, const ConvTranspose3dOptions& options) {
    list.push_back(detail::conv_transpose3d_geometry("select", input, weight, options));
  };
  for (const int64_t in : {1, 8, 40, 320})
    for (const int64_t out : {1, 16, 72, 256})
      for (const int64_t cells : {1, 6, 32}) {
        add({2, in, cells, cells, cells}, {in, out, 3, 3, 3}, {});
        add({2, in, cells, cells, 2 * cells}, {in, out, 2, 2, 2}, {.stride = 2});
        add({1, in, cells, cells, cells}, {in, out, 3, 5, 7}, {.stride = {1, 2, 3}, .dilation = {2, 1, 1}});
        add({2, in * 4, cells, cells, 8 * cells}, {in * 4, out, 1, 1, 1}, {.groups = 4});
      }
  return list;
}

/// f(problem) for each of these geometries, passes, dtypes and precisions.
template <class F>
void for_each_problem(F f) {
  for (const Conv3dGeometry& g : various_geometries())
    for (const Conv3dPass pass : all_passes)
      for (const DType dtype : {f32, f64, bf16, f16})
        for (const Float32Precision precision : {highest, high, medium})
          if (dtype == f32 || precision == high) f(cuda::Conv3dProblem{pass, g, dtype, precision});
}

TEST(Conv3dSelect, TheCandidateOfLeastPredictedTimeIsChosen) {
  for_each_problem([](const cuda::Conv3dProblem& problem) {
    const auto candidates = cuda::conv3d_candidates(problem, cuda::conv::this_machine());
    ASSERT_FALSE(candidates.empty());
    EXPECT_EQ(candidates[0].kernel, chosen_conv3d_kernel(problem));
    bool has_direct = false;
    for (const auto& [kernel, work, price, microseconds] : candidates) {
      EXPECT_TRUE(std::isfinite(microseconds) && microseconds >= candidates[0].microseconds) << kernel;
      EXPECT_TRUE(cuda::conv3d_kernel_supports(kernel, problem)) << kernel;
      has_direct |= kernel == "direct";
    }
    EXPECT_TRUE(has_direct);
  });
}

// Without its prices a kernel would never be compared.
TEST(Conv3dSelect, EveryKernelIsACandidateAndHasPrices) {
  std::map<std::string_view, int> candidates;
  for_each_problem([&](const cuda::Conv3dProblem& problem) {
    for (const auto& candidate : cuda::conv3d_candidates(problem, cuda::conv::h200)) {
      ++candidates[candidate.kernel];
      EXPECT_GT(candidate.microseconds, 0) << candidate.kernel;
    }
  });
  for (const std::string_view kernel : cuda::conv3d_kernel_names())
    EXPECT_GT(candidates[kernel], 0) << kernel;
}

// A predicted time is a sum of kinds of work, each times its price.
TEST(Conv3dSelect, WorkHasAPrice) {
  using cuda::conv::Work;
  const cuda::conv::Prices prices{"kernel", "pass", 5, {1, 2, 4, 8, 16, 32, 64}};
  EXPECT_EQ(predicted_time(Work{}, prices), 5);
  EXPECT_EQ(predicted_time(Work{1, 1, 1, 1, 1, 1, 1}, prices), 5 + 127);
  EXPECT_EQ(predicted_time(Work{.rounds = 3, .weights = 0.5}, prices), 5 + 12 + 32);
}

TEST(Conv3dSelect, KernelsWithWgmmaNeedIt) {
  const std::set<std::string_view> of_any_gpu{
      "direct", "few_channels", "patches_bf16", "patches_f16", "patches_bf16x3", "patches_bf16x6",
      "mma",    "mma_bf16",     "mma_f16",      "mma_f16x3",   "mma_bf16_of_f32"};
  std::set<std::string_view> seen;
  for_each_problem([&](const cuda::Conv3dProblem& problem) {
    for (const auto& candidate : cuda::conv3d_candidates(problem, cuda::conv::since_sm_80))
      seen.insert(candidate.kernel);
  });
  EXPECT_EQ(seen, of_any_gpu);
}

// GPUs of several compute capabilities: multiprocessors, and KB of a block and of a multiprocessor.
TEST(Conv3dSelect, OffHopperNoLayerIsLeftToDirect) {
  constexpr auto machine = [](int multiprocessors, int64_t block_kb, int64_t multiprocessor_kb) {
    return cuda::conv::Machine{multiprocessors, block_kb << 10, multiprocessor_kb << 10, false};
  };
  const std::pair<const char*, cuda::conv::Machine> machines[]{
      {"8.0", machine(108, 163, 164)}, {"8.6", machine(84, 99, 100)},    {"8.9", machine(128, 99, 100)},
      {"9.0", machine(132, 227, 228)}, {"10.0", machine(148, 227, 228)}, {"12.0", machine(170, 99, 100)},
      {"any", cuda::conv::since_sm_80}};
  const auto chosen_on = [](const cuda::conv::Machine& m, const cuda::Conv3dProblem& problem) {
    return cuda::conv3d_candidates(problem, m)[0].kernel;
  };
  for (const Call& call : all_calls()) {
    const Conv3dGeometry& g = call.geometry;
    const bool sweep = call.names[0].starts_with("sweep");
    // There direct may be the fastest for a handful of cells.
    if (sweep && g.batch * g.small_cells() * g.small_channels * g.big_per_group() * g.taps() < 1 << 25)
      continue;
    for (const Conv3dPass pass : all_passes)
      for (const auto& [capability, m] : machines) {
        if (sweep && m != cuda::conv::since_sm_80) continue;
        for (const Float32Precision precision : {highest, high, medium})
          EXPECT_NE(chosen_on(m, {pass, g, f32, precision}), "direct") << call.names[0] << ' ' << capability;
        for (const DType dtype : {bf16, f16})
          EXPECT_NE(chosen_on(m, {pass, g, dtype, high}), "direct")
              << call.names[0] << ' ' << capability << ' ' << dtype;
      }
  }
}

// 99 KB on GPUs of compute capability 8.6, 8.9 and 12.0, of which kernels have up to 3 KB of static memory
// (bench/conv3d/resources.py).
TEST(Conv3dSelect, OffHopperSharedMemoryFitsEveryGpu) {
  using namespace cuda::conv;
  const auto expect_fits = [](const auto& plan) { EXPECT_LE(plan ? plan->shared_bytes : 0, (99 - 3) << 10); };
  for (const Call& call : all_calls()) {
    const Conv3dGeometry& g = call.geometry;
    for (const bool transposed : {false, true}) {
      for (const int parts : {1, 2})
        if (const auto planned = mma::make_plan(g, transposed, parts, true, since_sm_80)) {
          EXPECT_LE(planned->plan.shared_bytes, (99 - 3) << 10) << call.names[0];
        }
      expect_fits(few_channels::make_plan(g, transposed));
      for (const int parts : {1, 2, 3}) expect_fits(patches::make_plan(g, transposed, parts, since_sm_80));
    }
    for (const int parts : {1, 2})
      if (const auto plan = mma::make_weight_grad_plan(g, parts)) {
        EXPECT_LE(plan->shared_bytes(), (99 - 3) << 10) << call.names[0];
      }
    expect_fits(few_channels::make_weight_grad_plan(g));
    for (const int parts : {1, 2, 3}) expect_fits(patches::make_weight_grad_plan(g, parts));
  }
}

TEST(Conv3dSelect, TheEnvironmentMayForbidWgmma) {
  using cuda::conv::wgmma_allowed;
  const char* const before = std::getenv("VOXGRAD_WGMMA");
  const std::string saved = before ? before : "";
  ::setenv("VOXGRAD_WGMMA", "0", 1);
  EXPECT_FALSE(wgmma_allowed());
  ::setenv("VOXGRAD_WGMMA", "1", 1);
  EXPECT_TRUE(wgmma_allowed());
  for (const char* wrong : {"", "no", "01"}) {
    ::setenv("VOXGRAD_WGMMA", wrong, 1);
    EXPECT_THROW((void)wgmma_allowed(), ValueError) << wrong;
  }
  ::unsetenv("VOXGRAD_WGMMA");
  EXPECT_TRUE(wgmma_allowed());
  if (before) ::setenv("VOXGRAD_WGMMA", saved.c_str(), 1);
}

TEST(Conv3dSelect, Numbers) {
  const auto kernels = [](DType dtype, Float32Precision precision, Conv3dPass pass) {
    std::set<std::string> names;
    for (const auto& candidate :
         cuda::conv3d_candidates({pass, geometry(64, 64), dtype, precision}, cuda::conv::h200))
      names.emplace(candidate.kernel);
    return names;
  };
  for (const Conv3dPass pass : all_passes) {
    EXPECT_EQ(kernels(f64, high, pass), std::set<std::string>{"direct"});
    for (const std::string& name : kernels(f32, highest, pass))  // as accurate as f32
      EXPECT_TRUE(name == "direct" || name == "few_channels" || name.ends_with("x3")) << name;
    for (const std::string& name : kernels(f32, high, pass)) EXPECT_EQ(name.find("16"), name.npos) << name;
    for (const std::string& name : kernels(f32, high, pass))
      EXPECT_TRUE(kernels(f32, medium, pass).contains(name));
    for (const std::string& name : kernels(bf16, high, pass))
      EXPECT_TRUE(name == "direct" || name == "few_channels" || name.ends_with("_bf16")) << name;
    for (const std::string& name : kernels(f16, high, pass))
      EXPECT_TRUE(name == "direct" || name == "few_channels" || name.ends_with("_f16")) << name;
  }
  // Indices beyond 32 bits are left to `direct`, and so is what a kernel's redo does not support.
  Conv3dGeometry far = geometry(64, 64);
  far.stride = int64_t{1} << 40;
  EXPECT_EQ(cuda::conv3d_candidates({Conv3dPass::conv3d, far, f32, highest}, cuda::conv::h200).size(), 1u);
}

// What the README says of the seven problems of KernelBench and of networks, by the prices of an H200.
TEST(Conv3dSelect, KnownLayers) {
  const auto first = [](const Conv3dGeometry& g, Conv3dPass pass, DType dtype, Float32Precision precision) {
    return cuda::conv3d_candidates({pass, g, dtype, precision}, cuda::conv::h200)[0].kernel;
  };
  const Conv3dGeometry of_61 =
      detail::conv_transpose3d_geometry("select", {8, 48, 64, 64, 64}, {48, 48, 3, 3, 3}, {});
  EXPECT_EQ(first(of_61, Conv3dPass::conv_transpose3d, f32, high), "rolling");
  EXPECT_EQ(first(of_61, Conv3dPass::conv_transpose3d, f32, highest), "strided_f16x3");
  EXPECT_EQ(first(of_61, Conv3dPass::conv_transpose3d, bf16, high), "rolling_bf16");
  const Conv3dGeometry deep =
      detail::conv3d_geometry("select", {2, 320, 8, 8, 8}, {320, 320, 3, 3, 3}, {.padding = 1});
  for (const Conv3dPass pass : all_passes) {
    EXPECT_EQ(first(deep, pass, bf16, high), "dense_bf16");
    EXPECT_EQ(first(deep, pass, f32, high), "dense");
  }
  const Conv3dGeometry first_layer =
      detail::conv3d_geometry("select", {2, 1, 128, 128, 128}, {32, 1, 3, 3, 3}, {.padding = 1});
  EXPECT_EQ(first(first_layer, Conv3dPass::weight_grad, f32, high), "few_channels");
}

TEST(Conv3dSelect, ForcedKernelsNestAndAreForTheirThread) {
  const std::string_view unforced = chosen(high);
  {
    const ForceConv3dKernel outer("direct");
    EXPECT_EQ(chosen(high), "direct");
    {
      const ForceConv3dKernel inner("mma", {Conv3dPass::conv_transpose3d});
      EXPECT_EQ(chosen(high, geometry(1, 1)), "mma");
      EXPECT_EQ(chosen(high, geometry(16, 16), f32, Conv3dPass::conv3d), "direct");
    }
    EXPECT_EQ(chosen(high), "direct");
    std::string_view elsewhere;
    std::thread([&] { elsewhere = chosen(high); }).join();
    EXPECT_EQ(elsewhere, unforced);
  }
  EXPECT_EQ(chosen(high), unforced);
}

TEST(Conv3dSelect, WhatCannotBeForcedIsAnError) {
  {
    const ForceConv3dKernel guard("fast");
    EXPECT_THROW((void)chosen(high), ValueError);
  }
  EXPECT_THROW((void)cuda::conv3d_kernel_supports("fast", {Conv3dPass::conv3d, geometry(8, 8), f32, high}),
               ValueError);
  const ForceConv3dKernel guard("mma");
  EXPECT_ERRORS(ValueError, chosen(highest), chosen(high, geometry(16, 16), f64));
  Conv3dGeometry far = geometry(16, 16);
  far.stride = int64_t{1} << 40;
  EXPECT_THROW((void)chosen(high, far), ValueError);
}

TEST(Conv3dSelectCuda, AForcedKernelThatDoesNotSupportTheCallIsAnError) {
  if (!testing::has_cuda()) GTEST_SKIP() << "no CUDA device";
  const Tensor x = ones({1, 8, 2, 2, 2}, {.device = Device::cuda()}), w = ones({8, 8, 1, 1, 1}, x.options());
  const ForceConv3dKernel guard("mma");
  EXPECT_THROW(conv_transpose3d(x, w), ValueError);  // at highest
}

// The gradient of the input has the precision of its forward, whatever the precision is when backward runs.
TEST(Conv3dSelectCuda, ANodeKeepsThePrecisionOfItsForward) {
  if (!testing::has_cuda()) GTEST_SKIP() << "no CUDA device";
  const TensorOptions options{.device = Device::cuda()};
  Tensor x = testing::normal({2, 16, 3, 4, 5}, options, 1).set_requires_grad();
  const Tensor w = testing::normal({16, 24, 3, 3, 3}, options, 2);
  const Tensor gy = testing::normal({2, 24, 5, 6, 7}, options, 3);
  const auto grad_at = [&](Float32Precision forward, Float32Precision backward) {
    Tensor y;
    {
      const PrecisionGuard guard(forward);
      y = conv_transpose3d(x, w);
    }
    const PrecisionGuard guard(backward);
    return grad({y}, {x}, {.grad_outputs = {gy}})[0];
  };
  const auto conv_at = [&](Float32Precision precision) {
    const PrecisionGuard guard(precision);
    return conv3d(gy, w);
  };
  EXPECT_TRUE(testing::same_bits(grad_at(high, highest), conv_at(high)));
  EXPECT_TRUE(testing::same_bits(grad_at(highest, high), conv_at(highest)));
  EXPECT_FALSE(testing::same_bits(conv_at(high), conv_at(highest)));
}

}  // namespace
}  // namespace vox
