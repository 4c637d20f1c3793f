#pragma once

#include "tests/support/test.h"

// What the tests of pooling share; they are one suite, instantiated in pool3d_test.cpp.

namespace vox::testing {

class Pool3d : public DeviceTest {
 protected:
  /// One row of cells.
  static Tensor row(const Doubles& v, DType dtype = f64) {
    return make(v, {1, 1, 1, 1, static_cast<int64_t>(v.size())}, dtype);
  }
  static Doubles max(const Doubles& v, const MaxPool3dOptions& options) {
    return values(max_pool3d(row(v), options));
  }
  static Doubles avg(const Doubles& v, const AvgPool3dOptions& options) {
    return values(avg_pool3d(row(v), options));
  }
};

constexpr Triple w(int64_t k) { return {1, 1, k}; }  // a kernel or stride along W
constexpr Triple w_pad(int64_t p) { return {0, 0, p}; }

}  // namespace vox::testing
