#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include <voxgrad/core/tensor.h>

// The elements of a tensor as doubles.

namespace vox::testing {

inline std::vector<double> values(const Tensor& t) {
  return t.detach().to(Device::cpu()).to(f64).to_vector<double>();
}

/// Expects that each element differs from the wanted one by at most tolerance * (1 + its magnitude).
inline void expect_near(const Tensor& got, const std::vector<double>& want, double tolerance,
                        const std::string& what = "") {
  const std::vector<double> v = values(got);
  ASSERT_EQ(v.size(), want.size()) << what;
  for (size_t i = 0; i < v.size(); ++i)
    ASSERT_NEAR(v[i], want[i], tolerance * (1 + std::abs(want[i]))) << what << ", element " << i;
}

/// |got - expected| in units of the last place of `expected` in T. Equal special values have a distance of 0.
template <class T>
double ulps(T got, long double expected) {
  const T rounded = static_cast<T>(expected), size = std::abs(rounded);
  if (got == rounded || (std::isnan(got) && std::isnan(expected))) return 0;
  if (!std::isfinite(rounded) || !std::isfinite(got)) return HUGE_VAL;
  const T unit = std::nextafter(size, std::numeric_limits<T>::infinity()) - size;
  return static_cast<double>(std::abs((got - expected) / unit));
}

}  // namespace vox::testing
