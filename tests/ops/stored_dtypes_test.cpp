#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <vector>

#include <voxgrad/voxgrad.h>

#include "tests/support/catalogue.h"
#include "tests/support/errors.h"
#include "tests/support/numbers.h"
#include "tests/support/values.h"

// i16, u16 and i32, in which no op computes. The samples of the catalogue that list them are the ops that
// move or convert them: layouts_test.cpp runs those. Here every other op refuses them.

namespace vox {
namespace {

using namespace vox::testing;

class StoredDtypesOps : public CatalogueTest {};
INSTANTIATE_TEST_SUITE_P(, StoredDtypesOps, families(), family_name);

TEST_P(StoredDtypesOps, WhatComputesRefusesThem) {
  for (const Sample& op : samples(Size::small)) {
    const std::vector<Operand> operands = op.operands();
    const auto of_dtype = [](const Operand& o) {
      return o.holds == Holds::numbers || o.holds == Holds::positive;
    };
    if (std::count(op.dtypes.begin(), op.dtypes.end(), i16) > 0) continue;
    if (std::none_of(operands.begin(), operands.end(), of_dtype)) continue;
    for (const DType dtype : only_stored) {
      Tensors all;
      for (const Operand& o : operands)
        all.push_back(values_of(o.shape, o.holds, dtype, device(), std::ssize(all)));
      const std::string message = message_of<Error>([&] { op(all); });
      EXPECT_NE(message.find(str(dtype)), std::string::npos)
          << op.name() << " of " << dtype << ": " << message;
      // linear is a layer, whose constructor throws; some ops refuse a fraction first.
      const bool says_how =
          message.find("to(") != message.npos || message.find("cannot be held") != message.npos;
      EXPECT_TRUE(says_how || op.op == "linear") << op.name() << " of " << dtype << ": " << message;
    }
  }
}

class StoredDtypes : public DeviceTest {};
INSTANTIATE_TEST_SUITE_P(, StoredDtypes, devices(), device_name);

TEST_P(StoredDtypes, CastsLimitAndWrapAround) {
  const Tensor real = from_vector<double>(
      {-1e9, -32769, -32768, -1.9, 0.5, 32767.9, 65535.9, 65536, 3e9, NAN}, {10}, device());
  for (const Tensor& x : {real, real.to(f32)}) {
    EXPECT_EQ(values(x.to(i16)), (Doubles{-32768, -32768, -32768, -1, 0, 32767, 32767, 32767, 32767, 0}));
    EXPECT_EQ(values(x.to(u16).slice(0, 0, 6)), (Doubles{0, 0, 0, 0, 0, 32767}));
    EXPECT_EQ(values(x.to(u16).slice(0, 7)), (Doubles{65535, 65535, 0}));
    EXPECT_EQ(values(x.to(i32).slice(0, 7)), (Doubles{65536, 2147483647, 0}));
    EXPECT_EQ(values(x.to(i32).slice(0, 0, 5)), (Doubles{-1000000000, -32769, -32768, -1, 0}));
  }
  const Tensor whole = from_vector<int64_t>({-1, 65537, 4294967298, 32768}, {4}, device());
  EXPECT_EQ(whole.to(i16).to_vector<int16_t>(), (std::vector<int16_t>{-1, 1, 2, -32768}));
  EXPECT_EQ(whole.to(u16).to_vector<uint16_t>(), (std::vector<uint16_t>{65535, 1, 2, 32768}));
  EXPECT_EQ(whole.to(i32).to_vector<int32_t>(), (std::vector<int32_t>{-1, 65537, 2, 32768}));
  EXPECT_EQ(values(whole.to(i16).to(boolean)), (Doubles{1, 1, 1, 1}));
  EXPECT_EQ(values(whole.to(u16).to(i16).to(u8)), (Doubles{255, 1, 2, 0}));
  // Every i32 is exact in f64, and rounds once to bf16: 257 is a tie, and to even.
  const Tensor large = from_vector<int32_t>({2147483647, -2147483647 - 1, 16777217, 257}, {4}, device());
  EXPECT_EQ(values(large), (Doubles{2147483647, -2147483648., 16777217, 257}));
  EXPECT_EQ(values(large.to(f32)), (Doubles{2147483648., -2147483648., 16777216, 257}));
  EXPECT_EQ(values(large.to(bf16)), (Doubles{2147483648., -2147483648., 16777216, 256}));
}

TEST_P(StoredDtypes, SumsAreI64) {
  const Tensor x = full({3}, 32767, {i16, device()});
  EXPECT_EQ(sum(x).dtype(), i64);
  EXPECT_EQ(sum(x).item<int64_t>(), 98301);
  EXPECT_EQ(prod(x.slice(0, 0, 2)).item<int64_t>(), 1073676289);
}

TEST_P(StoredDtypes, ElementsOneByOne) {
  const Tensor x = from_vector<int16_t>({-7, 300}, {2}, device());
  EXPECT_EQ(x[0].item<int>(), -7);
  EXPECT_EQ(x[1].item<double>(), 300);
  EXPECT_THROW(x[1].item<uint8_t>(), ValueError);
  EXPECT_THROW(x[0].item(), DTypeError);  // is for floating dtypes
  EXPECT_EQ(str(x.to(Device::cpu())), "tensor([ -7, 300], dtype=i16)");
  EXPECT_THROW(x.to_vector<uint16_t>(), DTypeError);
  EXPECT_THROW(full({1}, 65536, {u16, device()}), ValueError);
  EXPECT_THROW(full({1}, -1, {u16, device()}), ValueError);
  EXPECT_THROW(full({1}, -32769, {i16, device()}), ValueError);
  EXPECT_THROW(full({1}, 0.5, {i32, device()}), ValueError);
  EXPECT_EQ(full({1}, -2147483647 - 1, {i32, device()}).to_vector<int32_t>()[0], -2147483647 - 1);
  EXPECT_EQ(values(eye(2, {u16, device()})), (Doubles{1, 0, 0, 1}));
  EXPECT_THROW(arange(3, {.dtype = i16}), DTypeError);
  EXPECT_THROW(randint(0, 3, {2}, {i32, device()}), DTypeError);
  EXPECT_THROW(randn({2}, {i16, device()}), DTypeError);
  EXPECT_THROW(Tensor(x).set_requires_grad(), DTypeError);
}

TEST(StoredDtypesOfTheCaller, AreReadAndWrittenInPlace) {
  int32_t numbers[] = {1, 2, 3, 4};
  Tensor x = from_blob(numbers, {2, 2});
  x.transpose(0, 1)[0].copy_(from_vector<uint16_t>({8, 9}, {2}));
  EXPECT_EQ(numbers[2], 9);
  EXPECT_EQ(x.data<int>()[0], 8);
  x.mutable_data<int>()[3] = -1;
  EXPECT_EQ(x.to_vector<int>(), (std::vector<int>{8, 2, 9, -1}));
}

}  // namespace
}  // namespace vox
