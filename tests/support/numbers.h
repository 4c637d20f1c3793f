#pragma once

#include <gtest/gtest.h>

#include <cmath>
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

}  // namespace vox::testing
