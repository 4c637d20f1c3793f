#include "tests/support/test.h"

namespace vox {
namespace {

DEVICE_SUITE(AttentionTest);

/// The definition.
Tensor defined(const Tensor& q, const Tensor& k, const Tensor& v, const Tensor& added = {}) {
  Tensor scores = matmul(q, k.transpose(-2, -1)) / std::sqrt(static_cast<double>(q.size(-1)));
  if (added.defined()) scores = scores + added;
  return matmul(softmax(scores, -1), v);
}

TEST_P(AttentionTest, ByHand) {
  // Scores 0 and log 3 give the probabilities 1/4 and 3/4.
  const Tensor q = ones({1, 1}, on(f64)), k = make({0, std::log(3.0)}, {2, 1}),
               v = make({4, 8, 0, 12}, {2, 2});
  const auto y = scaled_dot_product_attention(q, k, v).to_vector<double>();
  EXPECT_NEAR(y[0], 1, 1e-14);
  EXPECT_NEAR(y[1], 11, 1e-14);
  EXPECT_NEAR(scaled_dot_product_attention(q, k, v, {.scale = 0}).to_vector<double>()[0], 2, 1e-14);
}

TEST_P(AttentionTest, IsItsDefinitionWithEveryMask) {
  const Tensor q = normal({2, 3, 5, 4}, on(f64), 1), k = normal({2, 3, 7, 4}, on(f64), 2),
               v = normal({2, 3, 7, 6}, on(f64), 3);
  EXPECT_TRUE(allclose(scaled_dot_product_attention(q, k, v), defined(q, k, v)));
  for (const Shape& shape :
       {Shape{5, 7}, Shape{1, 7}, Shape{3, 5, 7}, Shape{2, 1, 5, 1}, Shape{2, 3, 5, 7}}) {
    const Tensor mask = normal(shape, on(f64), 4);
    EXPECT_TRUE(allclose(scaled_dot_product_attention(q, k, v, {.attn_mask = mask}), defined(q, k, v, mask)));
    const Tensor seen = logical_or(mask > 0, eq(arange(shape[shape.rank() - 1], on(i64)), 0));
    const Tensor added = where(seen, 0, full(shape, -inf, on(f64)));
    EXPECT_TRUE(
        allclose(scaled_dot_product_attention(q, k, v, {.attn_mask = seen}), defined(q, k, v, added)));
  }
  // One mask for each head, with as many numbers as one for all would have if it were square.
  for (const auto& [heads, length, keys] : {std::tuple(2, 1, 2), std::tuple(2, 2, 1)}) {
    const Tensor few = normal({heads, length, 4}, on(f64), 5), far = normal({heads, keys, 4}, on(f64), 6),
                 mask = normal({heads, length, keys}, on(f64), 7);
    EXPECT_TRUE(allclose(scaled_dot_product_attention(few, far, far, {.attn_mask = mask}),
                         defined(few, far, far, mask)));
  }
  const Tensor rows = arange(5, on(i64)).unsqueeze(1), columns = arange(7, on(i64));
  EXPECT_TRUE(allclose(scaled_dot_product_attention(q, k, v, {.is_causal = true}),
                       scaled_dot_product_attention(q, k, v, {.attn_mask = ge(rows, columns)})));
  EXPECT_EQ(scaled_dot_product_attention(q[0][0], k[0][0], v[0][0]).shape(), Shape({5, 6}));
  EXPECT_EQ(scaled_dot_product_attention(q.slice(2, 0, 0), k, v).shape(), Shape({2, 3, 0, 6}));
  const Tensor none = scaled_dot_product_attention(q, k.slice(2, 0, 0), v.slice(2, 0, 0));
  EXPECT_TRUE(equal(none, zeros({2, 3, 5, 6}, on(f64))));
}

/// Several blocks of rows and of heads on the CPU, where a block has 2^22 probabilities: the probabilities of
/// the definition take 52 MB, and its backward four times as much.
TEST(AttentionBlocksTest, AreTheDefinitionInLessMemory) {
  const int64_t heads = 2, tokens = 2560;
  std::vector<Tensor> in, copy;
  for (unsigned i = 0; i < 3; ++i) {
    in.push_back(normal({heads, tokens, 8}, {}, i).set_requires_grad());
    copy.push_back(in[i].detach().set_requires_grad());
  }
  const Tensor mask = normal({heads, 1, tokens}, {}, 5).set_requires_grad(),
               mask_copy = mask.detach().set_requires_grad(), g = normal({heads, tokens, 8}, {}, 7);
  for (const bool causal : {false, true}) {
    for (Tensor t : in) t.zero_grad();
    for (Tensor t : copy) t.zero_grad();
    reset_peak_memory_stats();
    const int64_t before = memory_stats().in_use;
    const Tensor y = causal ? scaled_dot_product_attention(in[0], in[1], in[2], {.is_causal = true})
                            : scaled_dot_product_attention(in[0], in[1], in[2], {.attn_mask = mask});
    y.backward(g);
    EXPECT_LT(memory_stats().peak_in_use - before, 64 << 20);
    Tensor added = mask_copy;
    if (causal) {
      const Tensor at = arange(tokens, {i64});
      added = where(ge(at.unsqueeze(1), at), 0, full({}, -inf));
    }
    const Tensor expected = defined(copy[0], copy[1], copy[2], added);
    expected.backward(g);
    EXPECT_TRUE(allclose(y, expected, 1e-4, 1e-6));
    for (size_t i = 0; i < 3; ++i)
      EXPECT_TRUE(allclose(in[i].grad(), copy[i].grad(), 1e-3, 1e-5)) << i << causal;
  }
  EXPECT_TRUE(allclose(mask.grad(), mask_copy.grad(), 1e-3, 1e-5));
}

struct Sizes {
  int64_t heads, rows, columns, of_key, of_value;
};
const Sizes sizes[] = {{1, 1, 1, 16, 16},     {2, 63, 65, 16, 16}, {1, 64, 64, 32, 32}, {3, 65, 31, 64, 64},
                       {2, 130, 200, 24, 40}, {1, 200, 130, 1, 3}, {2, 17, 5, 65, 64}};

/// Each row of q points at one row of k, whose score is so much larger that the probabilities are 0 and 1.
/// Then all numbers are whole: y is the row of v, the gradient of v sums rows, and the others are 0.
TEST_P(AttentionTest, OneHotProbabilitiesAreExact) {
  for (const auto& [heads, rows, columns, of_key, of_value] : sizes) {
    for (const DType dtype : {f32, bf16, f16}) {
      const int64_t targets = std::min({of_key, columns, rows});
      const TensorOptions whole{i64, device()};
      Ints at(static_cast<size_t>(rows));
      for (int64_t i = 0; i < rows; ++i) at[static_cast<size_t>(i)] = i % targets;
      const Tensor target = ints(at, {rows}), source = arange(columns, whole);
      const auto one_hot = [&, heads = heads, e = of_key](const Tensor& which) {
        const Tensor one = eq(which.unsqueeze(1), arange(e, whole)).to(dtype) * 64;
        return one.expand({heads, which.size(0), e}).clone().set_requires_grad();
      };
      const auto numbers = [&, heads = heads, e = of_value](int64_t n, unsigned seed) {
        return round(3 * normal({heads, n, e}, on(f32), seed)).to(dtype);
      };
      const Tensor q = one_hot(target), k = one_hot(source), v = numbers(columns, 3).set_requires_grad(),
                   g = numbers(rows, 2);
      const Tensor y = scaled_dot_product_attention(q, k, v, {.scale = 1});
      EXPECT_TRUE(equal(y, index_select(v.detach(), 1, target))) << dtype << rows;
      y.backward(g);
      const Tensor chosen = eq(source.unsqueeze(1), target).to(f32);
      EXPECT_TRUE(equal(v.grad(), matmul(chosen, g.to(f32)).to(dtype))) << dtype << rows;
      EXPECT_TRUE(equal(q.grad(), zeros_like(q)) && equal(k.grad(), zeros_like(k))) << dtype << rows;
    }
  }
}

/// Against the definition in f64, in units of the dtype's rounding times the largest number, 1 at least. (On
/// CUDA, f32 is two TF32 numbers, and a product is off by up to 4 units.)
TEST_P(AttentionTest, IsTheDefinitionInEveryDtypeAndSize) {
  for (const auto& [heads, rows, columns, of_key, of_value] : sizes) {
    for (const bool causal : {false, true}) {
      for (const auto& [dtype, unit] :
           {std::pair(f32, 0x1p-24), std::pair(bf16, 0x1p-9), std::pair(f16, 0x1p-12)}) {
        std::vector<Tensor> in{normal({heads, rows, of_key}, on(dtype), 1),
                               normal({heads, columns, of_key}, on(dtype), 2),
                               normal({heads, columns, of_value}, on(dtype), 3)},
            wide;
        for (Tensor& t : in) wide.push_back(t.to(f64).set_requires_grad()), t.set_requires_grad();
        const Tensor g = normal({heads, rows, of_value}, on(dtype), 4);
        const Tensor y = scaled_dot_product_attention(in[0], in[1], in[2], {.is_causal = causal});
        const Tensor expected =
            scaled_dot_product_attention(wide[0], wide[1], wide[2], {.is_causal = causal});
        y.backward(g), expected.backward(g.to(f64));
        const auto error = [unit = unit](const Tensor& got, const Tensor& want) {
          return max(abs(got.to(f64) - want)).item() / (unit * std::max(max(abs(want)).item(), 1.0));
        };
        EXPECT_LT(error(y.detach(), expected.detach()), 32) << dtype << rows << causal;
        for (size_t i = 0; i < 3; ++i)
          EXPECT_LT(error(in[i].grad(), wide[i].grad()), 32) << i << dtype << rows << causal;
      }
    }
  }
}

TEST_P(AttentionTest, SecondGradientsInF32) {
  std::vector<Tensor> in{normal({2, 6, 16}, on(f32), 1).set_requires_grad(),
                         normal({2, 9, 16}, on(f32), 2).set_requires_grad(),
                         normal({2, 9, 16}, on(f32), 3).set_requires_grad()},
      wide;
  for (const Tensor& t : in) wide.push_back(t.detach().to(f64).set_requires_grad());
  const auto second = [](const std::vector<Tensor>& x) {
    const Tensor y = scaled_dot_product_attention(x[0], x[1], x[2], {.is_causal = true});
    Tensor sums;
    for (const Tensor& first : grad({(y * y).sum()}, x, {.create_graph = true})) {
      const Tensor s = (first * first).sum();
      sums = sums.defined() ? sums + s : s;
    }
    return grad({sums}, x);
  };
  const auto got = second(in), want = second(wide);
  for (size_t i = 0; i < 3; ++i) EXPECT_TRUE(allclose(got[i].to(f64), want[i], 1e-4, 1e-3)) << i;
}

TEST_P(AttentionTest, DropoutZeroesProbabilitiesAndRepeats) {
  const Tensor q = zeros({4, 200, 2}, on(f64)), v = ones({4, 200, 1}, on(f64));
  const auto draw = [&] {
    manual_seed(4);
    return scaled_dot_product_attention(q, q, v, {.dropout_p = 0.5});
  };
  const Tensor y = draw();
  EXPECT_TRUE(same_bits(y, draw()));
  EXPECT_NEAR(mean(y).item(), 1, 5 * std::sqrt(1.0 / 160'000));
  EXPECT_GT(vox::std(y).item(), 0.05);
}

TEST_P(AttentionTest, AutocastComputesInSixteenBits) {
  const Tensor q = normal({2, 5, 4}, on(f32)).set_requires_grad();
  Tensor y;
  {
    const auto guard = autocast(bf16);
    y = scaled_dot_product_attention(q, q, q, {.attn_mask = zeros({5, 5}, on(f32))});
  }
  EXPECT_EQ(y.dtype(), bf16);
  EXPECT_TRUE(allclose(y.to(f32), defined(q, q, q), 0.05, 0.05));
  y.sum().backward();
  EXPECT_EQ(q.grad().dtype(), f32);
}

TEST_P(AttentionTest, Errors) {
  const Tensor q = ones({2, 3, 4}, on(f32)), k = ones({2, 5, 4}, on(f32));
  EXPECT_ERRORS(
      ShapeError, scaled_dot_product_attention(q, k, q), scaled_dot_product_attention(q, k.slice(2, 0, 3), k),
      scaled_dot_product_attention(q[0], k, k), scaled_dot_product_attention(q[0][0], q[0][0], q[0][0]),
      scaled_dot_product_attention(q, k, k, {.attn_mask = ones({3, 4}, on(f32))}),
      scaled_dot_product_attention(q, k, k, {.attn_mask = ones({5}, on(f32))}));
  EXPECT_ERRORS(DTypeError, scaled_dot_product_attention(q, k.to(f64), k),
                scaled_dot_product_attention(q.to(i64), k, k),
                scaled_dot_product_attention(q, k, k, {.attn_mask = ones({3, 5}, on(i64))}));
  EXPECT_ERRORS(
      ValueError, scaled_dot_product_attention(Tensor(), k, k),
      scaled_dot_product_attention(q, k, k, {.dropout_p = 1}),
      scaled_dot_product_attention(q, k, k, {.attn_mask = ones({3, 5}, on(f32)), .is_causal = true}));
}

}  // namespace
}  // namespace vox
