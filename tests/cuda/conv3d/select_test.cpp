#include <gtest/gtest.h>

#include <voxgrad/autograd/engine.h>
#include <voxgrad/cuda/conv3d/common/hopper.h>
#include <voxgrad/cuda/conv3d/select.h>
#include <voxgrad/ops/conv3d.h>

#include <thread>

#include "tests/support/conv3d.h"
#include "tests/support/devices.h"
#include "tests/support/values.h"

namespace vox {
namespace {

using cuda::chosen_conv3d_kernel;
using cuda::Conv3dPass;
using cuda::ForceConv3dKernel;
using enum Float32Precision;

Conv3dGeometry geometry(int64_t in, int64_t out, int64_t groups = 1) {
  return detail::conv_transpose3d_geometry("select", {1, in, 2, 2, 2}, {in, out / groups, 2, 2, 2},
                                           {.groups = groups});
}

/// The first choice for a small problem with stride 1.
std::string_view first_choice() { return cuda::conv::has_wgmma() ? "gather" : "mma"; }

std::string_view chosen(Float32Precision precision, const Conv3dGeometry& g = geometry(16, 16),
                        DType dtype = f32, Conv3dPass pass = Conv3dPass::conv_transpose3d) {
  return chosen_conv3d_kernel({pass, g, dtype, precision});
}

TEST(Conv3dSelect, TheTable) {
  EXPECT_EQ(chosen(highest), cuda::conv::has_wgmma() ? "gather_tf32x3" : "mma_tf32x3");
  const Conv3dGeometry large =
      detail::conv_transpose3d_geometry("select", {4, 32, 32, 32, 40}, {32, 32, 3, 3, 3}, {});
  EXPECT_EQ(chosen(highest, large), cuda::conv::has_wgmma() ? "flat_f16x3" : "mma_tf32x3");
  EXPECT_EQ(chosen(high, large), cuda::conv::has_wgmma() ? "rolling" : "mma");
  EXPECT_EQ(chosen(medium, large), cuda::conv::has_wgmma() ? "rolling_bf16_of_f32" : "mma");
  const Conv3dGeometry large_strided = detail::conv_transpose3d_geometry(
      "select", {4, 32, 32, 32, 32}, {32, 32, 3, 3, 3}, {.stride = 2, .padding = 1});
  EXPECT_EQ(chosen(highest, large_strided), cuda::conv::has_wgmma() ? "strided_f16x3" : "mma_tf32x3");
  EXPECT_EQ(chosen(highest, large_strided, f32, Conv3dPass::conv3d),
            cuda::conv::has_wgmma() ? "gather_tf32x3" : "mma_tf32x3");
  EXPECT_EQ(chosen(high), first_choice());
  EXPECT_EQ(chosen(medium), first_choice());
  EXPECT_EQ(chosen(high, geometry(16, 16), bf16), cuda::conv::has_wgmma() ? "flat_bf16" : "direct");
  EXPECT_EQ(chosen(high, geometry(16, 16), f16), cuda::conv::has_wgmma() ? "flat_f16" : "direct");
  EXPECT_EQ(chosen(high, geometry(16, 16), f64), "direct");
  EXPECT_EQ(chosen(high, geometry(16, 16), f32, Conv3dPass::conv3d), first_choice());
  const bool hopper = cuda::conv::has_wgmma();
  // Strides: `gather` computes conv3d of f32; `strided` computes conv3d of 16 bits, and conv_transpose3d with
  // stride 2.
  for (const int64_t stride : {2, 3}) {
    for (const int64_t kernel : {3, 5}) {
      const Conv3dGeometry g = detail::conv_transpose3d_geometry(
          "select", {1, 16, 2, 2, 2}, {16, 16, kernel, kernel, kernel}, {.stride = stride});
      for (const Conv3dPass pass : {Conv3dPass::conv3d, Conv3dPass::conv_transpose3d}) {
        const bool gathered = hopper && pass == Conv3dPass::conv3d,
                   taken = gathered || (hopper && stride == 2);
        EXPECT_EQ(chosen(high, g, f32, pass), gathered ? "gather" : taken ? "strided" : "mma");
        EXPECT_EQ(chosen(medium, g, f32, pass), gathered ? "gather" : taken ? "strided_bf16_of_f32" : "mma");
        const bool few = pass == Conv3dPass::conv_transpose3d && stride == 2 && kernel == 3;
        EXPECT_EQ(chosen(highest, g, f32, pass),  // a small one
                  gathered ? "gather_tf32x3"
                  : few    ? "few_channels"
                           : "mma_tf32x3");
        if (!taken) continue;
        EXPECT_EQ(chosen(high, g, bf16, pass), "strided_bf16");
        EXPECT_EQ(chosen(high, g, f16, pass), "strided_f16");
      }
    }
  }
  const auto weight_grad_at = [](Float32Precision precision, const Conv3dGeometry& g) {
    return chosen(precision, g, f32, Conv3dPass::weight_grad);
  };
  EXPECT_EQ(weight_grad_at(high, large), hopper ? "weight_grad" : "mma");
  EXPECT_EQ(weight_grad_at(highest, large), hopper ? "weight_grad_tf32x3" : "direct");
  // Where there is little to do.
  EXPECT_EQ(weight_grad_at(high, geometry(16, 16)), "mma");
  EXPECT_EQ(weight_grad_at(high, geometry(3, 16)), "mma");
  EXPECT_EQ(weight_grad_at(highest, geometry(16, 16)), "few_channels");
  // A step of one that gather and rolling leave.
  const Conv3dGeometry dilated =
      detail::conv_transpose3d_geometry("select", {4, 32, 32, 32, 32}, {32, 32, 3, 3, 3}, {.dilation = 2});
  for (const Conv3dPass pass : {Conv3dPass::conv3d, Conv3dPass::conv_transpose3d}) {
    EXPECT_EQ(chosen(high, dilated, f32, pass), hopper ? "strided" : "mma");
    EXPECT_EQ(chosen(medium, dilated, f32, pass), hopper ? "flat_bf16_of_f32" : "mma");
    EXPECT_EQ(chosen(highest, dilated, f32, pass), hopper ? "flat_f16x3" : "mma_tf32x3");
    EXPECT_EQ(chosen(high, dilated, bf16, pass), hopper ? "flat_bf16" : "direct");
  }
  // Many channels, of few cells if they are fewer than 128; by windows if there are tiles for most
  // multiprocessors, and with 16-bit operands for many cells too.
  for (const auto& [channels, cells, of_f32, of_16_bits] : {std::tuple(128, 16, "dense", "dense"),
                                                            {128, 32, "windows", "windows"},
                                                            {64, 32, "windows", "windows"},
                                                            {64, 64, "rolling", "windows"},
                                                            {32, 64, "rolling", "rolling"}}) {
    const Conv3dGeometry g = detail::conv_transpose3d_geometry("select", {2, channels, cells, cells, cells},
                                                               {channels, channels, 3, 3, 3}, {.padding = 1});
    for (const Conv3dPass pass : {Conv3dPass::conv3d, Conv3dPass::conv_transpose3d}) {
      if (!hopper) {
        EXPECT_EQ(chosen(high, g, f32, pass), "mma");
        continue;
      }
      EXPECT_EQ(chosen(high, g, f32, pass), of_f32);
      EXPECT_EQ(chosen(medium, g, f32, pass), std::string(of_16_bits) + "_bf16_of_f32");
      EXPECT_EQ(chosen(high, g, bf16, pass), std::string(of_16_bits) + "_bf16");
      EXPECT_EQ(chosen(high, g, f16, pass), std::string(of_16_bits) + "_f16");
      const std::string at_highest(chosen(highest, g, f32, pass));
      EXPECT_FALSE(at_highest.starts_with("dense") || at_highest.starts_with("windows"));
    }
  }
  // Tiles of windows that are mostly empty: one depth, one row, odd sizes.
  for (const Shape& input : {Shape{16, 64, 1, 128, 128},
                             {8, 64, 1, 1, 16384},
                             {1, 64, 56, 56, 56},
                             {2, 64, 62, 62, 62},
                             {2, 64, 64, 64, 62}}) {
    const Conv3dGeometry g =
        detail::conv_transpose3d_geometry("select", input, {64, 64, 3, 3, 3}, {.padding = 1});
    for (const Conv3dPass pass : {Conv3dPass::conv3d, Conv3dPass::conv_transpose3d})
      for (const DType dtype : {f32, bf16, f16})
        EXPECT_FALSE(chosen(medium, g, dtype, pass).starts_with("windows")) << input;
  }
  // The bf16 kernel of `medium` is for full tiles; below, `medium` is what `high` is.
  EXPECT_EQ(chosen(high, geometry(8, 8)), first_choice());
  EXPECT_EQ(chosen(high, geometry(16, 7)), first_choice());
  EXPECT_EQ(chosen(medium, geometry(16, 7)), first_choice());
}

// f32 arithmetic is used at `highest` and for 16 bits where a side of a group has fewer than 8 channels, else
// where most of a tensor-core tile would be padding.
TEST(Conv3dSelect, GroupsOfFewChannels) {
  for (const Conv3dPass pass : {Conv3dPass::conv3d, Conv3dPass::conv_transpose3d, Conv3dPass::weight_grad}) {
    for (const Float32Precision precision : {high, medium, highest}) {
      EXPECT_EQ(chosen(precision, geometry(1, 1), f32, pass), "few_channels");
      EXPECT_EQ(chosen(precision, geometry(16, 1), f32, pass), "few_channels");
      EXPECT_EQ(chosen(precision, geometry(16, 16, 16), f32, pass), "few_channels");
      EXPECT_EQ(chosen(precision, geometry(16, 16, 8), f32, pass), "few_channels");
    }
    EXPECT_NE(chosen(high, geometry(16, 7), f32, pass), "few_channels");
    EXPECT_EQ(chosen(highest, geometry(16, 7), f32, pass), "few_channels");
    EXPECT_EQ(chosen(highest, geometry(8, 8), f32, pass) == "few_channels", pass == Conv3dPass::weight_grad);
    for (const DType dtype : {bf16, f16}) {
      EXPECT_EQ(chosen(high, geometry(16, 7), dtype, pass), "few_channels");
      EXPECT_NE(chosen(high, geometry(8, 8), dtype, pass), "few_channels");
    }
    EXPECT_EQ(chosen(high, geometry(1, 1), f64, pass), "direct");
    const auto pointwise = [&](int64_t in, int64_t out) {
      return detail::conv_transpose3d_geometry("select", {1, in, 2, 2, 2}, {in, out, 1, 1, 1}, {});
    };
    EXPECT_EQ(chosen(high, pointwise(4, 16), f32, pass), "few_channels");
    EXPECT_NE(chosen(high, pointwise(8, 16), f32, pass), "few_channels");
  }
  EXPECT_EQ(chosen(high, geometry(2, 16), f32, Conv3dPass::weight_grad), "few_channels");
  EXPECT_NE(chosen(high, geometry(2, 16)), "few_channels");
  // 16-bit weight gradients have tensor cores on Hopper, which pay with enough to do.
  const auto sums = [](int64_t in, int64_t out, int64_t cells, DType dtype, int64_t stride = 1) {
    const Conv3dGeometry g = detail::conv3d_geometry("select", {2, in, cells, cells, cells},
                                                     {out, in, 3, 3, 3}, {.stride = stride, .padding = 1});
    return chosen(high, g, dtype, Conv3dPass::weight_grad);
  };
  EXPECT_EQ(sums(1, 64, 32, bf16), cuda::conv::has_wgmma() ? "weight_grad_bf16" : "few_channels");
  EXPECT_EQ(sums(2, 32, 32, bf16), cuda::conv::has_wgmma() ? "weight_grad_bf16" : "few_channels");
  EXPECT_EQ(sums(2, 32, 32, f16), cuda::conv::has_wgmma() ? "weight_grad_f16" : "few_channels");
  EXPECT_EQ(sums(1, 16, 64, bf16), "few_channels");
  EXPECT_EQ(sums(1, 64, 30, bf16), "few_channels");  // below 1e8 products
  EXPECT_EQ(sums(1, 64, 32, bf16, 2), "few_channels");
  // f32 goes to dense with 32 channels of small if there is most to do.
  EXPECT_EQ(sums(64, 32, 128, f32) == "dense", cuda::conv::has_wgmma());
  EXPECT_NE(sums(64, 32, 64, f32), "dense");
  EXPECT_EQ(sums(64, 32, 64, bf16) == "dense_bf16", cuda::conv::has_wgmma());
  // Strides: up to 8 x 8 channels (24 x 24 at `highest`) and 64 taps in conv_transpose3d; any of 16 bits with
  // a step of 3.
  const auto with_stride = [](int64_t channels, const Triple& kernel, int64_t stride) {
    return detail::conv_transpose3d_geometry("select", {4, channels, 16, 16, 16},
                                             {channels, channels, kernel.d, kernel.h, kernel.w},
                                             {.stride = stride});
  };
  EXPECT_EQ(chosen(high, with_stride(8, 4, 2)), "few_channels");
  EXPECT_NE(chosen(high, with_stride(8, {3, 5, 7}, 2)), "few_channels");
  EXPECT_NE(chosen(high, with_stride(16, 4, 2)), "few_channels");
  EXPECT_EQ(chosen(highest, with_stride(24, 4, 2)), "few_channels");
  EXPECT_NE(chosen(highest, with_stride(32, 4, 2)), "few_channels");
  EXPECT_NE(chosen(highest, with_stride(24, 4, 2), f32, Conv3dPass::conv3d), "few_channels");
  for (const DType dtype : {bf16, f16}) {
    EXPECT_EQ(chosen(high, with_stride(8, 4, 2), dtype), "few_channels");
    EXPECT_NE(chosen(high, with_stride(32, 4, 2), dtype), "few_channels");
    EXPECT_EQ(chosen(high, with_stride(32, 5, 3), dtype), "few_channels");
    EXPECT_NE(chosen(high, with_stride(32, 5, 3), dtype, Conv3dPass::conv3d), "few_channels");
  }
}

// Kernels that equal their stride, where moving the bytes takes longest; of 16 bits, on any GPU.
TEST(Conv3dSelect, Patches) {
  const auto patches = [](int64_t in, int64_t out, int64_t kernel, int64_t cells) {
    return detail::conv_transpose3d_geometry("select", {2, in, cells, cells, cells},
                                             {in, out, kernel, kernel, kernel}, {.stride = kernel});
  };
  for (const Conv3dPass pass : {Conv3dPass::conv3d, Conv3dPass::conv_transpose3d, Conv3dPass::weight_grad}) {
    for (const auto& [in, out, kernel] :
         {std::tuple(64, 32, 2), {128, 64, 2}, {1, 1, 2}, {2, 32, 1}, {32, 2, 1}, {32, 32, 1}}) {
      EXPECT_EQ(chosen(high, patches(in, out, kernel, 16), bf16, pass), "patches_bf16");
      EXPECT_EQ(chosen(high, patches(in, out, kernel, 16), f16, pass), "patches_f16");
      EXPECT_FALSE(chosen(high, patches(in, out, kernel, 16), f32, pass).starts_with("patches"));
    }
    EXPECT_NE(chosen(high, patches(256, 128, 2, 16), bf16, pass), "patches_bf16");  // more products
    EXPECT_NE(chosen(high, patches(64, 64, 1, 16), bf16, pass), "patches_bf16");
    EXPECT_NE(chosen(high, patches(64, 32, 2, 12), bf16, pass), "patches_bf16");  // rows of 12 cells
    EXPECT_NE(chosen(high, patches(64, 32, 3, 16), bf16, pass), "patches_bf16");
  }
}

TEST(Conv3dSelect, ForcedKernelsNestAndAreForTheirThread) {
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
    EXPECT_EQ(elsewhere, first_choice());
  }
  EXPECT_EQ(chosen(high), first_choice());
}

TEST(Conv3dSelect, WhatCannotBeForcedIsAnError) {
  EXPECT_THROW(ForceConv3dKernel("fast"), ValueError);
  EXPECT_THROW((void)cuda::conv3d_kernel_takes("fast", {Conv3dPass::conv3d, geometry(8, 8), f32, high}),
               ValueError);
  const ForceConv3dKernel guard("mma");
  EXPECT_THROW((void)chosen(highest), ValueError);
  EXPECT_THROW((void)chosen(high, geometry(16, 16), f64), ValueError);
  Conv3dGeometry far = geometry(16, 16);
  far.stride = int64_t{1} << 40;
  EXPECT_THROW((void)chosen(high, far), ValueError);
}

TEST(Conv3dSelectCuda, AForcedKernelThatDoesNotTakeTheCallIsAnError) {
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
