#include "tests/support/test.h"

// add_, mul_, fill_, copy_: what they write, also through views and from overlapping memory, and what they
// refuse.

namespace vox {
namespace {

DEVICE_SUITE(InplaceTest);

TEST_P(InplaceTest, AddAndMul) {
  Tensor x = counting({6}, i64).reshape({2, 3});
  x.add_(ints({10, 20, 30}, {3}));
  EXPECT_EQ(x.to_vector<int64_t>(), (Ints{10, 21, 32, 13, 24, 35}));
  x.add_(ints({1, 2}, {2, 1}), -3);
  EXPECT_EQ(x.to_vector<int64_t>(), (Ints{7, 18, 29, 7, 18, 29}));
  x.mul_(ints({1, 2, 3}, {3})).mul_(2);
  EXPECT_EQ(x.to_vector<int64_t>(), (Ints{14, 72, 174, 14, 72, 174}));

  Tensor f = full({70}, 1, on(f32));  // more than a block, and no multiple of one
  f.add_(full({70}, 3, on(f32)), 0.5).mul_(0.25);
  EXPECT_EQ(f.to_vector<float>(), Floats(70, 0.625f));
  Tensor d = full({3}, 1, on(f64));
  EXPECT_EQ(d.add_(full({1}, 2, on(f64))).to_vector<double>(), Doubles(3, 3));
  Tensor u = full({3}, 200, on(u8));
  EXPECT_EQ(u.add_(full({3}, 100, on(u8))).to_vector<uint8_t>(), Bytes(3, 44));
}

TEST_P(InplaceTest, WritesThroughViews) {
  Tensor x = counting({12}, i64).reshape({3, 4});
  x.transpose(0, 1).slice(0, 1, 3).mul_(10);  // columns 1 and 2
  EXPECT_EQ(x.to_vector<int64_t>(), (Ints{0, 10, 20, 3, 4, 50, 60, 7, 8, 90, 100, 11}));
  x.select(0, 1).fill_(-1);
  x.slice(1, 0, 4, 3).slice(0, 2, 3).fill_(5);
  EXPECT_EQ(x.to_vector<int64_t>(), (Ints{0, 10, 20, 3, -1, -1, -1, -1, 5, 90, 100, 5}));
  x.select(1, 3).copy_(ints({7, 8, 9}, {3}));
  EXPECT_EQ(x.to_vector<int64_t>(), (Ints{0, 10, 20, 7, -1, -1, -1, 8, 5, 90, 100, 9}));
  x.zero_();
  EXPECT_EQ(x.to_vector<int64_t>(), Ints(12, 0));
}

TEST_P(InplaceTest, CopiesAcrossDtypesAndDevices) {
  Tensor x = zeros({2, 3}, on(f32));
  x.copy_(from_vector<int64_t>({1, 2, 3}, {3}));  // from the CPU
  EXPECT_EQ(x.to_vector<float>(), (Floats{1, 2, 3, 1, 2, 3}));
  Tensor y = zeros({3, 2}, {f64, Device::cpu()});
  y.transpose(0, 1).copy_(x);  // to the CPU
  EXPECT_EQ(y.to_vector<double>(), (Doubles{1, 1, 2, 2, 3, 3}));
  x.copy_(full({}, 4, on(f32)));
  EXPECT_EQ(x.to_vector<float>(), Floats(6, 4));
  Tensor none = zeros({0, 3}, on(f32));
  EXPECT_EQ(none.copy_(zeros({1, 3}, on(f32))).numel(), 0);
}

TEST_P(InplaceTest, OverlappingMemory) {
  Tensor x = counting({200}, i64);
  x.slice(0, 1, 200).copy_(x.slice(0, 0, 199));
  for (int64_t i = 0; i < 200; ++i)
    ASSERT_EQ(x.to_vector<int64_t>()[static_cast<size_t>(i)], std::max<int64_t>(i - 1, 0));
  Tensor y = counting({200}, i64);
  y.slice(0, 0, 199).add_(y.slice(0, 1, 200));
  for (int64_t i = 0; i < 199; ++i) ASSERT_EQ(y.to_vector<int64_t>()[static_cast<size_t>(i)], 2 * i + 1);
  Tensor z = counting({9}, i64).reshape({3, 3});
  z.copy_(z.transpose(0, 1));
  EXPECT_EQ(z.to_vector<int64_t>(), (Ints{0, 3, 6, 1, 4, 7, 2, 5, 8}));
  Tensor large = counting({400 * 400}, i64).reshape({400, 400});
  const Tensor expected = large + large.transpose(0, 1);
  EXPECT_TRUE(equal(large.add_(large.transpose(0, 1)), expected));
  z.mul_(z.select(0, 1));  // every row by what the middle row was
  EXPECT_EQ(z.to_vector<int64_t>(), (Ints{0, 12, 42, 1, 16, 49, 2, 20, 56}));
  z.add_(z);
  EXPECT_EQ(z.to_vector<int64_t>(), (Ints{0, 24, 84, 2, 32, 98, 4, 40, 112}));
  z.copy_(z);
  EXPECT_EQ(z.to_vector<int64_t>(), (Ints{0, 24, 84, 2, 32, 98, 4, 40, 112}));
}

// Rows of 4 elements that begin 2, 3 or 4 elements apart.
TEST_P(InplaceTest, RowsThatShareElementsAreRefused) {
  const auto rows = [&](int64_t apart) { return detail::alias(zeros({8}, on(f32)), 0, {2, 4}, {apart, 1}); };
  EXPECT_THROW(rows(2).fill_(1), ValueError);
  EXPECT_THROW(rows(3).fill_(1), ValueError);
  EXPECT_EQ(values(rows(4).fill_(1)), Doubles(8, 1));
}

TEST_P(InplaceTest, VersionAndGradMode) {
  Tensor x = zeros({3}, on(f32)), other = zeros({3}, on(f32));
  const auto version = [&] { return x.impl()->storage->version(); };
  auto before = version();
  for (int i = 0; i < 4; ++i) {
    if (i == 0) x.add_(other);
    if (i == 1) x.mul_(2);
    if (i == 2) x.slice(0, 0, 1).fill_(1);
    if (i == 3) x.copy_(other);
    EXPECT_GT(version(), before) << i;
    before = version();
  }
  EXPECT_THROW(x.add_(zeros({4}, on(f32))), ShapeError);
  EXPECT_EQ(version(), before);  // the call was refused before it wrote

  Tensor leaf = zeros({3}, on(f32)).set_requires_grad(true);
  EXPECT_ERRORS(GradError, leaf.add_(other), leaf.fill_(1), leaf.mul_(2), leaf.select(0, 1).zero_(),
                x.add_(leaf), x.mul_(leaf), x.copy_(leaf), (leaf * 2).fill_(1));
  const auto guard = no_grad();
  leaf.fill_(2).add_(leaf);
  x.copy_(leaf);
  EXPECT_EQ(x.to_vector<float>(), (Floats{4, 4, 4}));
  EXPECT_TRUE(leaf.requires_grad());
}

TEST_P(InplaceTest, Errors) {
  Tensor x = zeros({2, 3}, on(f32));
  EXPECT_THROW(x.add_(zeros({2, 3}, on(f64))), DTypeError);
  EXPECT_THROW(x.mul_(zeros({2}, on(f32))), ShapeError);
  EXPECT_THROW(x.add_(zeros({4, 2, 3}, on(f32))), ShapeError);  // would have to grow
  EXPECT_THROW(x.copy_(zeros({2, 2}, on(f32))), ShapeError);
  EXPECT_ERRORS(ValueError, x.copy_(Tensor()), x.add_(Tensor()), Tensor().fill_(1), Tensor().mul_(2),
                zeros({2}, on(i64)).fill_(0.5), zeros({2}, on(u8)).fill_(256),
                zeros({2}, on(i64)).add_(zeros({2}, on(i64)), 0.5));
  EXPECT_ERRORS(DTypeError, zeros({2}, on(boolean)).mul_(1),
                zeros({2}, on(boolean)).add_(zeros({2}, on(boolean))));
  Tensor expanded = zeros({2, 1}, on(f32)).expand({2, 3});
  EXPECT_ERRORS(ValueError, expanded.fill_(1), expanded.add_(x), expanded.mul_(2), expanded.copy_(x));
  if (device().is_cuda()) {
    EXPECT_THROW(x.add_(zeros({2, 3})), DeviceError);
  }
}

}  // namespace
}  // namespace vox
