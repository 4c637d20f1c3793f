#include "tests/support/test.h"

// Views: which elements they show, whose memory they share, which gradient they pass on.

namespace {

using vox::Shape;
using vox::Tensor;
using Ints = std::vector<int64_t>;

class Views : public vox::testing::DeviceTest {
 protected:
  /// 0, 1, 2, ... in `shape`.
  Tensor counting(const Shape& shape) const {
    return vox::arange(0, vox::checked_numel("test", shape), 1, {.dtype = vox::i64})
        .to(device())
        .reshape(shape);
  }
};
INSTANTIATE_TEST_SUITE_P(, Views, vox::testing::devices(), vox::testing::device_name);

Ints values(const Tensor& t) { return t.to_vector<int64_t>(); }

TEST_P(Views, Slice) {
  const Tensor x = counting({2, 6});
  EXPECT_EQ(values(x.slice(1, 1, 5, 2)), (Ints{1, 3, 7, 9}));
  EXPECT_EQ(values(x.slice(1, -2, 100)), (Ints{4, 5, 10, 11}));
  EXPECT_EQ(x.slice(1, 4, 2).shape(), (Shape{2, 0}));
  EXPECT_EQ(values(x.slice(1, 1, {}, 2)), (Ints{1, 3, 5, 7, 9, 11}));  // to the end
  EXPECT_EQ(x.slice(-2, 1, 2).shape(), (Shape{1, 6}));
  EXPECT_EQ(x.slice(1, 0, std::numeric_limits<int64_t>::max(), std::numeric_limits<int64_t>::max()).shape(),
            (Shape{2, 1}));
  EXPECT_EQ(x.slice(1, 1, 2, 4).strides(), x.slice(1, 1, 2).strides());  // no step is taken
  EXPECT_THROW(x.slice(1, 0, 6, 0), vox::ValueError);
  EXPECT_THROW(x.slice(2, 0, 1), vox::ShapeError);
}

TEST_P(Views, SelectPermuteTranspose) {
  const Tensor x = counting({2, 3, 2});
  EXPECT_EQ(values(x.select(1, -1)), (Ints{4, 5, 10, 11}));
  EXPECT_EQ(x.select(0, 1).shape(), (Shape{3, 2}));
  EXPECT_THROW(x.select(1, 3), vox::ShapeError);
  EXPECT_EQ(values(x.permute({2, 0, 1})), (Ints{0, 2, 4, 6, 8, 10, 1, 3, 5, 7, 9, 11}));
  EXPECT_EQ(values(x.transpose(0, -1)), values(x.permute({2, 1, 0})));
  EXPECT_ERRORS(vox::ShapeError, x.permute({0, 1}), x.permute({0, 1, 1}));
}

TEST_P(Views, Expand) {
  const Tensor x = counting({2, 1});
  EXPECT_EQ(values(x.expand({2, 3})), (Ints{0, 0, 0, 1, 1, 1}));
  EXPECT_EQ(x.expand({3, -1, 2}).shape(), (Shape{3, 2, 2}));
  EXPECT_EQ(x.expand({2, 0}).numel(), 0);
  EXPECT_ERRORS(vox::ShapeError, x.expand({3, 1}), x.expand({2}), x.expand({2, -2}));
}

TEST_P(Views, ReshapeSharesWhereItCan) {
  const Tensor x = counting({2, 3, 4});
  const auto shares = [](const Tensor& a, const Tensor& b) { return a.impl()->storage == b.impl()->storage; };
  EXPECT_TRUE(shares(x, x.reshape({6, -1})));
  EXPECT_TRUE(shares(x, x.slice(2, 0, 3).reshape({6, 3})));
  EXPECT_TRUE(shares(x, x.slice(0, 1, 2).reshape({3, 1, 4, 1})));
  EXPECT_TRUE(shares(x, x.permute({2, 0, 1}).reshape({4, 6})));
  EXPECT_FALSE(shares(x, x.permute({2, 0, 1}).reshape({8, 3})));
  EXPECT_EQ(values(x.permute({2, 0, 1}).reshape({4, 6})), values(x.permute({2, 0, 1}).clone()));
  EXPECT_EQ(values(x.slice(2, 1, 3).reshape({12})), values(x.slice(2, 1, 3).clone()));
  EXPECT_EQ(x.select(0, 0).select(0, 0).select(0, 0).reshape({1, 1}).shape(), (Shape{1, 1}));
  EXPECT_EQ(counting({0, 3}).reshape({3, 0, 5}).shape(), (Shape{3, 0, 5}));
  EXPECT_ERRORS(vox::ShapeError, x.reshape({5, -1}), x.reshape({-1, -1}), x.reshape({25}),
                counting({0, 3}).reshape({0, -1}));
}

TEST_P(Views, SqueezeUnsqueezeFlatten) {
  const Tensor x = counting({2, 1, 3});
  EXPECT_EQ(x.squeeze(1).shape(), (Shape{2, 3}));
  EXPECT_EQ(x.squeeze(0).shape(), x.shape()) << "as in PyTorch";
  EXPECT_EQ(x.unsqueeze(-1).shape(), (Shape{2, 1, 3, 1}));
  EXPECT_EQ(x.transpose(0, 2).unsqueeze(1).squeeze(1).strides(), x.transpose(0, 2).strides());
  EXPECT_EQ(x.flatten(1).shape(), (Shape{2, 3}));
  EXPECT_EQ(x.flatten().shape(), (Shape{6}));
  EXPECT_EQ(x.select(0, 0).select(0, 0).select(0, 0).flatten().shape(), (Shape{1}));
  EXPECT_THROW(x.flatten(2, 1), vox::ShapeError);
}

TEST_P(Views, WritesGoThrough) {
  Tensor x = counting({2, 3});
  x.slice(1, 1, 2).fill_(100);
  x.transpose(0, 1).select(0, 0).zero_();
  EXPECT_EQ(values(x), (Ints{0, 100, 2, 0, 100, 5}));
}

}  // namespace
