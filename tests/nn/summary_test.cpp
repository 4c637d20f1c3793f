#include "tests/support/test.h"

namespace vox {
namespace {

struct Net : nn::Module {
  nn::Conv3d conv{{.in_channels = 2, .out_channels = 4, .kernel_size = 3, .stride = 2, .padding = 1}};
  nn::BatchNorm3d norm{{.num_features = 4}};
  nn::Sequential tail{nn::ConvTranspose3d({.in_channels = 4, .out_channels = 1, .kernel_size = 2}),
                      nn::Dropout(), nn::Flatten(), nn::Linear({.in_features = 27, .out_features = 5})};
  nn::ReLU unused;
  Tensor gain = register_parameter("gain", ones({5}));
  VOXGRAD_MODULE(conv, norm, tail, unused)
  Tensor forward(const Tensor& x, const Tensor& y) { return gain * tail(norm(conv(x)) + norm(conv(y))); }
};

TEST(SummaryTest, NumbersByHand) {
  Net net;
  net.norm.eval();
  const Tensor x = ones({3, 2, 4, 4, 4});  // conv -> (3,4,2,2,2), transposed -> (3,1,3,3,3)
  const nn::Summary s = nn::summary(net, x, x);
  ASSERT_EQ(s.rows.size(), 8u);
  const auto expect = [&](size_t i, const char* name, const char* layer, const Shape& output, int64_t calls,
                          int64_t parameters, int64_t bytes, int64_t multiply_adds) {
    const auto& row = s.rows[i];
    EXPECT_EQ(row.name, name);
    EXPECT_EQ(row.layer, layer) << name;
    EXPECT_EQ(row.output, output) << name;
    EXPECT_EQ(row.calls, calls) << name;
    EXPECT_EQ(row.parameters, parameters) << name;
    EXPECT_EQ(row.bytes, bytes) << name;
    EXPECT_EQ(row.multiply_adds, multiply_adds) << name;
  };
  expect(0, "", "Net", {3, 5}, 1, 5, 0, 0);
  expect(1, "conv", "Conv3d", {3, 4, 2, 2, 2}, 2, 4 * 2 * 27 + 4, 2 * 96 * 4, 2 * 96 * 54);
  expect(2, "norm", "BatchNorm3d", {3, 4, 2, 2, 2}, 2, 8, 2 * 96 * 4, 0);
  expect(3, "tail.0", "ConvTranspose3d", {3, 1, 3, 3, 3}, 1, 33, 81 * 4, 96 * 8);
  expect(4, "tail.1", "Dropout", {3, 1, 3, 3, 3}, 1, 0, 0, 0);
  expect(5, "tail.2", "Flatten", {3, 27}, 1, 0, 0, 0);
  expect(6, "tail.3", "Linear", {3, 5}, 1, 140, 60, 15 * 27);
  expect(7, "unused", "ReLU", {}, 0, 0, 0, 0);
  EXPECT_EQ(s.total().parameters, 5 + 220 + 8 + 33 + 140);
  EXPECT_EQ(s.total().multiply_adds, 2 * 96 * 54 + 768 + 405);

  // The network is as it was.
  EXPECT_TRUE(net.is_training() && net.tail[1].is_training());
  EXPECT_FALSE(net.norm.is_training());
  EXPECT_EQ(net.norm.num_batches_tracked.item<int64_t>(), 0);
  EXPECT_FALSE(net.has_forward_hooks() || net.conv.has_forward_hooks());
  EXPECT_THROW(nn::summary(net, x, ones({1})), ShapeError);
  EXPECT_FALSE(net.has_forward_hooks() || net.conv.has_forward_hooks());
  EXPECT_TRUE(net.tail[1].is_training());
}

TEST(SummaryTest, PrintsATable) {
  std::ostringstream out;
  out << nn::summary(
      nn::Sequential{nn::Conv1d({.in_channels = 1, .out_channels = 20, .kernel_size = 3}), nn::ReLU()},
      ones({2, 1, 10}));
  EXPECT_EQ(out.str(),
            "name   layer   output    parameters  bytes  multiply-adds\n"
            "0      Conv1d  (2,20,8)          80  1,280            960\n"
            "1      ReLU    (2,20,8)           0  1,280              0\n"
            "total                            80  2,560            960");
}

}  // namespace
}  // namespace vox
