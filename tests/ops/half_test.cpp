#include "tests/support/catalogue.h"
#include "tests/support/test.h"

// Every op on bf16 and f16 computes in f32 and rounds once. So its result is that of the same op on the same
// numbers in f32, rounded, bit for bit. So is every gradient, for an output gradient in 16 bits. Ops that are
// composed of others round more often. Convolutions are compared with the reference in conv3d_cases_test.cpp,
// norms with their definition in norm_test.cpp.

namespace vox {
namespace {

/// The op on leaves: its result, and the gradients for g of those that have one.
Tensors run(const Sample& op, Tensors leaves, const Tensor& g) {
  const std::vector<Operand> operands = op.operands();
  for (size_t k = 0; k < leaves.size(); ++k)
    leaves[k] =
        leaves[k].clone().set_requires_grad(is_floating(leaves[k].dtype()) && !operands[k].is_constant);
  const Tensor y = op(leaves);
  Tensors results{y.detach()};
  if (!y.requires_grad()) return results;
  y.backward(g.to(y.dtype()));
  for (const Tensor& leaf : leaves) {
    if (leaf.grad().defined()) results.push_back(leaf.grad());
  }
  return results;
}

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
  const Tensors got = run(op, narrow, g), expected = run(op, wide, g.to(f32));
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
  const Tensor x = ones({4}, {bf16, device()});
  // In bf16, 1.003 would be 1, and 0.999 too. From 512 to 1024 its numbers are 4 apart.
  EXPECT_EQ((x * 1000 * 1.003).to(f32).to_vector<float>(), Floats(4, 1004));
  Tensor y = full({4}, 1000, {bf16, device()});
  y.mul_(1.003);
  EXPECT_EQ(y.to(f32).to_vector<float>(), Floats(4, 1004));
  y = full({4}, 1000, {bf16, device()});
  y.add_(full({4}, 1000, {bf16, device()}), -0.999);
  EXPECT_EQ(y.to(f32).to_vector<float>(), Floats(4, 1));
  // Comparisons are between elements: the number is rounded to the element's dtype.
  EXPECT_EQ(eq(full({1}, 0.1, {bf16, device()}), 0.1).item<bool>(), true);
}

TEST_P(HalfOpsTest, ComparisonsAreThoseOfF32) {
  const std::vector<float> values{0, -0.f, 1, -1, HUGE_VALF, -HUGE_VALF, NAN, 0.5f, 3};
  for (const DType half : {bf16, f16}) {
    const Tensor a = from_vector(values, {9, 1}, device()), b = from_vector(values, {1, 9}, device());
    using Compare = Tensor (*)(const Tensor&, const Tensor&);
    for (const Compare op : {Compare{eq}, Compare{ne}, Compare{lt}, Compare{le}, Compare{gt}, Compare{ge}})
      EXPECT_TRUE(same_bits(op(a.to(half), b.to(half)), op(a, b)));
    EXPECT_EQ(argmax(a.to(half).slice(0, 0, 6)).item<int64_t>(), 4);
    EXPECT_EQ(argmin(a.to(half).slice(0, 0, 6)).item<int64_t>(), 5);
    EXPECT_TRUE(same_bits(max(a.to(half)), full({}, NAN, {half, device()})));
  }
}

TEST_P(HalfOpsTest, SumsAndMeansDoNotStall) {
  // In bf16 itself, 1 + 1 + ... stops at 256.
  EXPECT_EQ(sum(ones({100000}, {bf16, device()})).to(f32).item(), 99840);  // nearest to 100000
  EXPECT_EQ(mean(full({70000}, 2, {f16, device()})).to(f32).item(), 2);    // the sum is beyond f16
  Tensor x = ones({1000}, {bf16, device()}).set_requires_grad(true);
  max(x).backward();  // 1000 ties
  EXPECT_EQ(x.grad().to(f32).to_vector<float>(), Floats(1000, bfloat16(0.001f)));
}

TEST_P(HalfOpsTest, IndexAddRoundsOnce) {
  for (const DType half : {bf16, f16}) {
    Tensor x = zeros({2, 1}, {half, device()}).set_requires_grad(true);
    const Tensor indices = zeros({3000}, {i64, device()});
    index_select(x, 0, indices).backward(ones({3000, 1}, {half, device()}));
    EXPECT_EQ(x.grad().to(f32).to_vector<float>()[0], half == bf16 ? 3008 : 3000);
  }
}

TEST_P(HalfOpsTest, InPlaceAndVersions) {
  for (const DType half : {bf16, f16}) {
    Tensor x = arange(12, {half, device()}).reshape({3, 4});
    x.select(0, 1).fill_(0.25).add_(ones({4}, {half, device()}));
    x.slice(1, 0, 4, 2).mul_(2);
    EXPECT_EQ(x.to(f32).to_vector<float>(), (Floats{0, 1, 4, 3, 2.5, 1.25, 2.5, 1.25, 16, 9, 20, 11}));
    x.copy_(full({4}, 1.0 / 3, {f64, device()}));
    EXPECT_TRUE(same_bits(x, full({3, 4}, 1.0 / 3, {half, device()})));
    Tensor leaf = ones({2}, {half, device()}).set_requires_grad(true);
    EXPECT_THROW(leaf.mul_(2), GradError);
  }
}

TEST_P(HalfOpsTest, SecondDerivatives) {
  // y = x^3 at 3/2: 27/8, 27/4, 9 are exact in both dtypes.
  for (const DType half : {bf16, f16}) {
    const Tensor x = full({2}, 1.5, {half, device()}).set_requires_grad(true);
    const Tensor y = x * x * x;
    const Tensor first =
        grad({y}, {x}, {.grad_outputs = {ones({2}, {half, device()})}, .create_graph = true})[0];
    const Tensor second = grad({first}, {x}, {.grad_outputs = {ones({2}, {half, device()})}})[0];
    EXPECT_EQ(first.to(f32).to_vector<float>(), Floats(2, 6.75));
    EXPECT_EQ(second.dtype(), half);
    EXPECT_EQ(second.to(f32).to_vector<float>(), Floats(2, 9));
  }
}

}  // namespace
}  // namespace vox
