#include <gtest/gtest.h>

#include <voxgrad/core/factories.h>
#include <voxgrad/ops/elementwise.h>

#include "tests/support/devices.h"

// For compute-sanitizer: one small case for each elementwise kernel and each of its edges (packets that are
// not full, memory that is not aligned to packets, strides, numbers).

namespace vox {
namespace {

using testing::DeviceTest;

class ElementwiseSanitize : public DeviceTest {
 protected:
  Tensor counting(int64_t n, DType dtype) { return arange(0, n, 1, {i64, device()}).to(dtype); }
};
INSTANTIATE_TEST_SUITE_P(, ElementwiseSanitize, testing::devices(), testing::device_name);

TEST_P(ElementwiseSanitize, PacketsAndRests) {
  for (DType dtype : {f32, f64, i64, u8, bf16, f16}) {
    for (int64_t n : {1, 15, 16, 17, 100}) {
      const Tensor x = counting(n + 1, dtype), shifted = x.slice(0, 1, n + 1);
      EXPECT_EQ((shifted - x.slice(0, 0, n)).to(i64).to_vector<int64_t>(),
                std::vector<int64_t>(static_cast<size_t>(n), 1));
      EXPECT_EQ(clamp(shifted, 1, 1).to(i64).to_vector<int64_t>(),
                std::vector<int64_t>(static_cast<size_t>(n), 1));
      EXPECT_EQ((x * 0 + 2).to(i64).to_vector<int64_t>(),
                std::vector<int64_t>(static_cast<size_t>(n + 1), 2));
    }
  }
}

}  // namespace
}  // namespace vox
