#pragma once

#include <algorithm>
#include <optional>
#include <random>
#include <vector>

#include <voxgrad/core/factories.h>
#include <voxgrad/ops/conv3d_geometry.h>

#include "tests/reference/conv3d.h"
#include "tests/support/numbers.h"

// What the tests of the conv3d family share.

namespace vox::testing {

using Values = std::vector<double>;

inline Tensor tensor(const Values& values, const Shape& shape, DType dtype = f64,
                     Device device = Device::cpu()) {
  return visit_floating_storage("tests", dtype, [&]<class T>(T) {
    std::vector<T> elements;
    for (const double v : values) elements.push_back(static_cast<T>(v));
    return from_vector<T>(elements, shape, device);
  });
}

/// The values rounded once to `dtype`: the expected result of exact arithmetic.
inline Values rounded(Values values, DType dtype) {
  visit_floating_storage("tests", dtype, [&]<class T>(T) {
    for (double& v : values) v = static_cast<T>(v);
  });
  return values;
}

/// 1, 2, ... n.
inline Values counting(int64_t n) {
  Values v;
  for (int64_t i = 1; i <= n; ++i) v.push_back(static_cast<double>(i));
  return v;
}

/// Whole numbers in -4..4: sums of their products are exact in f32 below 2^24.
inline Values integers(int64_t n, uint64_t seed) {
  std::mt19937_64 random(seed);
  Values v;
  v.reserve(static_cast<size_t>(n));
  for (int64_t i = 0; i < n; ++i) v.push_back(static_cast<double>(random() % 9) - 4);
  return v;
}

inline int64_t numel(const Shape& shape) { return checked_numel("tests", shape); }

inline Tensor integer_tensor(const Shape& shape, uint64_t seed, DType dtype = f64,
                             Device device = Device::cpu()) {
  return tensor(integers(numel(shape), seed), shape, dtype, device);
}

inline std::array<int64_t, 3> array_of(const Triple& t) { return {t.d, t.h, t.w}; }

/// The geometry in the reference's format.
inline reference::Conv3d reference_of(const Conv3dGeometry& g) {
  return {g.batch,
          g.big_channels,
          g.small_channels,
          g.groups,
          array_of(g.big),
          array_of(g.small),
          array_of(g.kernel),
          array_of(g.stride),
          array_of(g.padding),
          array_of(g.dilation)};
}

/// The arguments of a conv_transpose3d, for tables of test cases.
struct TransposeCase {
  std::string name;
  int64_t batch, in_channels, out_channels;
  Triple input, kernel, stride, padding, output_padding, dilation;
  int64_t groups;

  Shape input_shape() const { return {batch, in_channels, input.d, input.h, input.w}; }
  Shape weight_shape() const { return {in_channels, out_channels / groups, kernel.d, kernel.h, kernel.w}; }
  ConvTranspose3dOptions options() const {
    return {.stride = stride,
            .padding = padding,
            .output_padding = output_padding,
            .groups = groups,
            .dilation = dilation};
  }
  Conv3dGeometry geometry() const {
    return detail::conv_transpose3d_geometry(name.c_str(), input_shape(), weight_shape(), options());
  }
};

/// A generator of random whole numbers in [low, high].
struct Random {
  std::mt19937_64 bits;
  int64_t operator()(int64_t low, int64_t high) {
    return low + static_cast<int64_t>(bits() % static_cast<uint64_t>(high - low + 1));
  }
  Triple triple(int64_t low, int64_t high) {
    const int64_t d = (*this)(low, high), h = (*this)(low, high);
    return {d, h, (*this)(low, high)};
  }
};

/// The geometry of a conv_transpose3d.
inline Conv3dGeometry geometry(const Shape& input, const Shape& weight,
                               const ConvTranspose3dOptions& options = {}) {
  return detail::conv_transpose3d_geometry("tests", input, weight, options);
}

/// The geometry of a conv3d or conv_transpose3d to `out` channels; nothing if the output is empty or too
/// large to count. A conv_transpose3d has output_padding dilation - 1 along D and W.
inline std::optional<Conv3dGeometry> geometry(bool transposed, const Shape& input, int64_t out,
                                              const Triple& kernel, const Conv3dOptions& o) {
  const Shape weight{transposed ? input[1] : out, (transposed ? out : input[1]) / o.groups, kernel.d,
                     kernel.h, kernel.w};
  try {
    if (!transposed) return detail::conv3d_geometry("tests", input, weight, o);
    return detail::conv_transpose3d_geometry("tests", input, weight,
                                             {.stride = o.stride,
                                              .padding = o.padding,
                                              .output_padding = Triple(o.dilation.d - 1, 0, o.dilation.w - 1),
                                              .groups = o.groups,
                                              .dilation = o.dilation});
  } catch (const Error&) {
    return std::nullopt;
  }
}

/// Geometries that differ on every axis and expose nearly every wrong formula; small enough for gradcheck and
/// for a GPU's sanitizer. In the last three, neither grid's size determines the other's.
inline const std::vector<TransposeCase>& awkward_cases() {
  static const std::vector<TransposeCase> cases{
      {"plain", 1, 1, 1, {2, 3, 2}, {2, 1, 3}, 1, 0, 0, 1, 1},
      {"stride", 2, 2, 3, {2, 3, 4}, {3, 2, 4}, {2, 3, 1}, {1, 0, 2}, {1, 2, 0}, 1, 1},
      {"upsample", 1, 3, 2, {2, 2, 3}, 4, 2, 1, 0, 1, 1},
      {"dilation", 1, 2, 2, {3, 2, 3}, {2, 3, 2}, {1, 2, 3}, {1, 1, 0}, {1, 0, 2}, {2, 1, 2}, 1},
      {"groups", 2, 4, 6, {2, 3, 2}, {3, 2, 2}, {2, 1, 2}, {1, 0, 1}, {1, 0, 0}, {1, 2, 1}, 2},
      {"depthwise", 1, 3, 3, {3, 2, 4}, {2, 3, 3}, {1, 2, 2}, {0, 1, 1}, 0, {1, 1, 2}, 3},
      {"holes", 1, 2, 1, {2, 2, 2}, {2, 2, 1}, {3, 2, 4}, 0, {1, 1, 3}, {3, 2, 2}, 1},
      {"s2 d2", 1, 1, 2, {2, 3, 2}, 3, 2, 1, 0, 2, 1},
      {"s1 d2 op1", 1, 2, 1, {2, 3, 2}, 2, 1, 1, {1, 0, 1}, 2, 1},
      {"d3 s2 op2", 1, 1, 2, {2, 2, 3}, {2, 1, 3}, {2, 1, 2}, {1, 0, 2}, {2, 0, 2}, {3, 1, 3}, 1},
      {"crop", 1, 2, 2, {3, 4, 3}, {2, 3, 2}, {2, 1, 2}, {2, 2, 1}, {1, 0, 1}, {1, 1, 2}, 2},
  };
  return cases;
}

}  // namespace vox::testing
