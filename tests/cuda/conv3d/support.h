#pragma once

#include <voxgrad/cuda/conv3d/common/hopper.h>
#include <voxgrad/cuda/conv3d/select.h>
#include <voxgrad/ops/kernels.h>

#include "tests/support/conv3d.h"
#include "tests/support/test.h"

// For tests that force a kernel by its name: the data it is tested with, a pass with it, and comparisons with
// the reference and with `direct`.

namespace vox::testing {

inline constexpr Conv3dPass all_passes[]{Conv3dPass::conv3d, Conv3dPass::conv_transpose3d,
                                         Conv3dPass::weight_grad};

/// A kernel, with a dtype and precision to test it in.
struct KernelMode {
  std::string_view kernel;
  DType dtype = f32;
  Float32Precision precision = Float32Precision::high;
};

/// The kernel with which the others are compared. It ignores the precision.
inline constexpr KernelMode direct{"direct"};

/// Every kernel of the table, with all dtypes and precisions that it is made for.
inline std::vector<KernelMode> kernel_modes() {
  std::vector<KernelMode> all;
  for (const std::string_view name : cuda::conv3d_kernel_names()) {
    if (name.ends_with("_bf16_of_f32")) {
      all.push_back({name, f32, Float32Precision::medium});
    } else if (name.ends_with("_bf16")) {
      all.push_back({name, bf16});
    } else if (name.ends_with("_f16")) {
      all.push_back({name, f16});
    } else if (name == "few_channels") {
      all.push_back({name, f32, Float32Precision::highest});
      all.push_back({name, bf16});
      all.push_back({name, f16});
    } else if (name.ends_with("_tf32x3") || name.ends_with("_f16x3") || name.ends_with("_bf16x6")) {
      all.push_back({name, f32, Float32Precision::highest});
    } else {
      all.push_back({name});
    }
  }
  return all;
}

/// These kernels with f32.
inline std::vector<KernelMode> f32_modes(const std::vector<std::string_view>& kernels,
                                         Float32Precision precision) {
  std::vector<KernelMode> modes;
  for (const std::string_view name : kernels) modes.push_back({name, f32, precision});
  return modes;
}

/// The kernel's name, and the dtype where the name does not say it.
inline std::string mode_name(const ::testing::TestParamInfo<KernelMode>& info) {
  const KernelMode& m = info.param;
  const bool of_16_bits = m.kernel == "few_channels" && m.dtype != f32;
  return std::string(m.kernel) + (of_16_bits ? "_of_" + str(m.dtype) : "");
}

inline bool takes(const KernelMode& mode, Conv3dPass pass, const Conv3dGeometry& g) {
  return cuda::conv3d_kernel_supports(mode.kernel, {pass, g, mode.dtype, mode.precision});
}

/// Whether it takes only geometries with stride 1 and few taps along d.
inline bool of_unit_stride(std::string_view kernel) {
  return kernel.starts_with("rolling") || kernel.starts_with("windows");
}

/// Whether it takes only kernels that equal their stride.
inline bool of_patches(std::string_view kernel) { return kernel.starts_with("patches"); }

/// Skipped for a kernel that needs wgmma where there is none.
class KernelTest : public CudaTest, public ::testing::WithParamInterface<KernelMode> {
 protected:
  void SetUp() override {
    CudaTest::SetUp();
    if (!IsSkipped() && cuda::conv3d_kernel_needs_wgmma(kernel()) && !cuda::conv::has_wgmma())
      GTEST_SKIP() << "no wgmma: another GPU than Hopper, or VOXGRAD_WGMMA=0";
  }
  static std::string_view kernel() { return GetParam().kernel; }
  static DType dtype() { return GetParam().dtype; }
  static Float32Precision precision() { return GetParam().precision; }
  static TensorOptions options() { return {.dtype = dtype(), .device = Device::cuda()}; }
  static bool takes(Conv3dPass pass, const Conv3dGeometry& g) { return testing::takes(GetParam(), pass, g); }
};

/// The operands of a pass: big, small, weight in this order, without the one that it computes.
struct OperandShapes {
  Shape a, b;
  int64_t bias;
};
inline OperandShapes shapes_of(Conv3dPass pass, const Conv3dGeometry& g) {
  if (pass == Conv3dPass::conv3d) return {g.big_shape(), g.weight_shape(), g.small_channels};
  if (pass == Conv3dPass::conv_transpose3d) return {g.small_shape(), g.weight_shape(), g.big_channels};
  return {g.big_shape(), g.small_shape(), 0};
}

/// A copy at the end of a buffer, `offset` elements from its beginning.
inline Tensor moved_by(int64_t offset, const Tensor& x) {
  Tensor view =
      empty({x.numel() + offset}, x.options()).slice(0, offset, offset + x.numel()).reshape(x.shape());
  view.copy_(x);
  return view;
}

/// Runs a pass with one kernel, in the operands' dtype. The result, NaN before, begins `offset` elements into
/// its buffer.
inline Tensor run(const KernelMode& mode, Conv3dPass pass, const Tensor& a, const Tensor& b,
                  const Conv3dGeometry& g, const Tensor& bias = {}, int64_t offset = 0) {
  const ForceConv3dKernel only(mode.kernel);
  const Float32Precision precision = mode.precision;
  const auto allocate = [&](const Shape& shape) { return moved_by(offset, full(shape, nan, a.options())); };
  if (pass == Conv3dPass::conv3d) {
    Tensor small = allocate(g.small_shape());
    cuda::conv3d(a, b, bias, small, g, precision);
    return small;
  }
  if (pass == Conv3dPass::conv_transpose3d) {
    Tensor big = allocate(g.big_shape());
    cuda::conv_transpose3d(a, b, bias, big, g, precision);
    return big;
  }
  Tensor dweight = allocate(g.weight_shape()), no_bias;
  cuda::conv3d_weight_grad(a, b, dweight, no_bias, Grid::small, g, precision);
  return dweight;
}

inline Values reference_values(Conv3dPass pass, const Conv3dGeometry& g, const Values& a, const Values& b,
                               const Values& bias = {}) {
  const reference::Conv3d r = reference_of(g);
  if (pass == Conv3dPass::conv3d) return reference::conv3d(r, a, b, bias);
  if (pass == Conv3dPass::conv_transpose3d) return reference::conv_transpose3d(r, a, b, bias);
  return reference::weight_grad(r, a, b);
}

/// Whole numbers, so results must be equal: those of `direct` to the reference, and those of other kernels to
/// `direct`, because the reference takes most of the time. Operands and result begin `offset` elements into
/// their buffers.
inline void compare(const KernelMode& mode, Conv3dPass pass, const Conv3dGeometry& g, bool with_bias,
                    int64_t offset = 0) {
  const OperandShapes shapes = shapes_of(pass, g);
  const Values a = integers(numel(shapes.a), 1), b = integers(numel(shapes.b), 2);
  const Values bias = with_bias ? integers(shapes.bias, 3) : Values();
  const auto result_of = [&](const KernelMode& of) {
    const auto on_gpu = [&](const Values& v, const Shape& shape) {
      return moved_by(offset, tensor(v, shape, of.dtype, Device::cuda()));
    };
    return values(run(of, pass, on_gpu(a, shapes.a), on_gpu(b, shapes.b), g,
                      bias.empty() ? Tensor() : on_gpu(bias, {shapes.bias}), offset));
  };
  const Values exact =
      mode.kernel == direct.kernel ? reference_values(pass, g, a, b, bias) : result_of(direct);
  EXPECT_TRUE(result_of(mode) == rounded(exact, mode.dtype))
      << to_string(pass) << ": big " << g.big_shape() << " small " << g.small_shape() << " weight "
      << g.weight_shape() << " groups " << g.groups << " stride " << g.stride << " padding " << g.padding
      << " dilation " << g.dilation << (with_bias ? " bias" : "") << " offset " << offset;
}

/// Equal, or both NaN.
inline bool same(double a, double b) { return a == b || (std::isnan(a) && std::isnan(b)); }

struct Errors {
  double largest, rms;
};

/// |y - exact| / scale, over all elements.
inline Errors errors(const Tensor& y, const Tensor& exact, const Tensor& scale) {
  const Tensor error = abs(y.to(f64) - exact) / (scale + 1e-300);
  return {error.max().item<double>(), std::sqrt((error * error).mean().item<double>())};
}

struct HighestErrors {
  Errors kernel, direct;
};

/// The errors for f32 operands; exact is the result in f64, and scale the sum of absolute products.
inline HighestErrors errors_at_highest(std::string_view kernel, Conv3dPass pass, const Tensor& a,
                                       const Tensor& b, const Conv3dGeometry& g) {
  const auto in_f64 = [&](const Tensor& p, const Tensor& q) {
    return run(direct, pass, p.to(f64), q.to(f64), g);
  };
  const Tensor exact = in_f64(a, b), scale = in_f64(abs(a), abs(b));
  const KernelMode mode{kernel, f32, Float32Precision::highest};
  return {errors(run(mode, pass, a, b, g), exact, scale), errors(run(direct, pass, a, b, g), exact, scale)};
}

}  // namespace vox::testing
