#include "tests/support/conv3d.h"
#include "tests/support/test.h"

// Cases small enough to check by hand, along w unless the shape says more.

namespace vox {
namespace {

struct Golden {
  const char* id;
  Shape x_shape, w_shape;
  Values x, w, bias;
  ConvTranspose3dOptions options;
  Values y;
};

Shape line(int64_t cells) { return {1, 1, 1, 1, cells}; }
Triple along_w(int64_t w, int64_t others = 1) { return {others, others, w}; }

const ConvTranspose3dOptions g5{.stride = along_w(2), .padding = along_w(1, 0)};
const ConvTranspose3dOptions g6{
    .stride = along_w(2), .padding = along_w(1, 0), .output_padding = along_w(1, 0)};
const ConvTranspose3dOptions g8{.stride = along_w(2), .padding = along_w(1, 0), .dilation = along_w(2)};
const ConvTranspose3dOptions g9{
    .stride = along_w(3), .padding = along_w(1, 0), .output_padding = along_w(2, 0), .dilation = along_w(2)};

const std::vector<Golden>& golden_cases() {
  static const std::vector<Golden> cases{
      {"G1", line(2), line(3), {1, 2}, {10, 20, 30}, {}, {}, {10, 40, 70, 60}},
      {"G2", line(2), line(1), {1, 2}, {1}, {}, {.stride = along_w(2)}, {1, 0, 2}},
      {"G3", line(1), line(2), {1}, {10, 20}, {}, {.stride = along_w(2)}, {10, 20}},
      {"G4", line(2), line(3), {1, 2}, {10, 20, 30}, {}, {.padding = along_w(1, 0)}, {40, 70}},
      {"G5", line(2), line(3), {1, 2}, {10, 20, 30}, {}, g5, {20, 50, 40}},
      {"G6", line(2), line(3), {1, 2}, {10, 20, 30}, {}, g6, {20, 50, 40, 60}},
      {"G7", line(1), line(2), {1}, {10, 20}, {}, {.dilation = along_w(2)}, {10, 0, 20}},
      {"G8", line(2), line(3), {1, 2}, {10, 20, 30}, {}, g8, {0, 40, 0, 70, 0}},
      {"G9", line(2), line(3), {1, 2}, {10, 20, 30}, {}, g9, {0, 20, 20, 30, 40, 0, 60, 0}},
      {"G10", {1, 2, 1, 1, 1}, {2, 1, 1, 1, 1}, {1, 2}, {1, 2}, {}, {.groups = 2}, {1, 4}},
      {"G11", {1, 4, 1, 1, 1}, {4, 2, 1, 1, 1}, counting(4), counting(8), {}, {.groups = 2}, {7, 10, 43, 50}},
      {"G12", {1, 4, 1, 1, 1}, {4, 1, 1, 1, 1}, counting(4), counting(4), {}, {.groups = 2}, {5, 25}},
      {"G13", {1, 2, 1, 1, 1}, {2, 2, 1, 1, 1}, {1, 10}, counting(4), {}, {.groups = 2}, {1, 2, 30, 40}},
      {"G14", {1, 2, 1, 1, 1}, {2, 3, 1, 1, 1}, {1, 10}, counting(6), {}, {}, {41, 52, 63}},
      {"G15", {1, 1, 1, 2, 2}, line(1), counting(4), {1}, {}, {.stride = along_w(2)}, {1, 0, 2, 3, 0, 4}},
      {"G16, G3", line(1), line(2), {1}, {10, 20}, {5}, {.stride = along_w(2)}, {15, 25}},
      {"G16, G8", line(2), line(3), {1, 2}, {10, 20, 30}, {5}, g8, {5, 45, 5, 75, 5}},
      {"G17", line(1), {1, 1, 3, 3, 3}, {1}, counting(27), {}, {.padding = 1}, {14}},
      {"G18", {1, 1, 2, 2, 2}, line(1), Values(8, 1), {1}, {}, {.stride = 2}, {1, 0, 1, 0, 0, 0, 1, 0, 1,
                                                                               0, 0, 0, 0, 0, 0, 0, 0, 0,
                                                                               1, 0, 1, 0, 0, 0, 1, 0, 1}},
      {"G19", line(1), {1, 1, 2, 2, 2}, {1}, counting(8), {}, {.stride = 2}, counting(8)},
  };
  return cases;
}

DEVICE_SUITE(Conv3dGolden);

TEST_P(Conv3dGolden, Forward) {
  for (const DType dtype : {f32, f64, bf16, f16}) {
    for (const Golden& c : golden_cases()) {
      const Tensor x = tensor(c.x, c.x_shape, dtype, device()), w = tensor(c.w, c.w_shape, dtype, device());
      const Tensor b =
          c.bias.empty() ? Tensor() : tensor(c.bias, {static_cast<int64_t>(c.bias.size())}, dtype, device());
      EXPECT_EQ(values(conv_transpose3d(x, w, b, c.options)), rounded(c.y, dtype)) << c.id << ' ' << dtype;
    }
  }
}

struct GoldenGradient {
  const char* id;
  Shape x_shape, w_shape;
  Values x, w;
  int64_t out_channels;
  ConvTranspose3dOptions options;
  Values gy, dx, dw, db;
};

TEST_P(Conv3dGolden, Gradients) {
  const std::vector<GoldenGradient> cases{
      {"B1", line(2), line(3), {1, 2}, {10, 20, 30}, 1, g5, {1, 2, 3}, {80, 80}, {4, 7, 2}, {6}},
      {"B2", line(2), line(3), {1, 2}, {10, 20, 30}, 1, g6, {1, 2, 3, 4}, {80, 200}, {4, 7, 10}, {10}},
      {"B3", line(2), line(3), {1, 2}, {10, 20, 30}, 1, g8, {1, 2, 3, 4, 5}, {160, 100}, {4, 10, 4}, {15}},
      {"B4",
       {1, 4, 1, 1, 1},
       {4, 2, 1, 1, 1},
       {1, 2, 3, 4},
       {1, 2, 3, 4, 5, 6, 7, 8},
       4,
       {.groups = 2},
       {1, 1, 1, 1},
       {3, 7, 11, 15},
       {1, 1, 2, 2, 3, 3, 4, 4},
       {1, 1, 1, 1}},
  };
  for (const DType dtype : {f32, f64, bf16, f16}) {
    for (const GoldenGradient& c : cases) {
      Tensor x = tensor(c.x, c.x_shape, dtype, device()), w = tensor(c.w, c.w_shape, dtype, device());
      Tensor b = tensor(Values(static_cast<size_t>(c.out_channels), 0), {c.out_channels}, dtype, device());
      x.set_requires_grad(), w.set_requires_grad(), b.set_requires_grad();
      Tensor y = conv_transpose3d(x, w, b, c.options);
      y.backward(tensor(c.gy, y.shape(), dtype, device()));
      EXPECT_EQ(values(x.grad()), rounded(c.dx, dtype)) << c.id << ' ' << dtype;
      EXPECT_EQ(values(w.grad()), rounded(c.dw, dtype)) << c.id << ' ' << dtype;
      EXPECT_EQ(values(b.grad()), rounded(c.db, dtype)) << c.id << ' ' << dtype;
    }
  }
}

// conv3d by hand: y[i] = sum over k of x[i*s - p + k*d] * w[k].
TEST_P(Conv3dGolden, Conv3dForward) {
  for (const DType dtype : {f32, f64, bf16, f16}) {
    const Tensor x = tensor({1, 2, 3, 4}, line(4), dtype, device());
    const Tensor w = tensor({1, 10, 100}, line(3), dtype, device());
    EXPECT_EQ(values(conv3d(x, w)), rounded({321, 432}, dtype));
    EXPECT_EQ(values(conv3d(x, w, tensor({5}, {1}, dtype, device()))), rounded({326, 437}, dtype));
    EXPECT_EQ(values(conv3d(x, w, {}, {.stride = 2, .padding = along_w(1, 0)})), rounded({210, 432}, dtype));
    EXPECT_EQ(values(conv3d(x, w, {}, {.padding = along_w(2, 0), .dilation = along_w(2)})),
              rounded({310, 420, 31, 42}, dtype));
  }
}

DEVICE_SUITE(ConvLower);

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
  const Tensor line = zeros({2, 3, 5}, on(f64)), plane = zeros({2, 3, 5, 6}, on(f64));
  const Tensor w1 = zeros({4, 7, 3}, on(f64)), w2 = zeros({4, 7, 3, 2}, on(f64));
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
  const Tensor w3 = zeros({3, 1, 3, 2}, on(f64));
  EXPECT_MESSAGE(Error, conv_transpose2d(plane, w3, {}, {.stride = 2, .output_size = Pair(9, 12)}),
                 "conv_transpose2d: output_size (9,12) is not reachable: (11,12) to (12,13) are, with "
                 "output_padding (0,0) to (1,1)");
  EXPECT_MESSAGE(Error, conv2d(plane, zeros({1, 3, 9, 1}, on(f64))),
                 "conv2d: the output would be empty: input (5,6) with padding (0,0) is smaller than kernel "
                 "(9,1) with dilation (1,1); use more padding or a smaller kernel");
  EXPECT_REFUSED(Error, conv1d(zeros({2, 3, 0}, on(f64)), w1), "got shape (2,3,0)");
}

}  // namespace
}  // namespace vox
