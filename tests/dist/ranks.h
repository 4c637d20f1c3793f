#pragma once

#include <voxgrad/dist/dist.h>
#include <voxgrad/voxgrad.h>

#include "tests/support/devices.h"
#include "tests/support/values.h"

namespace vox::testing {

/// On the CPU, and on a GPU for each rank; instantiated with devices(), as a DeviceTest.
class RanksTest : public ::testing::TestWithParam<Device> {
 protected:
  void SetUp() override {
    if (GetParam().is_cpu()) return;
    if (cuda::device_count() < dist::size()) GTEST_SKIP() << "needs a GPU for each rank";
    device = Device::cuda(dist::local_rank());
  }
  static Doubles values(const Tensor& t) { return t.to(f64).to_vector<double>(); }

  const int rank = dist::rank(), size = dist::size();
  Device device = Device::cpu();
};

}  // namespace vox::testing
