#include "tests/support/test.h"

// MONAI's formulas, evaluated in Python for scores sin(1 + 5n + 3c + s) of 2 samples, 3 classes and 4 cells.

namespace vox {
namespace {

class SegmentationLossTest : public DeviceTest {
 protected:
  Tensor scores(DType dtype = f64) {
    std::vector<double> x;
    for (int n = 0; n < 2; ++n)
      for (int c = 0; c < 3; ++c)
        for (int s = 0; s < 4; ++s) x.push_back(std::sin(1 + 5 * n + 3 * c + s));
    return from_vector(x, {2, 3, 2, 2}).to(dtype).to(device());
  }
  Tensor classes() { return from_vector<int64_t>({0, 1, 1, 0, 0, 0, 2, 1}, {2, 2, 2}, device()); }
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
  const Tensor mask = from_vector<double>({1, 1, 0, 1, 0, 1, 1, 1}, {2, 1, 2, 2}, device());
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
  const Tensor far = full({1, 2, 1}, 1000, {f64, device()}).set_requires_grad();
  const Tensor loss = focal_loss(far, ones({1, 2, 1}, {f64, device()}), {.gamma = 0.5});
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
  EXPECT_ERRORS(DTypeError, dice_loss(x, x.to(f32)), dice_loss(t, t));
}

}  // namespace
}  // namespace vox
