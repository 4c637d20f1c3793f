#include "tests/support/test.h"

namespace vox {
namespace {

DEVICE_SUITE(Factories);

TEST_P(Factories, FromVectorKeepsValuesShapeAndDtype) {
  const Tensor x = from_vector<float>({1, 2, 3, 4, 5, 6}, {2, 3}, device());
  EXPECT_EQ(x.shape(), (Shape{2, 3}));
  EXPECT_EQ(x.dtype(), f32);
  EXPECT_EQ(x.device(), device());
  EXPECT_EQ(x.to_vector<float>(), (Floats{1, 2, 3, 4, 5, 6}));
  const Doubles values{0.5, -1};
  EXPECT_EQ(from_vector(values, {2}, device()).to_vector<double>(), values);
  EXPECT_EQ(ints({INT64_MIN, INT64_MAX}, {2}).to_vector<int64_t>(), (Ints{INT64_MIN, INT64_MAX}));
  EXPECT_EQ(from_vector<uint8_t>({0, 255}, {2}, device()).to_vector<uint8_t>(), (Bytes{0, 255}));
  const Bools bits{true, false, true};
  EXPECT_EQ(from_vector(bits, {3}, device()).to_vector<bool>(), bits);
  EXPECT_EQ(from_vector<bool>({false, true}, {2}, device()).to_vector<bool>(), (Bools{false, true}));
  EXPECT_EQ(from_vector<float>({7}, {}, device()).item(), 7);
  EXPECT_EQ(from_vector<float>({}, {0, 4}, device()).shape(), (Shape{0, 4}));
  EXPECT_EQ(from_vector<float>(Floats(), {0}, device()).to_vector<float>(), Floats());
  EXPECT_EQ(from_vector<bool>({}, {0}, device()).numel(), 0);
}

TEST_P(Factories, ConstantsArangeAndEye) {
  EXPECT_EQ(zeros({2, 2}, on(f32)).to_vector<float>(), Floats(4, 0));
  EXPECT_EQ(ones({3}, on(f64)).to_vector<double>(), Doubles(3, 1));
  EXPECT_EQ(full({2}, INT64_MIN, on(i64)).to_vector<int64_t>(), Ints(2, INT64_MIN));
  EXPECT_EQ(full({2}, 255, on(u8)).to_vector<uint8_t>(), Bytes(2, 255));
  EXPECT_EQ(full({2}, true, on(boolean)).to_vector<bool>(), Bools(2, true));
  EXPECT_EQ(full({}, 2.5, on(f32)).item(), 2.5f);
  EXPECT_TRUE(std::isnan(full({}, NAN, on(f32)).item()));
  EXPECT_EQ(zeros({0, 3}, on(f32)).numel(), 0);
  EXPECT_EQ(arange(4, on(f32)).to_vector<float>(), (Floats{0, 1, 2, 3}));
  EXPECT_EQ(arange(1, 2.5, 0.5, on(f64)).to_vector<double>(), (Doubles{1, 1.5, 2}));
  EXPECT_EQ(arange(1, 2.6, 0.5, on(f32)).to_vector<float>(), (Floats{1, 1.5, 2, 2.5}));
  EXPECT_EQ(arange(5, 0, -2, on(i64)).to_vector<int64_t>(), (Ints{5, 3, 1}));
  EXPECT_EQ(arange(6, 0, -2, on(i64)).to_vector<int64_t>(), (Ints{6, 4, 2}));
  EXPECT_EQ(arange(250, 256, 3, on(u8)).to_vector<uint8_t>(), (Bytes{250, 253}));
  EXPECT_EQ(arange(2, 2, 1, on(i64)).numel(), 0);
  EXPECT_EQ(arange(0, on(f32)).numel(), 0);
  EXPECT_EQ(eye(3, on(f32)).to_vector<float>(), (Floats{1, 0, 0, 0, 1, 0, 0, 0, 1}));
  EXPECT_EQ(eye(2, on(boolean)).to_vector<bool>(), (Bools{true, false, false, true}));
  EXPECT_EQ(eye(0, on(i64)).shape(), (Shape{0, 0}));
}

TEST_P(Factories, LikeTakesShapeDtypeAndDevice) {
  const Tensor x = empty({2, 3}, on(i64));
  for (const Tensor& y : {zeros_like(x), ones_like(x), full_like(x, 5)}) {
    EXPECT_EQ(y.shape(), x.shape());
    EXPECT_EQ(y.dtype(), i64);
    EXPECT_EQ(y.device(), device());
  }
  EXPECT_EQ(full_like(x, 5).to_vector<int64_t>(), Ints(6, 5));
  EXPECT_THROW(zeros_like(Tensor()), ValueError);
}

TEST(FromVector, NamesBothCountsWhenTheyDiffer) {
  EXPECT_MESSAGE(Error, from_vector<float>({1, 2}, {3, 2}),
                 "from_vector: shape (3,2) has 6 elements, got 2 values");
  EXPECT_ERRORS(ShapeError, from_vector<float>({1, 2}, {-2}), from_vector<float>({}, {}));
}

TEST(Arange, IsExactAtTheEndsOfTheIntegers) {
  EXPECT_EQ(arange(INT64_MIN, INT64_MAX, int64_t{1} << 62, {.dtype = i64}).to_vector<int64_t>(),
            (Ints{INT64_MIN, INT64_MIN / 2, 0, int64_t{1} << 62}));
  EXPECT_EQ(arange(INT64_MAX - 2, INT64_MAX, 1, {.dtype = i64}).to_vector<int64_t>(),
            (Ints{INT64_MAX - 2, INT64_MAX - 1}));
  EXPECT_EQ(arange(INT64_MAX, INT64_MIN, INT64_MIN, {.dtype = i64}).to_vector<int64_t>(),
            (Ints{INT64_MAX, -1}));
  EXPECT_THROW(arange(INT64_MIN, INT64_MAX, 1, {.dtype = i64}), ShapeError);
  EXPECT_THROW(arange(INT64_MAX, INT64_MAX - 1, 1, {.dtype = i64}), ValueError);
}

TEST(Arange, RefusesWhatHasNoElementsOrCannotBeHeld) {
  EXPECT_ERRORS(ValueError, arange(0, 5, 0), arange(0, 5, 0, {.dtype = i64}), arange(5, 0),
                arange(0, 5, -1, {.dtype = i64}), arange(0, INFINITY), arange(0, 5, NAN),
                arange(0, 2.5, 1, {.dtype = i64}), arange(250, 257, 1, {.dtype = u8}),
                arange(2, -2, -1, {.dtype = u8}));
  EXPECT_THROW(arange(0, 1e300), ShapeError);
  EXPECT_THROW(arange(2, -1, -1, {.dtype = u8}).to_vector<uint8_t>().at(3), std::out_of_range);
  EXPECT_THROW(arange(0, 2, 1, {.dtype = boolean}), DTypeError);
  EXPECT_MESSAGE(Error, arange(70000, {.dtype = f16}),
                 "arange: elements from 0 to 69999 cannot be held by dtype f16; allowed are -65504 to 65504");
  EXPECT_MESSAGE(
      Error, arange(0, -65540, -10, {.dtype = f16}),
      "arange: elements from 0 to -65530 cannot be held by dtype f16; allowed are -65504 to 65504");
  EXPECT_ERRORS(ValueError, arange(0, 1e39, 9e38), arange(-1e39, 0, 1e39, {.dtype = bf16}),
                arange(1e39, 1e39 + 1e30, 1e30, {.dtype = f32}));
  // The limit applies to the last element, not to the end, and after rounding to the dtype.
  EXPECT_EQ(arange(0, 70000, 65504, {.dtype = f16}).to(f64).to_vector<double>(), (Doubles{0, 65504}));
  EXPECT_EQ(arange(0, 70000, 65519, {.dtype = f16}).to(f64).to_vector<double>(), (Doubles{0, 65504}));
  EXPECT_THROW(arange(0, 70000, 65520, {.dtype = f16}), ValueError);
  EXPECT_EQ(arange(1e39, 1e39, 1, {.dtype = f32}).numel(), 0);
  EXPECT_EQ(arange(0, 1e300, 5e299, {.dtype = f64}).to_vector<double>(), (Doubles{0, 5e299}));
}

TEST(Full, RefusesWhatTheDtypeCannotHold) {
  EXPECT_ERRORS(ValueError, full({1}, 0.5, {.dtype = i64}), full({1}, 256, {.dtype = u8}),
                full({1}, -1, {.dtype = u8}), full({1}, 2, {.dtype = boolean}),
                full({1}, NAN, {.dtype = i64}), full({1}, UINT64_MAX, {.dtype = i64}),
                full({1}, 0x1p63, {.dtype = i64}));
}

TEST(FromBlob, SeesAndChangesTheCallersMemory) {
  std::array<float, 6> memory{1, 2, 3, 4, 5, 6};
  Tensor x = from_blob(memory.data(), {2, 3});
  EXPECT_EQ(x.data<float>(), memory.data());
  memory[5] = 60;
  EXPECT_EQ(x.to_vector<float>(), (Floats{1, 2, 3, 4, 5, 60}));
  x.mutable_data<float>()[0] = 10;
  EXPECT_EQ(memory[0], 10);
}

TEST_P(Factories, FromBlobOnMemoryOfTheDevice) {
  Tensor owner = arange(6, on(f32));
  Tensor x = from_blob(owner.mutable_data<float>(), {3, 2}, {1, 3}, device());
  EXPECT_EQ(x.device(), device());
  EXPECT_EQ(x.to_vector<float>(), (Floats{0, 3, 1, 4, 2, 5}));
  EXPECT_EQ((x * 2).to_vector<float>(), (Floats{0, 6, 2, 8, 4, 10}));
  x.fill_(7);
  EXPECT_EQ(owner.to_vector<float>(), Floats(6, 7));
}

TEST(FromBlob, TakesAnyStridesThatAreNotNegative) {
  std::array<int64_t, 6> memory{1, 2, 3, 4, 5, 6};
  EXPECT_EQ(from_blob(memory.data(), {3, 2}, {1, 3}).to_vector<int64_t>(), (Ints{1, 4, 2, 5, 3, 6}));
  EXPECT_EQ(from_blob(memory.data(), {2, 2}, {0, 5}).to_vector<int64_t>(), (Ints{1, 6, 1, 6}));
  EXPECT_ERRORS(ShapeError, from_blob(memory.data(), {2}, {-1}), from_blob(memory.data(), {2, 3}, {1}));
}

TEST(FromBlob, RunsTheDeleterOnceAfterTheLastTensor) {
  int64_t memory = 7;
  int deleted = 0;
  {
    Tensor view;
    {
      const Tensor x = from_blob(&memory, {1}, {1}, Device::cpu(), [&](void* data) {
        EXPECT_EQ(data, &memory);
        ++deleted;
      });
      view = x.detach();
    }
    EXPECT_EQ(deleted, 0);
    EXPECT_EQ(view.item<int64_t>(), 7);
  }
  EXPECT_EQ(deleted, 1);
}

TEST(FromBlob, RefusesContradictions) {
  float* null = nullptr;
  EXPECT_THROW(from_blob(null, {2}), ValueError);
  EXPECT_EQ(from_blob(null, {0, 2}).numel(), 0);
  alignas(8) std::array<char, 16> bytes{};
  EXPECT_THROW(from_blob(reinterpret_cast<float*>(bytes.data() + 1), {1}), ValueError);
  float value = 0;
  const int64_t big = INT64_MAX;
  EXPECT_ERRORS(ShapeError, from_blob(&value, {big, 2}), from_blob(&value, {3}, {big}),
                from_blob(&value, {2, 2}, {big / 2 + 1, big / 2 + 1}));
  EXPECT_THROW(from_blob(&value, {2}, {big / 4}), ShapeError) << "the bytes overflow";
  bool deleted = false;
  EXPECT_THROW(from_blob(null, {2}, {1}, Device::cpu(), [&](void*) { deleted = true; }), Error);
  EXPECT_FALSE(deleted) << "a refused call leaves the memory with the caller";
}

TEST(FromBlob, ForgetsStridesThatNoElementHas) {
  const Tensor x = from_blob(static_cast<float*>(nullptr), {0, 10}, {1, INT64_MAX});
  EXPECT_EQ(x.slice(1, 0, 10, 3).shape(), (Shape{0, 4}));  // INT64_MAX * 3 would overflow
  EXPECT_EQ(x.slice(1, 5, 7).numel(), 0);
}

}  // namespace
}  // namespace vox
