#pragma once

#include <array>
#include <optional>

#include <voxgrad/core/tensor.h>
#include <voxgrad/ops/triple.h>

namespace vox {

/// One factor for all axes, three in D, H, W order, or nothing.
struct OptionalScale : std::optional<std::array<double, 3>> {
  using std::optional<std::array<double, 3>>::optional;
  template <class T>
  requires(std::is_arithmetic_v<T> && !std::is_same_v<T, bool>) constexpr OptionalScale(T all)
      : OptionalScale(all, all, all) {}
  template <class A, class B, class C>
  constexpr OptionalScale(A depth, B height, C width)
      : std::optional<std::array<double, 3>>(std::array<double, 3>{
            static_cast<double>(depth), static_cast<double>(height), static_cast<double>(width)}) {}
};

struct InterpolateOptions {
  detail::ByName by_name{};
  enum class Mode { nearest, trilinear, bilinear = trilinear, linear = trilinear };
  OptionalTriple size = {};         ///< (D,H,W) of the output; or:
  OptionalScale scale_factor = {};  ///< size = floor(input size * scale)
  Mode mode = Mode::nearest;
  bool align_corners = false;  ///< trilinear only
};

/// Resizes (N, C, D, H, W), (N, C, H, W) or (N, C, W), floating, with the index rules of
/// torch.nn.functional.interpolate. Let ratio be 1 / scale_factor if that is given, else in / out. On each
/// axis, output cell o reads the input at
///
///   nearest                    floor(o * ratio)
///   trilinear                  max(0, (o + 0.5) * ratio - 0.5), between its two neighbours
///   trilinear, align_corners   o * (in - 1) / (out - 1), or 0 where out is 1
///
/// and never beyond the last cell. An axis with out == in is copied. Positions are computed in double and are
/// the same on all devices. (PyTorch computes them in float, so a nearest cell may differ where o * ratio is
/// whole.)
///
/// The backward is the exact adjoint. It gathers instead of using atomics, so it gives the same bits every
/// time. Differentiable any number of times.
///
/// An input without D, or without D and H, uses the last entries of size and scale_factor.
///
/// Throws ShapeError unless the input has 3 to 5 dimensions with D, H, W >= 1 and the output sizes are >= 1,
/// DTypeError unless it is floating, ValueError unless exactly one of size and scale_factor is given, for
/// scales that are not positive and finite, and for align_corners in nearest mode.
Tensor interpolate(const Tensor& input, const InterpolateOptions& options);

namespace detail {
/// Throws, naming `function`, what these options cause for every input.
void check_options(const char* function, const InterpolateOptions& options);
}  // namespace detail

}  // namespace vox
