#pragma once

#include <functional>
#include <optional>
#include <type_traits>
#include <utility>
#include <vector>

#include <voxgrad/core/tensor.h>

// A network on a volume that is larger than its training patches, window by window, as nnU-Net v2 does it.
namespace vox::nn {

/// First cells of the windows along one axis, by the formula of nnU-Net v2: the fewest windows whose distance
/// is at most step * window, spread evenly from the first cell to the last,
///
///     gaps = ceil((size - window) / (step * window)),   start i = round(i * (size - window) / gaps)
///
/// with halves rounded to even. (MONAI's distance is constant except for the last.) Throws ValueError unless
/// 1 <= window <= size and 0.01 <= step <= 1.
std::vector<int64_t> window_starts(Int size, Int window, Real step);

/// The first cells of all windows in a volume, the last axis fastest. ShapeError if the ranks differ.
std::vector<Shape> plan_windows(const Shape& size, const Shape& window, Real step);

/// The weights (f32, shape `window`) of a window's cells, which are nnU-Net's: a Gaussian around cell
/// window / 2 of standard deviation window / 8 along each axis, 10 at its top, rounded to f16; zeros are
/// replaced by the smallest weight that is not 0.
Tensor gaussian_window(const Shape& window);

struct SlidingWindowOptions {
  vox::detail::ByName by_name{};
  Shape window;                       ///< sizes of (D, H, W) or (H, W), as in training
  double step = 0.5;                  ///< largest distance of two windows, as a share of their size
  bool gaussian = true;               ///< weights of gaussian_window(); if false, 1
  Shape mirror = {};                  ///< axes (0 is the first of the window) to average over all their flips
  int64_t batch_size = 1;             ///< windows in one call of the network
  std::optional<Device> device = {};  ///< where the network is; by default where the volume is
};

namespace detail {
using WindowFunction = std::function<std::vector<Tensor>(const Tensor&)>;
std::vector<Tensor> sliding_window(const Tensor& volume, const WindowFunction& network,
                                   const SlidingWindowOptions& options);
}  // namespace detail

/// What `network` says about every cell of `volume`, (C, D, H, W) or (C, H, W): the weighted mean of its
/// results for all windows that have the cell.
///
///     net.eval();
///     Tensor scores = nn::sliding_window(scan, net, {.window = {128, 128, 128}, .device = Device::cuda()});
///
/// `network` takes windows (N, C, D, H, W) on options.device and returns a Tensor (N, K, D, H, W), or a
/// std::vector of such tensors, each with its own K; the result is a Tensor (K, D, H, W), or a std::vector.
/// Volume and sums stay on the volume's device, so a volume in host memory may be larger than the GPU's. The
/// sums are f32 (f64 for f64). An axis that is smaller than the window is padded with zeros on both sides.
/// Works under no_grad().
///
/// Throws ValueError for options outside their range, ShapeError for another rank and if the network's
/// results do not have the windows' sizes, DTypeError if they are not floating.
template <class Network>
auto sliding_window(const Tensor& volume, Network&& network, const SlidingWindowOptions& options) {
  using Result = std::remove_cvref_t<std::invoke_result_t<Network&, const Tensor&>>;
  if constexpr (std::is_same_v<Result, Tensor>) {
    return detail::sliding_window(
               volume, [&](const Tensor& x) { return std::vector<Tensor>{network(x)}; }, options)
        .front();
  } else {
    static_assert(std::is_same_v<Result, std::vector<Tensor>>,
                  "sliding_window: the network must return a Tensor or a std::vector<Tensor>");
    return detail::sliding_window(
        volume, [&](const Tensor& x) { return network(x); }, options);
  }
}

}  // namespace vox::nn
