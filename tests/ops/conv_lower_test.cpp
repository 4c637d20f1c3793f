#include "tests/support/conv3d.h"
#include "tests/support/test.h"

namespace vox {
namespace {

class ConvLower : public DeviceTest {
 protected:
  static Tensor random(const Shape& shape, uint64_t seed) {
    return integer_tensor(shape, seed, f64, device()).set_requires_grad();
  }
};
INSTANTIATE_TEST_SUITE_P(, ConvLower, devices(), device_name);

TEST_P(ConvLower, OneDimensionByHand) {
  const Tensor x = make({1, 2}, {1, 1, 2}), w = make({10, 20, 30}, {1, 1, 3});
  EXPECT_EQ(values(conv_transpose1d(x, w)), (Values{10, 40, 70, 60}));
  EXPECT_EQ(values(conv_transpose1d(x, w, {}, {.stride = 2, .padding = 1, .output_padding = 1})),
            (Values{20, 50, 40, 60}));
  EXPECT_EQ(values(conv_transpose1d(x, w, make({5}, {1}), {.stride = 2, .padding = 1, .dilation = 2})),
            (Values{5, 45, 5, 75, 5}));
  EXPECT_EQ(conv_transpose1d(x, w, {}, {.stride = 2, .output_size = 6}).shape(), (Shape{1, 1, 6}));
  const Tensor line = make({1, 2, 3, 4}, {1, 4});  // without a batch
  const Tensor y = conv1d(line, make({1, 10, 100}, {1, 1, 3}), {}, {.stride = 2, .padding = 1});
  EXPECT_EQ(y.shape(), (Shape{1, 2}));
  EXPECT_EQ(values(y), (Values{210, 432}));
}

TEST_P(ConvLower, TwoDimensionsByHand) {
  const Tensor x = make({1, 2, 3, 4}, {1, 1, 2, 2});
  EXPECT_EQ(values(conv_transpose2d(x, make({1}, {1, 1, 1, 1}), {}, {.stride = {1, 2}})),
            (Values{1, 0, 2, 3, 0, 4}));
  EXPECT_EQ(values(conv2d(x, make({1, 10}, {1, 1, 1, 2}))), (Values{21, 43}));
  EXPECT_EQ(values(conv2d(x, make({1, 10}, {1, 1, 2, 1}))), (Values{31, 42}));
  EXPECT_EQ(
      conv_transpose2d(x, make({1}, {1, 1, 1, 1}), {}, {.stride = {3, 2}, .output_size = Pair(5, 3)}).shape(),
      (Shape{1, 1, 5, 3}));
}

TEST_P(ConvLower, ErrorsNameTheCall) {
  const Tensor x = make({1, 2}, {1, 1, 2}), half = x.to(bf16);
  EXPECT_ERRORS(DTypeError, conv1d(half, x), conv1d(half, half, zeros({1}, on(f32))));
  EXPECT_MESSAGE_BEGINS(Error, conv2d(x, make({1}, {1, 1, 1})), "conv2d: weight must have 4 dimensions");
  EXPECT_MESSAGE_BEGINS(Error, conv1d(x.unsqueeze(0), x), "conv1d: input must have 3 dimensions, or 2");
  EXPECT_MESSAGE(Error, conv_transpose1d(x, x, {}, {.stride = 0}),
                 "conv_transpose1d: stride must be >= 1 on every axis, got 0");
}

TEST_P(ConvLower, ErrorsSpeakOfTheCallersShapes) {
  const Tensor line = zeros({2, 3, 5}, {f64, device()}), plane = zeros({2, 3, 5, 6}, {f64, device()});
  const Tensor w1 = zeros({4, 7, 3}, {f64, device()}), w2 = zeros({4, 7, 3, 2}, {f64, device()});
  EXPECT_MESSAGE(Error, conv1d(line, w1),
                 "conv1d: weight must be (C_out, C_in/groups, k) with C_in/groups = 3, got weight (4,7,3) "
                 "for input (2,3,5) and groups 1");
  EXPECT_MESSAGE(
      Error, conv2d(plane.select(0, 0), w2),  // no batch
      "conv2d: weight must be (C_out, C_in/groups, kH, kW) with C_in/groups = 3, got weight (4,7,3,2) "
      "for input (3,5,6) and groups 1");
  EXPECT_MESSAGE(Error, conv_transpose2d(plane, w2),
                 "conv_transpose2d: weight must be (C_in, C_out/groups, kH, kW) with C_in = 3, got weight "
                 "(4,7,3,2) for input (2,3,5,6)");
  const Tensor w3 = zeros({3, 1, 3, 2}, {f64, device()});
  EXPECT_MESSAGE(Error, conv_transpose2d(plane, w3, {}, {.stride = 2, .output_size = Pair(9, 12)}),
                 "conv_transpose2d: output_size (9,12) is not reachable: (11,12) to (12,13) are, with "
                 "output_padding (0,0) to (1,1)");
  EXPECT_MESSAGE(Error, conv2d(plane, zeros({1, 3, 9, 1}, {f64, device()})),
                 "conv2d: the output would be empty: input (5,6) with padding (0,0) is smaller than kernel "
                 "(9,1) with dilation (1,1); use more padding or a smaller kernel");
  const Tensor no_cells = zeros({2, 3, 0}, {f64, device()});
  EXPECT_NE(message_of([&] { conv1d(no_cells, w1); }).find("got shape (2,3,0)"), std::string::npos);
}

}  // namespace
}  // namespace vox
