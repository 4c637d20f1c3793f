#pragma once

#include <optional>

#include <voxgrad/cuda/conv3d/model/machine.h>
#include <voxgrad/cuda/conv3d/model/time.h>
#include <voxgrad/ops/conv3d_geometry.h>

// What a problem is for each kernel, by its plan (Work in model/time.h): one function for each family, all in
// work.cpp. Nothing, if the kernel does not support the geometry. Time is predicted from it, so the one of
// least time is chosen (select.cpp).

namespace vox::cuda::conv {

/// Bytes of a number as tensors store it, and as tensor cores read it; of how many such numbers it is the
/// sum.
struct Numbers {
  int storage, operand, parts = 1;

  constexpr bool split() const { return parts > 1; }
  /// The products of parts of two numbers that count.
  constexpr int products() const { return parts * (parts + 1) / 2; }
};
inline constexpr Numbers tf32{4, 4}, tf32x3{4, 4, 2}, f16x3{4, 2, 2}, bf16x3{4, 2, 2}, bf16x6{4, 2, 3},
    bf16_of_f32{4, 2}, of_16_bits{2, 2};

/// conv3d and conv_transpose3d.
using ForwardWork = std::optional<Work>(const Conv3dGeometry&, bool transposed, const Numbers&,
                                        const Machine&);
ForwardWork direct_work, mma_work, few_channels_work, patches_work, rolling_work, strided_work, gather_work,
    dense_work, windows_work;

/// The gradient of the weight.
using WeightGradWork = std::optional<Work>(const Conv3dGeometry&, const Numbers&, const Machine&);
WeightGradWork direct_weight_grad_work, mma_weight_grad_work, few_channels_weight_grad_work,
    patches_weight_grad_work, dense_weight_grad_work, weight_grad_work;

}  // namespace vox::cuda::conv
