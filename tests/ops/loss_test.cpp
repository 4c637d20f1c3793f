#include "tests/support/test.h"

namespace vox {
namespace {

class LossTest : public DeviceTest {
 protected:
  static Tensor make(const Doubles& values, const Shape& shape, DType dtype = f32) {
    return DeviceTest::make(values, shape, dtype);
  }
};
INSTANTIATE_TEST_SUITE_P(, LossTest, devices(), device_name);

TEST_P(LossTest, SquaresAndAbsoluteValues) {
  Tensor x = make({1, 2, 3, 4}, {2, 2}).set_requires_grad();
  const Tensor t = make({1, 4, 0, 3}, {2, 2});
  EXPECT_EQ(mse_loss(x, t, Reduction::none).to_vector<float>(), (Floats{0, 4, 9, 1}));
  EXPECT_EQ(mse_loss(x, t, Reduction::sum).item<float>(), 14);
  EXPECT_EQ(mse_loss(x, t).item<float>(), 3.5);
  EXPECT_EQ(l1_loss(x, t, Reduction::none).to_vector<float>(), (Floats{0, 2, 3, 1}));
  EXPECT_EQ(l1_loss(x, t, Reduction::sum).item<float>(), 6);
  EXPECT_EQ(l1_loss(x, t).item<float>(), 1.5);
  mse_loss(x, t).backward();
  EXPECT_EQ(x.grad().to_vector<float>(), (Floats{0, -1, 1.5, 0.5}));
  x.zero_grad();
  l1_loss(x, t).backward();
  EXPECT_EQ(x.grad().to_vector<float>(), (Floats{0, -0.25, 0.25, 0.25}));
}

// Whole numbers, whose sums are exact in any order: one block and several, of any layout.
TEST_P(LossTest, LongSquaresAndAbsoluteValues) {
  for (const DType dtype : {f32, f64, bf16}) {
    for (const int64_t n : {3, 33, 257, 5000}) {
      const Tensor memory = whole({2, n + 1}, on(dtype)), x = memory.slice(1, 1, n + 1),
                   t = whole({n, 2}, on(dtype)).transpose(0, 1);
      for (const bool copied : {false, true}) {
        const Tensor a = (copied ? x.contiguous() : x).detach().set_requires_grad();
        const Tensor b = (copied ? t.contiguous() : t).detach().set_requires_grad();
        const Tensor d = x.to(f64) - t.to(f64);
        const Tensor squares = mse_loss(a, b, Reduction::sum), magnitudes = l1_loss(a, b, Reduction::sum);
        EXPECT_TRUE(same_bits(squares, sum(d * d).to(dtype))) << dtype << n;
        EXPECT_TRUE(same_bits(magnitudes, sum(abs(d)).to(dtype))) << dtype << n;
        const auto of_squares = grad({squares}, {a, b}), of_magnitudes = grad({magnitudes}, {a, b});
        EXPECT_TRUE(same_bits(of_squares[0] + 0, (2 * d).to(dtype) + 0)) << dtype << n;
        EXPECT_TRUE(same_bits(of_squares[1] + 0, (-2 * d).to(dtype) + 0)) << dtype << n;
        EXPECT_TRUE(same_bits(of_magnitudes[0] + 0, sign(d).to(dtype) + 0)) << dtype << n;
      }
    }
  }
}

TEST_P(LossTest, CrossEntropyByHand) {
  const float log3 = std::log(3.0f);
  Tensor x = make({0, log3, 0, 0}, {2, 2}).set_requires_grad();  // probabilities 1/4 3/4, 1/2 1/2
  const Tensor t = ints({0, 1}, {2});
  expect_near(cross_entropy(x, t, Reduction::none), {std::log(4.0), std::log(2.0)}, 1e-6);
  EXPECT_NEAR(cross_entropy(x, t, Reduction::sum).item<float>(), std::log(8.0), 1e-6);
  EXPECT_NEAR(cross_entropy(x, t).item<float>(), std::log(8.0) / 2, 1e-6);
  cross_entropy(x, t, Reduction::sum).backward();
  expect_near(x.grad(), {-0.75, 0.75, 0.5, -0.5}, 1e-6);  // softmax - one hot
}

TEST_P(LossTest, AnImpossibleOtherClassDoesNoHarm) {
  Tensor x = make({0, -inf}, {1, 2}).set_requires_grad();
  Tensor loss = cross_entropy(x, ints({0}, {1}));
  EXPECT_EQ(loss.item<float>(), 0);
  loss.backward();
  EXPECT_EQ(x.grad().to_vector<float>(), (Floats{0, 0}));
}

TEST_P(LossTest, TheWeightOfAnotherClassDoesNoHarm) {
  Tensor x = make({1, 1, 1, 1, 1, 1}, {3, 2}).set_requires_grad();
  const Tensor loss =
      cross_entropy(x, ints({0, 1, 0}, {3}), {.weight = make({2, nan}, {2}), .reduction = Reduction::none});
  for (const bool recorded : {false, true}) {
    const auto g =
        grad({loss}, {x},
             {.grad_outputs = {make({1, 1, 1}, {3})}, .retain_graph = true, .create_graph = recorded})[0]
            .to_vector<float>();
    EXPECT_EQ(Floats({g[0], g[1], g[4], g[5]}), (Floats{-1, 1, -1, 1})) << recorded;
    EXPECT_TRUE(std::isnan(g[2]) && std::isnan(g[3])) << recorded;
  }
}

TEST_P(LossTest, ClassesOutOfRangeAreRefused) {
  const Tensor x = make({0, 1, 2, 3, 4, 5}, {2, 3});
  for (int64_t bad : {int64_t{-1}, int64_t{3}, std::numeric_limits<int64_t>::max()}) {
    const Tensor t = ints({1, bad}, {2});
    if (device().is_cpu()) {
      EXPECT_THROW(cross_entropy(x, t), ValueError);
      continue;
    }
    const auto each = cross_entropy(x, t, Reduction::none).to_vector<float>();
    EXPECT_FALSE(std::isnan(each[0]));
    EXPECT_TRUE(std::isnan(each[1]));
    EXPECT_TRUE(std::isnan(cross_entropy(x, t).item<float>()));
  }
}

TEST(LossCpuTest, WhereThereIsNoClassTheMessageSaysSo) {
  const auto message = [](const Shape& shape) {
    return message_of([&] { cross_entropy(zeros(shape), from_vector<int64_t>({0, 3}, {2})); });
  };
  EXPECT_EQ(
      message({2, 3}),
      "cross_entropy: target (2,) holds class 3 at element 1; allowed are 0 to 2 and ignore_index = -100");
  EXPECT_EQ(message({2, 0}), "cross_entropy: input (2,0) has no classes, but target (2,) has elements");
}

TEST_P(LossTest, CrossEntropyWithOptionsByHand) {
  const double log2 = std::log(2.0), log3 = std::log(3.0);
  // Probabilities 1/4 3/4 and 1/2 1/2; the third row is ignored.
  Tensor x = make({0, log3, 0, 0, 5, 7}, {3, 2}, f64).set_requires_grad();
  const Tensor t = ints({0, 1, -100}, {3}), w = numbers({2, 5});
  const auto loss = [&](Reduction reduction, double smoothing) {
    return cross_entropy(x, t, {.weight = w, .reduction = reduction, .label_smoothing = smoothing});
  };
  expect_near(loss(Reduction::none, 0), {2 * 2 * log2, 5 * log2, 0}, 1e-12);
  EXPECT_NEAR(loss(Reduction::sum, 0).item<double>(), 9 * log2, 1e-12);
  EXPECT_NEAR(loss(Reduction::mean, 0).item<double>(), 9 * log2 / 7, 1e-12);
  // q of the first row: 2 * (0.8 + 0.1) and 5 * 0.1; of the second: 2 * 0.1 and 5 * 0.9.
  expect_near(loss(Reduction::none, 0.2),
              {1.8 * 2 * log2 + 0.5 * (2 * log2 - log3), 0.2 * log2 + 4.5 * log2, 0}, 1e-12);
  loss(Reduction::mean, 0.2).backward();
  expect_near(x.grad(),
              {(2.3 / 4 - 1.8) / 7, (2.3 * 3 / 4 - 0.5) / 7, (4.7 / 2 - 0.2) / 7, (4.7 / 2 - 4.5) / 7, 0, 0},
              1e-12);
}

TEST_P(LossTest, CrossEntropyWithoutATargetThatCounts) {
  Tensor x = make({0, 1, 2, 3}, {2, 2}).set_requires_grad();
  const Tensor t = ints({1, 1}, {2});
  const CrossEntropyOptions ignore_all{.ignore_index = 1};
  Tensor mean = cross_entropy(x, t, ignore_all);
  EXPECT_TRUE(std::isnan(mean.item<float>()));
  mean.backward();
  EXPECT_EQ(x.grad().to_vector<float>(), (Floats{0, 0, 0, 0}));
  EXPECT_EQ(cross_entropy(x, t, {.ignore_index = 1, .reduction = Reduction::sum}).item<float>(), 0);
  const Tensor nothing = zeros({0, 2, 3}, on(f32));
  EXPECT_TRUE(std::isnan(cross_entropy(nothing, ints({}, {0, 3})).item<float>()));
  EXPECT_EQ(cross_entropy(nothing, ints({}, {0, 3}), Reduction::sum).item<float>(), 0);
}

/// The loss of each row as its definition says it.
Doubles defined(const Tensor& x, const Tensor& t, const CrossEntropyOptions& o) {
  const int64_t classes = x.size(1), inner = x.numel() / x.size(0) / classes;
  const Doubles scores = values(x),
                weight = o.weight.defined() ? values(o.weight) : Doubles(static_cast<size_t>(classes), 1);
  const auto target = t.to_vector<int64_t>();
  Doubles loss;
  for (int64_t row = 0; row < t.numel(); ++row) {
    const auto score = [&](int64_t c) {
      return scores[static_cast<size_t>((row / inner * classes + c) * inner + row % inner)];
    };
    double max = score(0), sum = 0, y = 0;
    for (int64_t c = 1; c < classes; ++c) max = std::max(max, score(c));
    for (int64_t c = 0; c < classes; ++c) sum += std::exp(score(c) - max);
    const int64_t wanted = target[static_cast<size_t>(row)];
    for (int64_t c = 0; c < classes && wanted != o.ignore_index; ++c) {
      const double q =
          (c == wanted ? 1 - o.label_smoothing : 0) + o.label_smoothing / static_cast<double>(classes);
      y += weight[static_cast<size_t>(c)] * q * (max + std::log(sum) - score(c));
    }
    loss.push_back(y);
  }
  return loss;
}

// Rows of every kind that the kernels know: short and long, dense and strided, few and many.
TEST_P(LossTest, CrossEntropyOfManyShapes) {
  const std::vector<Shape> shapes{{700, 2},  {3, 40},     {5, 1300},    {2, 40000},     {2, 2, 700},
                                  {2, 3, 5}, {1, 70, 13}, {2, 5000, 3}, {3, 2, 8, 9, 4}};
  for (const Shape& shape : shapes) {
    for (DType dtype : {f32, f64, bf16}) {
      Shape rows = shape;
      rows.erase(1);
      const Tensor x = normal(shape, on(f64), 3).to(dtype) * 3, t = randint(-1, shape[1], rows, on(i64)),
                   w = rand({shape[1]}, on(f64)).to(dtype);
      for (const CrossEntropyOptions& o :
           {CrossEntropyOptions{.ignore_index = -1, .reduction = Reduction::none},
            CrossEntropyOptions{
                .weight = w, .ignore_index = -1, .reduction = Reduction::none, .label_smoothing = 0.3}}) {
        const double tolerance = dtype == f64 ? 1e-12 : dtype == f32 ? 2e-6 : 8e-3;
        const Tensor leaf = x.detach().set_requires_grad();
        const Tensor loss = cross_entropy(leaf, t, o);
        const std::string what = str(shape, " ", dtype);
        EXPECT_EQ(loss.shape(), rows);
        ASSERT_NO_FATAL_FAILURE(expect_near(loss, defined(x, t, o), tolerance, what));
        // The kernel's gradient against the one composed of ops.
        const Tensor g = normal(rows, on(f64), 5).to(dtype);
        const auto fused = grad({loss}, {leaf}, {.grad_outputs = {g}, .retain_graph = true})[0];
        const auto composed = grad({loss}, {leaf}, {.grad_outputs = {g}, .create_graph = true})[0];
        ASSERT_NO_FATAL_FAILURE(expect_near(fused, values(composed), tolerance, what));
      }
    }
  }
}

TEST_P(LossTest, CrossEntropyOfLargeScores) {
  // The log probabilities of large scores must not lose the digits of their difference.
  const Tensor x = make({30000, 30000.5f, 30001}, {1, 3}), small = make({0, 0.5f, 1}, {1, 3});
  for (double smoothing : {0.0, 0.5}) {
    const CrossEntropyOptions o{.label_smoothing = smoothing};
    EXPECT_EQ(cross_entropy(x, ints({0}, {1}), o).item<float>(),
              cross_entropy(small, ints({0}, {1}), o).item<float>());
  }
}

TEST_P(LossTest, CrossEntropyOfProbabilities) {
  const Tensor x = normal({2, 3, 4}, on(f64)), t = ints({0, 2, 1, 1, 2, 0, 0, 1}, {2, 4});
  Doubles one_hot(24, 0);
  const auto c = t.to_vector<int64_t>();
  for (size_t i = 0; i < 8; ++i) one_hot[(i / 4 * 3 + static_cast<size_t>(c[i])) * 4 + i % 4] = 1;
  const Tensor p = from_vector<double>(one_hot, {2, 3, 4}, device()), w = numbers({1, 2, 3});
  for (double smoothing : {0.0, 0.25}) {
    for (Reduction reduction : {Reduction::none, Reduction::sum}) {
      const CrossEntropyOptions o{.weight = w, .reduction = reduction, .label_smoothing = smoothing};
      EXPECT_LT(max(abs(cross_entropy(x, p, o) - cross_entropy(x, t, o))).item<double>(), 1e-12);
    }
    // The mean is over all elements, whatever the weights.
    const CrossEntropyOptions o{.weight = w, .label_smoothing = smoothing};
    EXPECT_NEAR(
        cross_entropy(x, p, o).item<double>(),
        mean(cross_entropy(x, t, {.weight = w, .reduction = Reduction::none, .label_smoothing = smoothing}))
            .item<double>(),
        1e-12);
  }
  // One sample without a batch.
  EXPECT_EQ(cross_entropy(make({1, 2}, {2}), ints({1}, {}), Reduction::none).shape(), Shape());
  EXPECT_EQ(cross_entropy(make({1, 2}, {2}), ints({1}, {})).item<float>(),
            cross_entropy(make({1, 2}, {1, 2}), ints({1}, {1})).item<float>());
}

TEST_P(LossTest, BinaryCrossEntropyByHand) {
  const double log3 = std::log(3.0);  // sigmoid 3/4
  Tensor x = numbers({log3, log3, 0, 800, -800}).set_requires_grad();
  const Tensor t = numbers({1, 0, 0.5, 0, 0});
  expect_near(binary_cross_entropy_with_logits(x, t, {.reduction = Reduction::none}),
              {-std::log(0.75), -std::log(0.25), std::log(2.0), 800, 0}, 1e-15);
  binary_cross_entropy_with_logits(x, t, {.reduction = Reduction::sum}).backward();
  expect_near(x.grad(), {-0.25, 0.75, 0, 1, 0}, 1e-15);  // sigmoid(x) - t
  const Tensor w = numbers({2}), positive = numbers({3});
  const BinaryCrossEntropyOptions weighted{.weight = w, .pos_weight = positive, .reduction = Reduction::none};
  expect_near(binary_cross_entropy_with_logits(x, t, weighted).slice(0, 0, 3),
              {-2 * 3 * std::log(0.75), -2 * std::log(0.25), 2 * 2 * std::log(2.0)}, 1e-14);
  // Beyond softplus's own threshold, and where the loss is small, digits remain.
  const Tensor far = numbers({-25});
  EXPECT_NEAR(binary_cross_entropy_with_logits(far, ones_like(far)).item<double>() - 25, std::exp(-25.0),
              4e-15);
  EXPECT_NEAR(
      binary_cross_entropy_with_logits(make({50}, {1}), make({1}, {1})).item<float>() / std::exp(-50.0), 1,
      1e-5);
}

TEST_P(LossTest, BinaryCrossEntropyOfProbabilitiesByHand) {
  Tensor x = numbers({0.75, 0.75, 0, 0, 1}).set_requires_grad();
  Tensor t = numbers({1, 0, 1, 0, 0}).set_requires_grad();
  expect_near(binary_cross_entropy(x, t, {.reduction = Reduction::none}),
              {-std::log(0.75), -std::log(0.25), 100, 0, 100}, 1e-14);  // logarithms end at -100
  EXPECT_NEAR(binary_cross_entropy(x, t).item<double>(), (200 - std::log(0.75 * 0.25)) / 5, 1e-13);
  binary_cross_entropy(x, t, {.weight = numbers({2}), .reduction = Reduction::sum}).backward();
  const Doubles of_x{-2 / 0.75, 2 / 0.25, -2e12, 0, 2e12},  // 2 (x - t) / max(x (1 - x), 1e-12)
      of_t{2 * std::log(0.25 / 0.75), 2 * std::log(0.25 / 0.75), 200, 200, -200};
  expect_near(x.grad(), of_x, 1e-14);
  expect_near(t.grad(), of_t, 1e-14);
  const Tensor p = numbers({0.2, 0.5, 0.7}).set_requires_grad(),
               soft = numbers({0.9, 0.1, 0.6}).set_requires_grad();
  const auto loss = [](const std::vector<Tensor>& in) { return binary_cross_entropy(in[0], in[1]); };
  expect_gradients(loss, {p, soft});
  const Tensor beyond = numbers({0.5, 1.5});
  if (device().is_cpu())
    EXPECT_THROW(binary_cross_entropy(beyond, beyond), ValueError);
  else
    EXPECT_TRUE(std::isnan(binary_cross_entropy(beyond, beyond).item<double>()));
  EXPECT_THROW(binary_cross_entropy(x, t, {.pos_weight = t}), ValueError);
  EXPECT_EQ(
      binary_cross_entropy(zeros({0}, on(f32)), zeros({0}, on(f32)), {.reduction = Reduction::sum}).item(),
      0);
}

TEST_P(LossTest, SmoothL1AndHuberByHand) {
  Tensor x = make({0.5, -3, 2, 0}, {4}).set_requires_grad();
  const Tensor t = zeros({4}, on(f32));
  EXPECT_EQ(smooth_l1_loss(x, t, Reduction::none).to_vector<float>(), (Floats{0.125, 2.5, 1.5, 0}));
  EXPECT_EQ(smooth_l1_loss(x, t, Reduction::none, 2).to_vector<float>(), (Floats{0.0625, 2, 1, 0}));
  EXPECT_EQ(smooth_l1_loss(x, t, Reduction::none, 0).to_vector<float>(), (Floats{0.5, 3, 2, 0}));
  EXPECT_EQ(huber_loss(x, t, Reduction::none, 2).to_vector<float>(), (Floats{0.125, 4, 2, 0}));
  EXPECT_EQ(huber_loss(x, t, Reduction::sum, 2).item<float>(), 6.125f);
  EXPECT_EQ(huber_loss(x, t, Reduction::mean, 2).item<float>(), 6.125f / 4);
  smooth_l1_loss(x, t, Reduction::sum, 2).backward();
  EXPECT_EQ(x.grad().to_vector<float>(), (Floats{0.25, -1, 1, 0}));
  x.zero_grad();
  huber_loss(x, t, Reduction::sum, 2).backward();
  EXPECT_EQ(x.grad().to_vector<float>(), (Floats{0.5, -2, 2, 0}));
  Tensor far = make({inf}, {1}).set_requires_grad();
  smooth_l1_loss(far, make({0}, {1})).backward();
  EXPECT_EQ(far.grad().item<float>(), 1);
}

TEST_P(LossTest, HuberIsLinearFromDeltaOn) {
  Tensor x = make({-2, -1, -0.5, 0, 0.5, 1, 2}, {7}).set_requires_grad();
  const Tensor t = zeros({7}, x.detach().options());
  for (const auto loss : {huber_loss, smooth_l1_loss}) {
    const Tensor slope = grad({loss(x, t, Reduction::sum, 1)}, {x}, {.create_graph = true})[0];
    EXPECT_EQ(slope.to_vector<float>(), (Floats{-1, -1, -0.5, 0, 0.5, 1, 1}));
    EXPECT_EQ(grad({sum(slope)}, {x})[0].to_vector<float>(), (Floats{0, 0, 1, 1, 1, 0, 0}));
  }
}

TEST_P(LossTest, AnInfiniteGradientKeepsItsSign) {
  const Doubles values{-3, -1, -0.5, 0.5, 1, 3, 30};
  const Shape shape{7};
  const auto slopes = [&](const auto& loss) {
    Tensor x = make(values, shape).set_requires_grad();
    loss(x, zeros(shape, x.detach().options())).backward(full(shape, inf, x.detach().options()));
    return testing::values(x.grad());
  };
  const auto none = Reduction::none;
  const Doubles odd{-inf, -inf, -inf, inf, inf, inf, inf};
  EXPECT_EQ(slopes([&](const Tensor& x, const Tensor& t) { return huber_loss(x, t, none); }), odd);
  EXPECT_EQ(slopes([&](const Tensor& x, const Tensor& t) { return smooth_l1_loss(x, t, none); }), odd);
  const auto cross_entropy_with = [&](double target) {
    return slopes([&](const Tensor& x, const Tensor& t) {
      return binary_cross_entropy_with_logits(x, t + target, {.reduction = none});
    });
  };
  EXPECT_EQ(cross_entropy_with(0), Doubles(7, inf));
  EXPECT_EQ(cross_entropy_with(1), Doubles(7, -inf));
  EXPECT_EQ(cross_entropy_with(0.3), (Doubles{-inf, -inf, inf, inf, inf, inf, inf}));
}

TEST_P(LossTest, SoftDiceByHand) {
  const Tensor p = make({1, 0.5, 0, 0.5}, {2, 2}), t = make({1, 1, 0, 0}, {2, 2});
  EXPECT_NEAR(soft_dice_loss(p, t).item<float>(), 1 - (2 * 1.5 + 1) / (4 + 1), 1e-6);
  EXPECT_NEAR(soft_dice_loss(p, t, {}, 0).item<float>(), 1 - 2 * 1.5 / 4, 1e-6);
  // One loss per row: 1 - (3 + 1) / (3.5 + 1) and 1 - (0 + 1) / (0.5 + 1).
  EXPECT_NEAR(soft_dice_loss(p, t, {1}).item<float>(), (1 - 4 / 4.5 + 1 - 1 / 1.5) / 2, 1e-6);
}

TEST_P(LossTest, Errors) {
  const Tensor x = make({1, 2, 3, 4, 5, 6}, {2, 3});
  EXPECT_ERRORS(ShapeError, mse_loss(x, make({1, 2, 3}, {3})), l1_loss(x, x.reshape({3, 2})),
                cross_entropy(x, ints({0, 1, 2}, {3})), cross_entropy(make({1}, {}), ints({0}, {})));
  EXPECT_ERRORS(DTypeError, mse_loss(x, x.to(f64)), cross_entropy(x, make({0, 1}, {2})));
  EXPECT_ERRORS(ValueError, mse_loss(x, Tensor()), cross_entropy(Tensor(), ints({0, 1}, {2})));
  const Tensor t = ints({0, 1}, {2});
  EXPECT_THROW(cross_entropy(x, t, {.weight = make({1, 2}, {2})}), ShapeError);
  EXPECT_THROW(cross_entropy(x, t, {.weight = make({1, 2, 3}, {3}).to(f64)}), DTypeError);
  const Tensor trained = make({1, 2, 3}, {3}).set_requires_grad();
  EXPECT_THROW(cross_entropy(x, t, {.weight = trained}), GradError);  // PyTorch: has no derivative
  EXPECT_NO_THROW(cross_entropy(x, t, {.weight = trained.detach()}));
  EXPECT_ERRORS(ValueError, cross_entropy(x, t, {.label_smoothing = 1.5}),
                cross_entropy(x, t, {.label_smoothing = nan}), smooth_l1_loss(x, x, Reduction::mean, -1),
                huber_loss(x, x, Reduction::mean, 0), soft_dice_loss(x, x, {}, -1));
  EXPECT_THROW(cross_entropy(x, x.to(f64)), DTypeError);
  EXPECT_ERRORS(ShapeError, binary_cross_entropy_with_logits(x, make({1, 2, 3}, {3})),
                binary_cross_entropy_with_logits(x, x, {.weight = make({1, 2}, {2})}),
                binary_cross_entropy_with_logits(x, x, {.pos_weight = zeros({4, 2, 3}, x.options())}),
                soft_dice_loss(x, x.reshape({3, 2})));
}

// MONAI's formulas, evaluated in Python for scores sin(1 + 5n + 3c + s) of 2 samples, 3 classes and 4 cells.

class SegmentationLossTest : public DeviceTest {
 protected:
  Tensor scores(DType dtype = f64) {
    Doubles x;
    for (int n = 0; n < 2; ++n)
      for (int c = 0; c < 3; ++c)
        for (int s = 0; s < 4; ++s) x.push_back(std::sin(1 + 5 * n + 3 * c + s));
    return from_vector(x, {2, 3, 2, 2}).to(dtype).to(device());
  }
  Tensor classes() { return ints({0, 1, 1, 0, 0, 0, 2, 1}, {2, 2, 2}); }
  void expect(const Tensor& loss, double expected) { EXPECT_NEAR(loss.item<double>(), expected, 1e-12); }
};
INSTANTIATE_TEST_SUITE_P(, SegmentationLossTest, devices(), device_name);

TEST_P(SegmentationLossTest, DiceAndItsFamilyAreMonais) {
  const Tensor x = scores(), t = classes();
  expect(dice_loss(x, t, {.sigmoid = true}), 0.6547479402066639);
  expect(dice_loss(x, t, {.softmax = true, .include_background = false, .squared_pred = true, .batch = true}),
         0.6789515312878331);
  expect(dice_loss(x, t, {.softmax = true, .alpha = 1, .beta = 1, .smooth_nr = 0.5, .smooth_dr = 0.25}),
         0.7459696789003343);  // Jaccard
  expect(dice_loss(x, t, {.softmax = true, .alpha = 0.3, .beta = 0.7, .smooth_nr = 0.2, .smooth_dr = 0.2}),
         0.6846961155216427);  // Tversky, smooth 0.1
  expect(dice_loss(x, t, {.softmax = true, .generalized = true}), 0.7318737263515824);
  expect(dice_loss(x, t, {.softmax = true, .batch = true, .generalized = true}), 0.7605768316058134);
  const Tensor mask = make({1, 1, 0, 1, 0, 1, 1, 1}, {2, 1, 2, 2});
  expect(dice_loss(x, t, {.softmax = true, .mask = mask}), 0.7456902712563118);
}

TEST_P(SegmentationLossTest, DiceAndCrossEntropyAreNnunets) {
  const Tensor x = scores(), t = classes();
  expect(dice_loss(x, t, {.softmax = true, .include_background = false, .batch = true}) + cross_entropy(x, t),
         2.2320794970967377);
}

TEST_P(SegmentationLossTest, FocalIsMonais) {
  const Tensor x = scores(), t = classes();
  expect(focal_loss(x, t), 0.3111152974707851);
  expect(focal_loss(x, t, {.gamma = 1.5, .alpha = 0.25, .include_background = false}), 0.22541918403628086);
  expect(focal_loss(x, t, {.softmax = true}), 0.3026641055930495);
  expect(focal_loss(x, t, {.softmax = true, .include_background = false}), 0.3032330853967828);
  expect(focal_loss(x, t, {.gamma = 0, .softmax = true}) * 3, cross_entropy(x, t).item());
  const Tensor far = full({1, 2, 1}, 1000, on(f64)).set_requires_grad();
  const Tensor loss = focal_loss(far, ones({1, 2, 1}, on(f64)), {.gamma = 0.5});
  EXPECT_EQ(grad({loss}, {far})[0].to_vector<double>(), (Doubles{0, 0}));
}

TEST_P(SegmentationLossTest, ClassesMayHaveAChannelOrBeMasks) {
  const Tensor x = scores(), t = classes(), masks = one_hot(t, 3).permute({0, 3, 1, 2}).to(f64);
  for (const bool batch : {false, true}) {
    const DiceOptions o{.softmax = true, .batch = batch, .reduction = Reduction::none};
    const Tensor each = dice_loss(x, t, o);
    EXPECT_EQ(each.shape(), batch ? Shape({3}) : Shape({2, 3}));
    EXPECT_TRUE(same_bits(each, dice_loss(x, t.unsqueeze(1), o)));
    EXPECT_TRUE(same_bits(each, dice_loss(x, masks, o)));
  }
  EXPECT_TRUE(same_bits(focal_loss(x, t), focal_loss(x, masks)));
  // A class that does not exist belongs to none.
  const Tensor ignored = where(eq(t, 2), -1, t);
  const auto each =
      dice_loss(x, ignored, {.softmax = true, .batch = true, .smooth_nr = 0, .reduction = Reduction::none});
  EXPECT_EQ(each.to_vector<double>()[2], 1);
}

TEST_P(SegmentationLossTest, SixteenBitsAreComputedInF32) {
  const Tensor narrow = scores(bf16), t = classes();
  EXPECT_TRUE(same_bits(dice_loss(narrow, t, {.softmax = true}),
                        dice_loss(narrow.to(f32), t, {.softmax = true}).to(bf16)));
  EXPECT_TRUE(same_bits(focal_loss(narrow, t), focal_loss(narrow.to(f32), t).to(bf16)));
}

TEST_P(SegmentationLossTest, Errors) {
  const Tensor x = scores(), t = classes();
  EXPECT_ERRORS(ValueError, dice_loss(x, t, {.sigmoid = true, .softmax = true}),
                dice_loss(x, t, {.alpha = -1}), focal_loss(x, t, {.gamma = -1}),
                focal_loss(x, t, {.alpha = 0.5, .softmax = true}));
  EXPECT_ERRORS(ShapeError, dice_loss(x, t.slice(1, 0, 1)), dice_loss(x, x.slice(1, 0, 2)),
                dice_loss(x.slice(1, 0, 1), t, {.include_background = false}),
                dice_loss(x, t, {.mask = ones({4, 2, 3, 2, 2}, x.options())}), focal_loss(x[0][0][0], t));
  EXPECT_THROW(dice_loss(x, x.to(f32)), DTypeError);
}

}  // namespace
}  // namespace vox
