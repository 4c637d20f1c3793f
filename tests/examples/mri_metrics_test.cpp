// PSNR, SSIM and the foreground mask against their definitions, written out voxel by voxel.
#include "metrics.h"
#include "mri_images.h"
#include "tests/support/test.h"

namespace mri {
namespace {

double ssim_by_definition(const Volume& x, const Volume& y, const Mask* mask) {
  double total = 0;
  int count = 0;
  for_each_voxel({{3, 3, 3}, {x.size[0] - 3, x.size[1] - 3, x.size[2] - 3}}, [&](int64_t d, int64_t h,
                                                                                 int64_t w) {
    if (mask && !(*mask)[x.index(d, h, w)]) return;
    const auto mean_over_window = [&](auto value) {
      double sum = 0;
      for_each_voxel({{d - 3, h - 3, w - 3}, {d + 4, h + 4, w + 4}},
                     [&](int64_t i, int64_t j, int64_t k) { sum += value(x.at(i, j, k), y.at(i, j, k)); });
      return sum;
    };
    const double mx = mean_over_window([](double a, double) { return a; }) / 343;
    const double my = mean_over_window([](double, double b) { return b; }) / 343;
    const double vx = mean_over_window([&](double a, double) { return (a - mx) * (a - mx); }) / 342;
    const double vy = mean_over_window([&](double, double b) { return (b - my) * (b - my); }) / 342;
    const double cov = mean_over_window([&](double a, double b) { return (a - mx) * (b - my); }) / 342;
    total += (2 * mx * my + 1e-4) * (2 * cov + 9e-4) / ((mx * mx + my * my + 1e-4) * (vx + vy + 9e-4));
    ++count;
  });
  return total / count;
}

TEST(MriMetrics, ForegroundIsThresholdAndDilationByTwo) {
  Volume truth({9, 10, 11});
  truth.at(4, 5, 6) = 0.5f;
  truth.at(0, 0, 0) = 0.021f;
  truth.at(8, 9, 0) = 0.02f;  // not above the threshold
  const Mask mask = foreground(truth);
  for_each_voxel(whole(truth.size), [&](int64_t d, int64_t h, int64_t w) {
    const bool near_first = std::max({std::abs(d - 4), std::abs(h - 5), std::abs(w - 6)}) <= 2;
    const bool near_second = std::max({d, h, w}) <= 2;
    EXPECT_EQ(mask[truth.index(d, h, w)], near_first || near_second) << d << ' ' << h << ' ' << w;
  });
}

TEST(MriMetrics, PsnrOfAConstantError) {
  Volume truth({4, 4, 4}, 0.25f), image({4, 4, 4}, 0.375f);
  EXPECT_DOUBLE_EQ(psnr(truth, image), -20 * std::log10(0.125));
  EXPECT_EQ(psnr(truth, truth), std::numeric_limits<double>::infinity());
}

TEST(MriMetrics, PsnrCountsOnlyTheMask) {
  Volume truth({2, 3, 4}), image({2, 3, 4});
  image.at(0, 1, 2) = 0.5f;
  image.at(1, 2, 3) = 1.0f;
  Mask mask(24, 0);
  mask[truth.index(0, 1, 2)] = mask[truth.index(0, 0, 0)] = 1;
  EXPECT_DOUBLE_EQ(psnr(truth, image, &mask), -10 * std::log10(0.25 / 2));
  EXPECT_DOUBLE_EQ(psnr(truth, image), -10 * std::log10(1.25 / 24));
}

TEST(MriMetrics, SsimEqualsItsDefinition) {
  const Volume x = noise({9, 11, 8}, 1);
  Volume y = noise({9, 11, 8}, 2);
  for (size_t i = 0; i < y.voxels.size(); ++i) y.voxels[i] = 0.7f * x.voxels[i] + 0.2f * y.voxels[i] + 0.05f;
  Mask mask(x.voxels.size());
  for (size_t i = 0; i < mask.size(); ++i) mask[i] = i % 3 != 0;
  EXPECT_NEAR(ssim(x, x), 1, 1e-12);
  EXPECT_NEAR(ssim(x, y), ssim_by_definition(x, y, nullptr), 1e-12);
  EXPECT_NEAR(ssim(x, y, &mask), ssim_by_definition(x, y, &mask), 1e-12);
  EXPECT_GT(std::abs(ssim(x, y) - ssim(x, y, &mask)), 1e-6);  // or the mask would not be tested
}

TEST(MriMetrics, RefusesWhatItCannotScore) {
  const Volume x = noise({8, 8, 8}, 4);
  const Mask nothing(512, 0), short_mask(511, 1);
  EXPECT_ERRORS(std::invalid_argument, psnr(x, noise({8, 8, 7}, 4)), psnr(x, x, &nothing),
                psnr(x, x, &short_mask), ssim(x, x, &nothing),
                ssim(noise({6, 8, 8}, 4), noise({6, 8, 8}, 4)));
}

}  // namespace
}  // namespace mri
