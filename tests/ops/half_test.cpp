#include "tests/support/catalogue.h"
#include "tests/support/test.h"

// Every op on bf16 and f16 computes in f32 and rounds once. So its result is that of the same op on the same
// numbers in f32, rounded, bit for bit. So is every gradient, for an output gradient in 16 bits. Ops that are
// composed of others round more often. Convolutions are compared with the reference in conv3d_cases_test.cpp,
// norms with their definition in norm_test.cpp.

namespace vox {
namespace {

/// Normal numbers, of which functions of positive numbers take the magnitude.
Tensor random_operand(const Operand& operand, DType dtype, Device device, unsigned seed) {
  const auto& [shape, holds, is_batched, is_constant] = operand;
  if (holds == Holds::bools || holds == Holds::indices) return values_of(shape, holds, dtype, device, seed);
  const Tensor x = normal(shape, {f32, device}, seed);
  return (holds == Holds::positive ? abs(x) + 0.25 : x).to(dtype);
}

void expect_near(const Tensor& got, const Tensor& expected, const std::string& what) {
  const double unit = got.dtype() == bf16 ? 0x1p-8 : 0x1p-11;  // a few roundings of intermediate numbers
  const double error = max(abs(got.to(f32) - expected)).item(), largest = max(abs(expected)).item();
  EXPECT_LE(error, 8 * unit * std::max(1.0, largest)) << what;
}

/// Ops that a GPU computes by faster instructions if the result has 16 bits: their relative error is below
/// 2^-17 (cuda/elementwise.cu), so they may round to a neighbour.
const std::set<std::string> fast_on_gpus{"sigmoid", "silu",     "mish",    "elu",
                                         "gelu",    "softplus", "softmax", "log_softmax"};

void check(const Sample& op, DType half, Device device) {
  Tensors narrow, wide;
  for (const Operand& operand : op.operands()) {
    narrow.push_back(random_operand(operand, half, device, static_cast<unsigned>(narrow.size() + 1)));
    wide.push_back(is_floating(narrow.back().dtype()) ? narrow.back().to(f32) : narrow.back());
  }
  const Tensor y = op(narrow), g = normal(y.shape(), {f32, y.device()}, 77).to(half);
  const auto run = [&](const Tensors& operands, const Tensor& of_result) {
    return differentiated(op, operands, [&](const Tensor& result) { return of_result.to(result.dtype()); });
  };
  const Tensors got = run(narrow, g), expected = run(wide, g.to(f32));
  ASSERT_EQ(got.size(), expected.size());
  for (size_t i = 0; i < got.size(); ++i) {
    const std::string what = str(op.name(), " of ", half, i == 0 ? std::string() : str(", gradient ", i - 1));
    const bool has_dtype_of_operands = expected[i].dtype() == f32 && op.op != "to";
    ASSERT_TRUE(!has_dtype_of_operands || got[i].dtype() == half) << what;
    const bool exact = op.half == Half::exact || (i == 0 && op.half == Half::exact_forward);
    if (exact && !(device.is_cuda() && fast_on_gpus.contains(op.op)))
      EXPECT_TRUE(same_bits(got[i], expected[i].to(got[i].dtype()))) << what;
    else
      expect_near(got[i], expected[i], what);
  }
}

class HalfTest : public CatalogueTest {};
INSTANTIATE_TEST_SUITE_P(, HalfTest, families(), family_name);

TEST_P(HalfTest, RoundsOnce) {
  for (const Sample& op : samples(Size::large)) {
    for (const DType half : {bf16, f16}) {
      if (std::count(op.dtypes.begin(), op.dtypes.end(), half)) check(op, half, device());
    }
  }
}

DEVICE_SUITE(HalfOpsTest);

TEST_P(HalfOpsTest, NumbersAreTakenInF32) {
  const Tensor x = ones({4}, on(bf16));
  // In bf16, 1.003 would be 1, and 0.999 too. From 512 to 1024 its numbers are 4 apart.
  EXPECT_EQ((x * 1000 * 1.003).to(f32).to_vector<float>(), Floats(4, 1004));
  Tensor y = full({4}, 1000, on(bf16));
  y.mul_(1.003);
  EXPECT_EQ(y.to(f32).to_vector<float>(), Floats(4, 1004));
  y = full({4}, 1000, on(bf16));
  y.add_(full({4}, 1000, on(bf16)), -0.999);
  EXPECT_EQ(y.to(f32).to_vector<float>(), Floats(4, 1));
  // Comparisons are between elements: the number is rounded to the element's dtype.
  EXPECT_EQ(eq(full({1}, 0.1, on(bf16)), 0.1).item<bool>(), true);
}

TEST_P(HalfOpsTest, ExtremaOfSpecialNumbers) {
  for (const DType half : {bf16, f16}) {
    const Tensor x = numbers({0, -0., 1, -1, inf, -inf, nan, 0.5, 3}, half);
    EXPECT_EQ(argmax(x.slice(0, 0, 6)).item<int64_t>(), 4);
    EXPECT_EQ(argmin(x.slice(0, 0, 6)).item<int64_t>(), 5);
    EXPECT_TRUE(same_bits(max(x), full({}, nan, on(half))));
  }
}

TEST_P(HalfOpsTest, SumsAndMeansDoNotStall) {
  // In bf16 itself, 1 + 1 + ... stops at 256.
  EXPECT_EQ(sum(ones({100000}, on(bf16))).to(f32).item(), 99840);  // nearest to 100000
  EXPECT_EQ(mean(full({70000}, 2, on(f16))).to(f32).item(), 2);    // the sum is beyond f16
  Tensor x = ones({1000}, on(bf16)).set_requires_grad(true);
  max(x).backward();  // 1000 ties
  EXPECT_EQ(x.grad().to(f32).to_vector<float>(), Floats(1000, bfloat16(0.001f)));
}

TEST_P(HalfOpsTest, IndexAddRoundsOnce) {
  for (const DType half : {bf16, f16}) {
    Tensor x = zeros({2, 1}, on(half)).set_requires_grad(true);
    const Tensor indices = zeros({3000}, on(i64));
    index_select(x, 0, indices).backward(ones({3000, 1}, on(half)));
    EXPECT_EQ(x.grad().to(f32).to_vector<float>()[0], half == bf16 ? 3008 : 3000);
  }
}

TEST_P(HalfOpsTest, InPlaceAndVersions) {
  for (const DType half : {bf16, f16}) {
    Tensor x = arange(12, on(half)).reshape({3, 4});
    x.select(0, 1).fill_(0.25).add_(ones({4}, on(half)));
    x.slice(1, 0, 4, 2).mul_(2);
    EXPECT_EQ(x.to(f32).to_vector<float>(), (Floats{0, 1, 4, 3, 2.5, 1.25, 2.5, 1.25, 16, 9, 20, 11}));
    x.copy_(full({4}, 1.0 / 3, on(f64)));
    EXPECT_TRUE(same_bits(x, full({3, 4}, 1.0 / 3, on(half))));
    Tensor leaf = ones({2}, on(half)).set_requires_grad(true);
    EXPECT_THROW(leaf.mul_(2), GradError);
  }
}

TEST_P(HalfOpsTest, SecondDerivatives) {
  // y = x^3 at 3/2: 27/8, 27/4, 9 are exact in both dtypes.
  for (const DType half : {bf16, f16}) {
    const Tensor x = full({2}, 1.5, on(half)).set_requires_grad(true);
    const Tensor y = x * x * x;
    const Tensor first = grad({y}, {x}, {.grad_outputs = {ones({2}, on(half))}, .create_graph = true})[0];
    const Tensor second = grad({first}, {x}, {.grad_outputs = {ones({2}, on(half))}})[0];
    EXPECT_EQ(first.to(f32).to_vector<float>(), Floats(2, 6.75));
    EXPECT_EQ(second.dtype(), half);
    EXPECT_EQ(second.to(f32).to_vector<float>(), Floats(2, 9));
  }
}

// An op refuses each dtype that no sample of it in the catalogue lists: i16, u16 and i32, if it computes, and
// most ops integers or bool. layouts_test.cpp runs the ops on the others.

class RefusedDtypes : public CatalogueTest {};
INSTANTIATE_TEST_SUITE_P(, RefusedDtypes, families(), family_name);

TEST_P(RefusedDtypes, AreNamedInTheMessage) {
  std::map<std::string, std::set<DType>> taken;
  for (const Sample& op : samples(Size::small)) taken[op.op].insert(op.dtypes.begin(), op.dtypes.end());
  for (const Sample& op : samples(Size::small)) {
    const std::vector<Operand> operands = op.operands();
    const auto of_dtype = [](const Operand& o) {
      return o.holds == Holds::numbers || o.holds == Holds::positive;
    };
    if (std::none_of(operands.begin(), operands.end(), of_dtype)) continue;
    for (const DType dtype : any_dtype) {
      if (taken[op.op].contains(dtype)) continue;
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

DEVICE_SUITE(StoredDtypes);

TEST_P(StoredDtypes, CastsLimitAndWrapAround) {
  const Tensor real = make({-1e9, -32769, -32768, -1.9, 0.5, 32767.9, 65535.9, 65536, 3e9, NAN}, {10});
  for (const Tensor& x : {real, real.to(f32)}) {
    EXPECT_EQ(values(x.to(i16)), (Doubles{-32768, -32768, -32768, -1, 0, 32767, 32767, 32767, 32767, 0}));
    EXPECT_EQ(values(x.to(u16).slice(0, 0, 6)), (Doubles{0, 0, 0, 0, 0, 32767}));
    EXPECT_EQ(values(x.to(u16).slice(0, 7)), (Doubles{65535, 65535, 0}));
    EXPECT_EQ(values(x.to(i32).slice(0, 7)), (Doubles{65536, 2147483647, 0}));
    EXPECT_EQ(values(x.to(i32).slice(0, 0, 5)), (Doubles{-1000000000, -32769, -32768, -1, 0}));
  }
  const Tensor whole = ints({-1, 65537, 4294967298, 32768}, {4});
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
  const Tensor x = full({3}, 32767, on(i16));
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
  EXPECT_ERRORS(ValueError, full({1}, 65536, on(u16)), full({1}, -1, on(u16)), full({1}, -32769, on(i16)),
                full({1}, 0.5, on(i32)));
  EXPECT_EQ(full({1}, -2147483647 - 1, on(i32)).to_vector<int32_t>()[0], -2147483647 - 1);
  EXPECT_EQ(values(eye(2, on(u16))), (Doubles{1, 0, 0, 1}));
  EXPECT_ERRORS(DTypeError, arange(3, {.dtype = i16}), randint(0, 3, {2}, on(i32)), randn({2}, on(i16)),
                Tensor(x).set_requires_grad());
  EXPECT_REFUSED(DTypeError, randint(0, 3, {2}, on(i32)), "convert an i64 with to(dtype)");
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
