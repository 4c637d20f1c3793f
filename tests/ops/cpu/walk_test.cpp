#include <voxgrad/ops/cpu/isa.h>

#include "tests/support/test.h"

// Copies and sums of views of every kind against the definition, element by element, for each instruction
// set.

namespace vox {
namespace {

using cpu::Isa;

/// The elements of x in logical order, by its strides.
template <class T>
std::vector<T> by_hand(const Tensor& x) {
  std::vector<T> values;
  const T* data = detail::ptr<T>(x);
  for_each_place(x.shape(),
                 [&](const Shape& index) { values.push_back(data[place_of(index, x.strides())]); });
  return values;
}

/// Views of all kinds of tensors with the elements 0, 1, 2, ...
std::vector<Tensor> views(DType dtype, Device device = Device::cpu()) {
  std::vector<Tensor> result;
  const auto counting = [&](const Shape& shape) {
    return arange(checked_numel("test", shape), {.dtype = i64}).to(dtype).to(device).reshape(shape);
  };
  for (const Shape& shape :
       {Shape{5, 7, 11, 3}, Shape{2, 66, 130}, Shape{1, 257, 70}, Shape{4, 4, 33, 65}, Shape{30, 23, 3, 13},
        Shape{260, 2, 20}, Shape{140, 2, 20}, Shape{1100, 2, 20}, Shape{2, 64, 128}, Shape{2, 32, 1000},
        Shape{1, 5, 700}, Shape{2, 7, 1}, Shape{70, 3}, Shape{3, 4}, Shape{1, 1}, Shape{0, 5}}) {
    const Tensor x = counting(shape);
    result.push_back(x);
    Shape reversed;
    for (int64_t d = x.rank() - 1; d >= 0; --d) reversed.push_back(d);
    result.push_back(x.permute(reversed));
    result.push_back(x.transpose(0, 1));
    result.push_back(x.transpose(-1, -2));
    if (x.numel() == 0) continue;
    for (const int64_t begin : {0, 1}) result.push_back(x.slice(-1, begin, {}, 2));
    result.push_back(x.slice(-2, 1).transpose(-1, -2));
    result.push_back(x.transpose(0, -1).slice(0, 0, {}, 2));
    result.push_back(x.transpose(0, -1).slice(-1, x.size(0) / 2));
    result.push_back(x.select(0, x.size(0) - 1).unsqueeze(-1));
    Shape wider = x.shape();
    wider.push_back(35);
    result.push_back(x.unsqueeze(-1).expand(wider));
    result.push_back(x.unsqueeze(-1).expand(wider).transpose(0, -1));
  }
  result.push_back(counting({2, 1, 3, 2, 1, 2, 3, 2}).permute({7, 3, 5, 1, 0, 6, 4, 2}));
  return result;
}

DEVICE_SUITE(CopyOfAnyView);

TEST_P(CopyOfAnyView, HasItsElements) {
  const auto check = [&]<class T>(T) {
    const std::vector<Tensor> here = views(dtype_of<T>()), there = views(dtype_of<T>(), device());
    for (size_t i = 0; i < here.size(); ++i)
      EXPECT_EQ(there[i].clone().to_vector<T>(), by_hand<T>(here[i])) << here[i].shape() << here[i].strides();
  };
  check(float{});
  check(double{});
  check(int64_t{});
  check(uint8_t{});
  check(bfloat16{});
}

class WalkTest : public ::testing::TestWithParam<Isa> {
 protected:
  void SetUp() override {
    if (!cpu::has_isa(GetParam())) GTEST_SKIP() << "not on this processor";
    cpu::set_isa(GetParam());
  }
  void TearDown() override { cpu::set_isa(before_); }

 private:
  Isa before_ = cpu::isa();
};
INSTANTIATE_TEST_SUITE_P(, WalkTest, ::testing::Values(Isa::baseline, Isa::v3, Isa::v4),
                         [](const auto& info) { return to_string(info.param); });

TEST_P(WalkTest, CopiesIntoAnyViewWriteItsElementsAndNoOthers) {
  for (const Tensor& view : views(f32)) {
    bool repeats = false;
    for (int64_t d = 0; d < view.rank(); ++d)
      repeats = repeats || (view.strides()[d] == 0 && view.shape()[d] > 1);
    if (repeats || view.numel() == 0) continue;
    const Tensor before = Tensor(view).clone();
    const Tensor source = before + 0.5;
    Tensor target = view;
    const int64_t memory = target.impl()->storage->bytes() / 4;
    const float* data = static_cast<const float*>(target.impl()->storage->data());
    double sum_before = 0, sum_after = 0;
    for (int64_t i = 0; i < memory; ++i) sum_before += data[i];
    target.copy_(source);
    for (int64_t i = 0; i < memory; ++i) sum_after += data[i];
    EXPECT_EQ(by_hand<float>(target), source.to_vector<float>()) << view.shape() << view.strides();
    EXPECT_EQ(sum_after - sum_before, 0.5 * static_cast<double>(view.numel()));
    target.add_(target);
    EXPECT_EQ(by_hand<float>(target), (source + source).to_vector<float>());
    target.copy_(before);
  }
}

TEST_P(WalkTest, TwoViewsMeet) {
  for (const Tensor& a : views(f64)) {
    const Tensor b = a.clone() * 3 + 1;
    const Doubles left = by_hand<double>(a), right = by_hand<double>(b);
    Doubles expected;
    for (size_t i = 0; i < left.size(); ++i) expected.push_back(left[i] - right[i]);
    EXPECT_EQ((a - b).to_vector<double>(), expected) << a.shape() << a.strides();
    EXPECT_EQ((b - a).to_vector<double>(), ((a - b) * -1).to_vector<double>());
    EXPECT_TRUE(same_bits(where(gt(a, 5), a, b), where(gt(a.clone(), 5), a.clone(), b)));
  }
}

// All operands are gathered, and the mask's bytes come before the wider elements (of sizes that no alignment
// divides).
TEST_P(WalkTest, AMaskAndAnOperandAreViews) {
  for (const DType dtype : {f16, f32, f64}) {
    for (const Shape& shape : {Shape{7, 5}, Shape{9, 33}}) {
      const Tensor x = arange(0, shape[0] * shape[1], 1, {.dtype = i64}).to(dtype).reshape(shape);
      const Tensor a = x.transpose(0, 1), mask = gt(x, 11).transpose(0, 1), b = a.clone() * 3 + 1;
      EXPECT_TRUE(same_bits(where(mask, a, b), where(mask.clone(), a.clone(), b))) << dtype << shape;
    }
  }
}

// Above this size results bypass the cache.
TEST_P(WalkTest, LargeResults) {
  const Tensor x = arange(0, 9 * 1009 * 513, 1, {.dtype = i64}).to(f32).reshape({9, 1009, 513});
  for (const Tensor& view : {x, x.permute({2, 1, 0}), x.permute({0, 2, 1})}) {
    const Tensor copy = view.permute({0, 1, 2}) + 0;
    ASSERT_GE(copy.numel() * 4, int64_t{16} << 20);
    const float* got = copy.data<float>();
    const auto expected = by_hand<float>(view);
    int64_t wrong = 0;
    for (size_t i = 0; i < expected.size(); ++i) wrong += got[i] != expected[i];
    EXPECT_EQ(wrong, 0) << view.strides();
    EXPECT_TRUE(same_bits(view.clone(), copy));
  }
  EXPECT_TRUE(same_on_any_threads([&] { return tanh(x.permute({2, 1, 0}) * 1e-6); }));
}

}  // namespace
}  // namespace vox
