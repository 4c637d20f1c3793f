#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <vector>

#include <voxgrad/core/factories.h>
#include <voxgrad/ops/pool3d.h>
#include "tests/support/devices.h"
#include "tests/support/numbers.h"

// What the tests of pooling share; they are one suite, instantiated in pool3d_test.cpp.

namespace vox::testing {

using Values = std::vector<double>;

class Pool3d : public DeviceTest {
 protected:
  static Tensor make(const Values& v, const Shape& shape, DType dtype = f64) {
    return from_vector<double>(v, shape).to(dtype).to(device());
  }
  /// One row of cells.
  static Tensor row(const Values& v, DType dtype = f64) {
    return make(v, {1, 1, 1, 1, static_cast<int64_t>(v.size())}, dtype);
  }
  static Values max(const Values& v, const MaxPool3dOptions& options) {
    return values(max_pool3d(row(v), options));
  }
  static Values avg(const Values& v, const AvgPool3dOptions& options) {
    return values(avg_pool3d(row(v), options));
  }
};

constexpr Triple w(int64_t k) { return {1, 1, k}; }  // a kernel or stride along W
constexpr Triple w_pad(int64_t p) { return {0, 0, p}; }

}  // namespace vox::testing
