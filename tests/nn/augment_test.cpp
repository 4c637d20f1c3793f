#include "tests/support/test.h"

namespace vox::data {
namespace {

constexpr double quarter = std::numbers::pi / 2;

class Augment : public DeviceTest {
 protected:
  Generator random{1};
};
INSTANTIATE_TEST_SUITE_P(, Augment, devices(), device_name);

TEST_P(Augment, ForegroundCropsAreAroundAVoxelOfAnyClass) {
  Tensor label = zeros({1, 9, 10, 11}, on(i64)), scan = counting({2, 9, 10, 11}, f32);
  label.select(1, 0).select(1, 9).select(1, 10).fill_(7);  // one voxel, in a corner
  label.slice(1, 4, 6).fill_(2);                           // 220 of them
  std::set<int64_t> centres;
  for (int i = 0; i < 60; ++i) {
    const Sample s = random_foreground_crop({scan, label}, {3, 5, 5}, {.foreground = 1}, random);
    EXPECT_EQ(s[0].shape(), (Shape{2, 3, 5, 5}));
    EXPECT_EQ(max(s[0].select(0, 1) - s[0].select(0, 0)).item(), 990);
    const bool has_corner = max(s[1]).item<int64_t>() == 7;
    EXPECT_TRUE(has_corner || s[1].select(0, 0)[1].contiguous().to_vector<int64_t>()[12] == 2);
    centres.insert(has_corner ? 7 : 2);
  }
  EXPECT_EQ(centres, (std::set<int64_t>{2, 7})) << "both classes, although one has a single voxel";
  for (int i = 0; i < 20; ++i) {
    const Sample s =
        random_foreground_crop({scan, label}, 1, {.foreground = 0, .else_background = true}, random);
    EXPECT_EQ(s[1].item<int64_t>(), 0);
  }
  EXPECT_EQ(random_foreground_crop({scan, label * 0}, 9, {.foreground = 1}, random)[0].shape(),
            (Shape{2, 9, 9, 9}));
}

TEST_P(Augment, TurnsByQuarters) {
  const Tensor scan = counting({1, 3, 3, 3}, f32), label = counting({3, 3, 3}, f32).to(i64);
  std::set<Doubles> seen;
  for (int i = 0; i < 300; ++i) {
    const Sample s = random_turn({scan, label}, random);
    EXPECT_TRUE(same_bits(s[0][0].contiguous(), s[1].contiguous().to(f32)));
    EXPECT_EQ(s[1].contiguous().to_vector<int64_t>()[13], 13) << "the centre stays";
    seen.insert(values(s[1].contiguous()));
  }
  EXPECT_EQ(seen.size(), 10u);  // one, three half turns and six quarter turns
  seen.clear();
  for (int i = 0; i < 50; ++i)
    seen.insert(values(random_turn({counting({1, 2, 3}, f32)}, random, {1, 2})[0]));
  EXPECT_EQ(seen, (std::set<Doubles>{{0, 1, 2, 3, 4, 5}, {5, 4, 3, 2, 1, 0}}));
}

TEST_P(Augment, RotatesByHand) {
  const Tensor scan = counting({1, 2, 3, 3}, f32), label = counting({2, 3, 3}, f32).to(u8);
  const Sample s =
      random_spatial({scan, label}, {.rotation = {{{quarter, quarter}, {0, 0}, {0, 0}}}}, random);
  const Doubles turned{6, 3, 0, 7, 4, 1, 8, 5, 2, 15, 12, 9, 16, 13, 10, 17, 14, 11};
  EXPECT_EQ(values(s[1]), turned);
  EXPECT_EQ(s[1].dtype(), u8);
  EXPECT_TRUE(allclose(s[0], s[1].to(f32).unsqueeze(0), 1e-4, 1e-4));
  // Voxels twice as long along H: a quarter turn reads H at half the steps of W.
  const Tensor wide = counting({1, 1, 5}, f32);
  const Sample scaled = random_spatial(
      {wide}, {.size = {1, 5, 1}, .rotation = {{{quarter, quarter}, {0, 0}, {0, 0}}}, .spacing = {1, 2, 1}},
      random);
  EXPECT_TRUE(allclose(scaled[0].flatten(), from_vector<float>({0, 0, 2, 4, 0}, 5, device()), 0, 1e-4));
}

TEST_P(Augment, ZoomsByHand) {
  const auto zoomed = [&](double zoom, OptionalTriple size) {
    return values(
        random_spatial({counting({1, 1, 4}, f32)}, {.size = size, .zoom = {zoom, zoom}}, random)[0]);
  };
  EXPECT_EQ(zoomed(2, {}), (Doubles{0.75, 1.25, 1.75, 2.25}));
  EXPECT_EQ(zoomed(1, {1, 1, 2}), (Doubles{1, 2}));
  EXPECT_EQ(zoomed(1, {1, 1, 6}), (Doubles{0, 0, 1, 2, 3, 0}));
  const Tensor precise = full({1, 1, 4}, 1 + 0x1p-40, on(f64));
  EXPECT_EQ(values(random_spatial({precise}, {.zoom = {2, 2}}, random)[0]), Doubles(4, 1 + 0x1p-40));
  const int64_t large = (int64_t{1} << 24) + 1;  // which f32 rounds
  const Tensor labels = full({1, 1, 4}, large, on(i64));
  EXPECT_EQ(random_spatial({labels}, {.zoom = {2, 2}}, random)[0].to_vector<int64_t>(), Ints(4, large));
  const Sample same{counting({1, 1, 4}, f32)};
  EXPECT_EQ(random_spatial(same, {}, random)[0].impl(), same[0].impl());
}

TEST_P(Augment, DeformsByAboutTheDeviation) {
  const Tensor place = arange(32, on(f32)).reshape({1, 1, 32}).expand({24, 28, 32}).contiguous();
  const Tensor moved =
      random_spatial(
          {place}, {.elastic = {2, 2}, .elastic_distance = 4, .padding = GridSampleOptions::Padding::border},
          random)[0] -
      place;
  const double deviation = vox::std(moved.slice(2, 8, 24)).item();
  EXPECT_GT(deviation, 0.8);  // between the points it is less than at them
  EXPECT_LT(deviation, 2.2);
  EXPECT_LT(max(abs(moved.slice(2, 9, 24) - moved.slice(2, 8, 23))).item(), 5) << "it is continuous";
}

TEST_P(Augment, BlursByHand) {
  Tensor x = zeros({1, 9, 9, 9}, on(f64));
  x[0][4][4][4].fill_(1);
  const Tensor y = gaussian_blur(x, {0.5, 0, 1});
  const auto bell = [](double at, double sigma) { return std::exp(-at * at / sigma / sigma / 2); };
  double total_d = 0, total_w = 0;
  for (int i = -4; i <= 4; ++i) total_w += bell(i, 1), total_d += std::abs(i) <= 2 ? bell(i, 0.5) : 0;
  EXPECT_NEAR(y[0][5][4][2].item(), bell(1, 0.5) / total_d * bell(2, 1) / total_w, 1e-12);
  EXPECT_EQ(y[0][4][3][4].item(), 0);
  EXPECT_TRUE(
      allclose(gaussian_blur(full({2, 3, 1, 4}, 7, on(f32)), {1, 2, 3}), full({2, 3, 1, 4}, 7, on(f32))));
  EXPECT_TRUE(same_bits(random_blur(x, {0.5, 0.5}, random), gaussian_blur(x, {0.5, 0.5, 0.5})));
}

TEST_P(Augment, GammaAndContrastByHand) {
  const Tensor x = make({-2, 0, 2}, {1, 1, 3});
  EXPECT_EQ(values(random_gamma(x, {.gamma = {2, 2}}, random)), (Doubles{-2, -1, 2}));
  EXPECT_EQ(values(random_gamma(x, {.gamma = {2, 2}, .invert = true}, random)), (Doubles{-2, 1, 2}));
  const Tensor kept = random_gamma(x, {.gamma = {2, 2}, .keep_statistics = true}, random);
  EXPECT_NEAR(mean(kept).item(), 0, 1e-12);
  EXPECT_NEAR(vox::std(kept).item(), 2, 1e-12);
  EXPECT_EQ(values(random_contrast(x, {0.5, 0.5}, random)), (Doubles{-1, 0, 1}));
  EXPECT_EQ(values(random_contrast(x, {3, 3}, random)), (Doubles{-2, 0, 2})) << "limited";
  int below = 0;
  for (int i = 0; i < 200; ++i) below += random_contrast(x, {0.9, 5}, random)[0][0][2].item() < 2;
  EXPECT_NEAR(below, 100, 35) << "half of the factors are below 1";
}

TEST_P(Augment, BiasFieldsAreSmooth) {
  const Tensor x = ones({2, 5, 6, 7}, on(f64));
  EXPECT_EQ(values(random_bias_field(x, {0, 0}, random)), Doubles(420, 1));
  const Tensor constant = random_bias_field(x, {0.5, 0.5}, random, 0);
  EXPECT_NEAR(min(constant).item(), std::exp(0.5), 1e-12);
  // With order 1 and coefficients 0.5 the exponent is (1 + d + h + w) / 2.
  const Tensor linear = log(random_bias_field(x, {0.5, 0.5}, random, 1));
  EXPECT_NEAR(linear[1][4][5][6].item(), 2, 1e-12);
  EXPECT_NEAR(linear[0][0][5][3].item(), 0.5, 1e-12);
  EXPECT_GT(vox::std(random_bias_field(x, {-0.5, 0.5}, random)).item(), 0.01);
}

TEST_P(Augment, LowResolutionByHand) {
  const Tensor x = counting({1, 1, 1, 4}, f32);
  EXPECT_EQ(values(random_low_resolution(x, {0.5, 0.5}, random)), (Doubles{0, 0.5, 1.5, 2}));
  EXPECT_EQ(values(random_low_resolution(x, {1, 1}, random)), values(x));
}

/// What nnU-Net does to a patch for training. `scan` is (C, D, H, W).
Sample like_nnunet(const Sample& example, Triple patch, Generator& random) {
  const double angle = std::numbers::pi / 6;
  const bool rotates = chance(0.2, random), zooms = chance(0.2, random);
  SpatialOptions spatial{.size = patch, .zoom_axes_alike = true};
  if (rotates) spatial.rotation.fill({-angle, angle});
  if (zooms) spatial.zoom = {0.7, 1.4};
  Sample s = random_spatial(example, spatial, random);
  std::vector<Tensor> channels;
  for (int64_t c = 0; c < s[0].size(0); ++c) {
    Tensor x = s[0][c];
    if (chance(0.1, random)) x = random_intensity(x, {.noise = std::sqrt(0.1)}, random);
    if (chance(0.2 * 0.5, random)) x = random_blur(x, {0.5, 1}, random);
    if (chance(0.15, random)) x = random_intensity(x, {.scale = {0.75, 1.25}}, random);
    if (chance(0.15, random)) x = random_contrast(x, {0.75, 1.25}, random);
    if (chance(0.25 * 0.5, random)) x = random_low_resolution(x, {0.5, 1}, random);
    if (chance(0.1, random)) x = random_gamma(x, {.invert = true, .keep_statistics = true}, random);
    if (chance(0.3, random)) x = random_gamma(x, {.keep_statistics = true}, random);
    channels.push_back(x);
  }
  return random_flip({stack(channels), s[1]}, random);
}

TEST_P(Augment, NnUNetsTrainingIsDeterministicBySeed) {
  const Tensor scan = normal({2, 20, 18, 16}, on(f32)), label = clamp(whole({1, 20, 18, 16}, on(i64)), 0, 3);
  for (uint64_t seed = 0; seed < 30; ++seed) {
    Generator a(seed), b(seed);
    const Sample crop = random_foreground_crop({scan, label}, {20, 16, 16}, {}, a),
                 crop_again = random_foreground_crop({scan, label}, {20, 16, 16}, {}, b);
    const Sample s = like_nnunet(crop, {12, 14, 16}, a), again = like_nnunet(crop_again, {12, 14, 16}, b);
    EXPECT_EQ(s[0].shape(), (Shape{2, 12, 14, 16}));
    EXPECT_EQ(s[1].shape(), (Shape{1, 12, 14, 16}));
    EXPECT_TRUE(same_bits(s[0], again[0]) && same_bits(s[1], again[1])) << seed;
    EXPECT_TRUE(all(isfinite(s[0])).item<bool>()) << seed;
    EXPECT_LE(max(s[1]).item<int64_t>(), max(label).item<int64_t>());
  }
}

TEST_P(Augment, SpatialErrors) {
  const Tensor x = zeros({1, 2, 3, 4}, on(f32));
  EXPECT_ERRORS(ValueError, random_spatial({x}, {.zoom = {0, 1}}, random),
                random_spatial({x}, {.elastic = {2, 1}}, random),
                random_spatial({x}, {.elastic_distance = {1, 0, 1}}, random),
                random_spatial({x}, {.spacing = {1, nan, 1}}, random),
                random_foreground_crop({x}, 1, {}, random), random_turn({x}, random, {1}),
                random_turn({x}, random, {1, 1}), chance(1.5, random));
  EXPECT_ERRORS(ShapeError, random_spatial({x}, {.size = {1, 0, 1}}, random),
                random_spatial({x, x.slice(1, 0, 1)}, {}, random),
                random_foreground_crop({x, x}, 5, {}, random),
                random_foreground_crop({x, cat({x, x})}, 1, {}, random));
}

TEST_P(Augment, IntensityErrors) {
  const Tensor x = zeros({1, 2, 3, 4}, on(f32));
  EXPECT_ERRORS(ValueError, gaussian_blur(x, {-1, 0, 0}), random_blur(x, {-1, 0}, random),
                random_gamma(x, {.gamma = {2, 1}}, random), random_contrast(x, {-1, 1}, random),
                random_bias_field(x, {0, 1}, random, 9), random_low_resolution(x, {0.5, 2}, random));
  EXPECT_THROW(gaussian_blur(x.to(i64), {1, 1, 1}), DTypeError);
  EXPECT_ERRORS(ShapeError, gaussian_blur(x[0][0], {1, 1, 1}), random_gamma(x[0][0], {}, random),
                random_contrast(x[0][0], {1, 1}, random), random_bias_field(x[0][0], {0, 1}, random));
  EXPECT_MESSAGE_BEGINS(ShapeError, random_low_resolution(x[0][0], {0.5, 1}, random),
                        "random_low_resolution: ");
  EXPECT_REFUSED(Error, random_gamma(x[0][0], {}, random), "random_gamma");
}

}  // namespace
}  // namespace vox::data
