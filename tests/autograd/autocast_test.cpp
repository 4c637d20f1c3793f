#include "tests/support/test.h"

namespace vox {
namespace {

class AutocastTest : public DeviceTest {
 protected:
  Tensor make(const Shape& shape, DType dtype = f32, unsigned seed = 1) {
    return normal(shape, on(f64), seed).to(dtype);
  }
};
INSTANTIATE_TEST_SUITE_P(, AutocastTest, devices(), device_name);

void expect_dtypes(DType dtype, const std::same_as<Tensor> auto&... results) {
  int number = 0;
  for (const Tensor& y : {results...}) EXPECT_EQ(y.dtype(), dtype) << "result " << number++;
}

TEST_P(AutocastTest, OpsChooseTheDtypeOfTheirList) {
  const Tensor x = make({2, 4, 4, 4, 4}), half = x.to(bf16), w = make({4, 4, 3, 3, 3}), b = make({4}),
               m = make({4, 4}), classes = zeros({2, 4, 4, 4}, on(i64));
  for (DType low : {bf16, f16}) {
    const auto guard = autocast(low);
    EXPECT_EQ(autocast_dtype(), low);
    // 16 bits, whatever the operands are.
    expect_dtypes(low, conv3d(x, w, b, {.padding = 1}), conv3d(half, w, b), conv_transpose3d(x, w, b),
                  conv2d(x.select(2, 0), w.select(2, 0), b),
                  conv_transpose1d(x.select(2, 0).select(2, 0), w.select(2, 0).select(2, 0), b),
                  matmul(m, m.to(bf16)),
                  nn::Linear({.in_features = 4, .out_features = 3, .tensor = x.options()})(m));
    for (const Tensor& t : {x, half})
      expect_dtypes(f32, softmax(t, 1), log_softmax(t, 1), logsumexp(t), exp(t), log(t), pow(t, 2), pow(t, t),
                    rsqrt(t), softplus(t), sum(t), norm(t), layer_norm(t, {4}), group_norm(t, 2),
                    mse_loss(t, x), l1_loss(t, t), huber_loss(t, t), smooth_l1_loss(x, t),
                    binary_cross_entropy_with_logits(t, x), cross_entropy(t, classes),
                    cross_entropy(t, softmax(t, 1)), soft_dice_loss(t, x));
    // The wider one.
    expect_dtypes(f32, x + half, half - x, x * half, half * x, half / x, x / half, where(gt(x, 0), half, x),
                  cat({half, x}, 0), stack({x, half}, 0), maximum(x, half), minimum(half, x),
                  clamp(half, x, {}), clamp(x, {}, half), clamp(half, half, x));
    // Unchanged.
    const BatchNormOptions training{.training = true};
    expect_dtypes(bf16, half + half, batch_norm(half, {}, {}, b, b, training), relu(half),
                  max_pool3d(half, {.kernel_size = 2}));
    expect_dtypes(f32, batch_norm(x, {}, {}, b, b, training));
    // f64 is left alone.
    const Tensor wide = m.to(f64);
    EXPECT_EQ(matmul(wide, wide).dtype(), f64);
    EXPECT_EQ(sum(wide).dtype(), f64);
    EXPECT_THROW(matmul(wide, m), DTypeError);
  }
  EXPECT_EQ(matmul(m, m).dtype(), f32);
  EXPECT_EQ(softmax(half, 1).dtype(), bf16);
  EXPECT_THROW(x + half, DTypeError);
}

TEST_P(AutocastTest, IsTheSameAsCastingByHand) {
  nn::Conv3d conv({.in_channels = 2, .out_channels = 4, .kernel_size = 3, .tensor = on(f32)});
  const Tensor x = make({2, 2, 5, 5, 5}), target = randint(0, 4, {2, 3, 3, 3}, on(i64));
  const std::vector<Tensor> parameters{conv.weight, conv.bias};
  Tensor automatic;
  {
    const auto guard = autocast();
    automatic = cross_entropy(relu(conv(x)), target);
  }
  const Tensor by_hand =
      cross_entropy(relu(conv3d(x.to(bf16), conv.weight.to(bf16), conv.bias.to(bf16))).to(f32), target);
  EXPECT_TRUE(same_bits(automatic, by_hand));
  const auto a = grad({automatic}, parameters), b = grad({by_hand}, parameters);
  for (size_t i = 0; i < a.size(); ++i) {
    EXPECT_EQ(a[i].dtype(), f32);
    EXPECT_TRUE(same_bits(a[i], b[i]));
  }
}

TEST_P(AutocastTest, CastsAParameterOnce) {
  Tensor w = make({4, 4}).set_requires_grad();
  const auto guard = autocast();
  const Tensor first = detail::autocast_operand(w);
  EXPECT_EQ(detail::autocast_operand(w).impl(), first.impl());
  EXPECT_NE(detail::autocast_operand(w * 1).impl(), detail::autocast_operand(w * 1).impl());
  {
    const auto off = no_grad();
    EXPECT_FALSE(detail::autocast_operand(w).requires_grad());
    w.mul_(2);
  }
  const Tensor second = detail::autocast_operand(w);  // the parameter has changed
  EXPECT_TRUE(same_bits(second.detach(), w.detach().to(bf16)));
  EXPECT_TRUE(second.requires_grad());
  EXPECT_EQ(detail::autocast_operand(w).impl(), second.impl());
  // What was cast under no_grad() must not be taken for the recorded cast.
  Tensor v = make({4, 4}).set_requires_grad();
  {
    const auto off = no_grad();
    matmul(v, v);
  }
  EXPECT_TRUE(grad({sum(matmul(v, v))}, {v})[0].defined());
}

TEST_P(AutocastTest, GuardsNestAndHoldForTheirThread) {
  const Tensor m = make({4, 4});
  const auto outer = autocast(bf16);
  {
    const auto inner = autocast(f16);
    EXPECT_EQ(matmul(m, m).dtype(), f16);
    const auto off = autocast(f16, false);
    EXPECT_EQ(matmul(m, m).dtype(), f32);
  }
  EXPECT_EQ(matmul(m, m).dtype(), bf16);
  std::thread([&] { EXPECT_EQ(autocast_dtype(), std::nullopt); }).join();
  EXPECT_THROW(static_cast<void>(autocast(f32)), DTypeError);
  EXPECT_EQ(autocast_dtype(), bf16);
}

TEST_P(AutocastTest, GuardsEndInAnyOrder) {
  Tensor w = make({4, 4}).set_requires_grad();
  std::optional<AutocastGuard> a, b, c;
  a.emplace(bf16), b.emplace(f16), c.emplace(bf16);
  a.reset();  // the outermost
  EXPECT_EQ(matmul(w, w).dtype(), bf16);
  c.reset();
  EXPECT_EQ(matmul(w, w).dtype(), f16);
  b.reset();
  EXPECT_EQ(autocast_dtype(), std::nullopt);
  EXPECT_EQ(matmul(w, w).dtype(), f32);
  a.emplace(bf16), b.emplace(f16), c.emplace(bf16);
  b.reset();  // between two others
  c.reset();
  EXPECT_EQ(autocast_dtype(), bf16);
  // One of another thread, which has ended.
  std::thread([&] { b.emplace(f16); }).join();
  b.reset();
  EXPECT_EQ(autocast_dtype(), bf16);
}

TEST_P(AutocastTest, ABackwardInsideTheScopeIsUnaffected) {
  Tensor w = make({4, 4}).set_requires_grad();
  const Tensor x = make({4, 4}, f32, 2);
  const auto guard = autocast();
  const auto loss = [&] { return mean(softplus(matmul(x, w)) * x); };
  const Tensor inside = grad({loss()}, {w}, {.create_graph = true})[0];
  const Tensor y = loss();
  const auto off = autocast(bf16, false);
  EXPECT_TRUE(same_bits(inside.detach(), grad({y}, {w}, {.create_graph = true})[0].detach()));
  // Nor is that of a graph from outside, whose products are of f32.
  const Tensor outside = sum(matmul(x, w) * x), expected = grad({outside}, {w}, {.retain_graph = true})[0];
  const auto on = autocast();
  w.register_hook([](const Tensor& g) { EXPECT_EQ(matmul(g, g).dtype(), f32); });
  EXPECT_TRUE(same_bits(grad({outside}, {w})[0], expected));
}

}  // namespace
}  // namespace vox
