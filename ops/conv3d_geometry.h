#pragma once

#include <cstdint>

#include <voxgrad/core/shape.h>
#include <voxgrad/ops/conv3d.h>
#include <voxgrad/ops/triple.h>

namespace vox {

/// The geometry of one contraction of the conv3d family, the same value for all three ops.
///
/// Each axis has a fine ("big") grid with cells o, a coarse ("small") grid with cells i, and taps k. Cells
/// and taps with o = i * stride - padding + k * dilation touch. conv3d reads big and writes small,
/// conv_transpose3d reads small and writes big, conv3d_weight_grad reads both.
///
/// The functions below build and check it once, and it travels unchanged to every gradient. Neither grid's
/// size follows from the other's: from 5 cells at stride 2, kernels of 2 and of 3 both give 2. So no gradient
/// may recompute a size. The checks promise to kernels that all sizes, strides and dilations are >= 1 (batch
/// and padding >= 0), that groups divides both channel counts, and that every element count and index fits
/// int64_t.
struct Conv3dGeometry {
  int64_t batch = 0;
  int64_t big_channels = 0;
  int64_t small_channels = 0;
  int64_t groups = 1;
  Triple big;    ///< cells of the fine grid
  Triple small;  ///< cells of the coarse grid
  Triple kernel;
  Triple stride, padding, dilation;

  Shape big_shape() const { return {batch, big_channels, big.d, big.h, big.w}; }
  Shape small_shape() const { return {batch, small_channels, small.d, small.h, small.w}; }
  Shape weight_shape() const { return {small_channels, big_per_group(), kernel.d, kernel.h, kernel.w}; }

  constexpr int64_t big_cells() const { return big.d * big.h * big.w; }
  constexpr int64_t small_cells() const { return small.d * small.h * small.w; }
  constexpr int64_t taps() const { return kernel.d * kernel.h * kernel.w; }
  constexpr int64_t big_per_group() const { return big_channels / groups; }
  constexpr int64_t small_per_group() const { return small_channels / groups; }

  friend constexpr bool operator==(const Conv3dGeometry&, const Conv3dGeometry&) = default;
};

/// Which of the two grids; for a bias: the one whose channels it has.
enum class Grid { big, small };

namespace detail {

/// The public call that errors name, and how its tensors differ from the kernel's: a conv2d runs as a conv3d
/// with an added axis of one cell, and input without a batch as a batch of one. Errors must show neither.
struct Caller {
  const char* function;
  int64_t spatial;  ///< the caller's axes: the last ones of three
  bool batched;

  Caller(const char* name, int64_t axes = 3, bool has_batch = true)
      : function(name), spatial(axes), batched(has_batch) {}
  operator const char*() const { return function; }
  friend std::ostream& operator<<(std::ostream& out, const Caller& caller) { return out << caller.function; }

  /// One number per axis, and a shape, printed as the caller knows them. They hold references: print at once.
  struct Axes {
    const Triple& triple;
    int64_t spatial;
    friend std::ostream& operator<<(std::ostream& out, const Axes& axes);
  };
  struct Sizes {
    const Shape& shape;
    int64_t spatial;
    bool batched;
    friend std::ostream& operator<<(std::ostream& out, const Sizes& sizes);
  };
  Axes axes(const Triple& t) const { return {t, spatial}; }
  Sizes input(const Shape& shape) const { return {shape, spatial, batched}; }
  Sizes weight(const Shape& shape) const { return {shape, spatial, true}; }
  const char* taps() const { return spatial == 3 ? "kD, kH, kW" : spatial == 2 ? "kH, kW" : "k"; }
};

/// Throws what the functions below throw for options that no tensor fits.
void check_options(const Caller& function, const Triple& kernel_size, const Conv3dOptions& options);
void check_options(const Caller& function, const Triple& kernel_size, const ConvTranspose3dOptions& options);

// Shapes are those of batched tensors of rank 5. Throws ShapeError for tensors that do not fit each other or
// the options, ValueError for options that no tensor fits.

Conv3dGeometry conv3d_geometry(const Caller& function, const Shape& input, const Shape& weight,
                               const Conv3dOptions& options);

Conv3dGeometry conv_transpose3d_geometry(const Caller& function, const Shape& input, const Shape& weight,
                                         const ConvTranspose3dOptions& options);

Conv3dGeometry conv3d_weight_grad_geometry(const Shape& big, const Shape& small, Triple kernel_size,
                                           const Conv3dOptions& options);

}  // namespace detail
}  // namespace vox
