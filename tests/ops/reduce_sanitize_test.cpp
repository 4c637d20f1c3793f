#include <gtest/gtest.h>

#include <voxgrad/ops/elementwise.h>
#include <voxgrad/ops/matmul.h>
#include <voxgrad/ops/reduce.h>

#include "tests/support/devices.h"
#include "tests/support/values.h"

// For compute-sanitizer, which is slow: one small case for each kernel of the reductions and matmul, and for
// each of their edges.

namespace vox {
namespace {

using namespace vox::testing;

class ReduceSanitize : public DeviceTest {};
INSTANTIATE_TEST_SUITE_P(, ReduceSanitize, devices(), device_name);

// Short rows; rows of one block, full and not full; rows of several blocks; and all of them as columns.
TEST_P(ReduceSanitize, RowsAndColumns) {
  for (int64_t length : {3, 33, 1024, 1025, 34000}) {
    const Tensor x = whole({9, length}, {f64, device()});
    const Tensor columns = x.transpose(0, 1).contiguous();
    EXPECT_EQ(sum(x, {1}).to_vector<double>(), sum(columns, {0}).to_vector<double>());
    EXPECT_EQ(argmax(x, {1}).to_vector<int64_t>(), argmax(columns, {0}).to_vector<int64_t>());
    EXPECT_TRUE(same_bits(sum(x.to(bf16), {1}), sum(columns.to(bf16), {0})));
    EXPECT_TRUE(same_bits(min(x.to(f16), {1}), min(columns.to(f16), {0})));
    EXPECT_EQ(max(x.to(u8)).item<uint8_t>(), max(columns.to(u8)).item<uint8_t>());
  }
}

TEST_P(ReduceSanitize, MatmulTilesThatEndEarly) {
  for (const DType dtype : {f32, bf16, f16}) {
    const Tensor a = whole({2, 65, 17}, {dtype, device()}), b = whole({17, 66}, {dtype, device()});
    const Tensor y = matmul(a, b), transposed = matmul(b.transpose(0, 1), a.transpose(1, 2));
    EXPECT_TRUE(same_bits(y, transposed.transpose(1, 2)));
  }
}

}  // namespace
}  // namespace vox
