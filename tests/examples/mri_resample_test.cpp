// Degrading, interpolating, cropping and normalising.
#include <voxgrad/image/image.h>

#include "mri_images.h"
#include "tests/support/test.h"
#include "volume.h"

namespace mri {
namespace {

TEST(MriScan, IsAnatomicalAndFinite) {
  const vox::testing::TemporaryFolder folder;
  const std::string path = (folder / "scan.nii").string();
  vox::Image image{.data = vox::arange(24).reshape({2, 3, 4}), .spacing = {3, 2, 1}};  // LPS: H and W turn
  image.data[0][0][0].fill_(std::numeric_limits<float>::infinity());
  vox::write_image(path, image);
  const Scan scan = read_scan(path);
  EXPECT_FALSE(scan.is_uint8);
  EXPECT_EQ(scan.volume.size, (Size{2, 3, 4}));
  EXPECT_EQ(scan.volume.spacing, image.spacing);
  EXPECT_EQ(scan.volume.at(0, 2, 3), 0);
  EXPECT_EQ(scan.volume.at(0, 0, 0), 11);
  image.data = image.data.to(vox::u8);
  vox::write_image(path, image);
  EXPECT_TRUE(read_scan(path).is_uint8);
  for (const vox::Tensor& other : {vox::ones({1, 3, 4}), vox::ones({2, 2, 3, 4})}) {
    image.data = other;
    vox::write_image(path, image);
    EXPECT_THROW(read_scan(path), std::runtime_error);
  }
}

TEST(MriResample, LowResolutionIsTheMeanOfEachCell) {
  Volume high({2, 4, 2});
  for (int i = 0; i < 16; ++i) high.voxels[i] = static_cast<float>(i);
  const Volume low = downsample(high);
  EXPECT_EQ(low.size, (Size{1, 2, 1}));
  EXPECT_EQ(low.voxels, (std::vector<float>{5.5f, 9.5f}));  // of 0..3, 8..11 and of 4..7, 12..15
  EXPECT_EQ(low.spacing[0], 2);
  EXPECT_THROW(downsample(Volume({2, 3, 2})), std::invalid_argument);
}

// align_corners = false by its definition: sample at (o + 0.5) / 2 - 0.5 with coordinates clamped to the
// volume.
TEST(MriResample, TrilinearEqualsItsDefinition) {
  for (const Size& size : {Size{3, 4, 5}, {3, 1, 1}, {1, 3, 1}, {1, 1, 3}}) {
    const Volume low = noise(size, 7);
    const Volume high = upsample_trilinear(low);
    ASSERT_EQ(high.size, (Size{2 * size[0], 2 * size[1], 2 * size[2]}));
    for_each_voxel(whole(high.size), [&](int64_t d, int64_t h, int64_t w) {
      const Size out{d, h, w};
      double sum = 0;
      for (int corner = 0; corner < 8; ++corner) {
        double weight = 1;
        Size at{};
        for (int axis = 0; axis < 3; ++axis) {
          const double x = std::clamp((out[axis] + 0.5) / 2 - 0.5, 0.0, low.size[axis] - 1.0);
          const auto below = static_cast<int64_t>(x);
          const bool upper = corner >> axis & 1;
          at[axis] = std::min(below + upper, low.size[axis] - 1);
          weight *= upper ? x - below : 1 - (x - below);
        }
        sum += weight * low.at(at[0], at[1], at[2]);
      }
      EXPECT_NEAR(high.at(d, h, w), sum, 1e-6);
    });
  }
}

TEST(MriResample, CropToEvenDropsLastPlanes) {
  const Volume volume = noise({3, 4, 5}, 8);
  const Volume even = crop_to_even(volume);
  EXPECT_EQ(even.size, (Size{2, 4, 4}));
  EXPECT_EQ(even.at(1, 3, 3), volume.at(1, 3, 3));
  EXPECT_THROW(crop_to_even(Volume({1, 4, 4})), std::invalid_argument);
  EXPECT_ERRORS(std::out_of_range, crop(volume, {0, 0, 2}, {1, 1, 4}), crop(volume, {-1, 0, 0}, {1, 1, 1}));
}

TEST(MriIntensity, PercentilesInterpolateBetweenRanks) {
  Volume volume({1, 1, 5});
  volume.voxels = {40, 0, 10, 30, 20};
  EXPECT_EQ(percentile(volume, 0), 0);
  EXPECT_EQ(percentile(volume, 50), 20);
  EXPECT_EQ(percentile(volume, 60), 24);
  EXPECT_EQ(percentile(volume, 100), 40);
  EXPECT_ERRORS(std::invalid_argument, percentile(volume, 101), percentile(Volume(), 50));
}

TEST(MriIntensity, BytesAreDividedOthersStretchedAndClipped) {
  Volume volume({1, 1, 201});
  for (int i = 0; i < 201; ++i) volume.voxels[i] = static_cast<float>(i) - 50;  // percentiles -49 and 149
  const Volume stretched = normalise({volume, false});
  EXPECT_EQ(stretched.voxels[0], 0);
  EXPECT_EQ(stretched.voxels[1], 0);
  EXPECT_FLOAT_EQ(stretched.voxels[100], 0.5f);
  EXPECT_EQ(stretched.voxels[200], 1);
  volume.voxels[0] = 51;
  EXPECT_FLOAT_EQ(normalise({volume, true}).voxels[0], 0.2f);
  EXPECT_THROW(normalise({Volume({2, 2, 2}, 3.0f), false}), std::invalid_argument);
}

TEST(MriPhantom, HasTheTableIntensities) {
  const Volume head = shepp_logan({64, 64, 64});
  EXPECT_EQ(head.at(0, 0, 0), 0);                // air
  EXPECT_FLOAT_EQ(head.at(32, 60, 32), 1.0f);    // skull, y = 0.8556 to 0.92
  EXPECT_NEAR(head.at(32, 20, 32), 0.2f, 1e-6);  // brain
  EXPECT_NEAR(head.at(32, 32, 39), 0.0f, 1e-6);  // right ventricle, x = 0.22
  EXPECT_NEAR(head.at(27, 43, 32), 0.3f, 1e-6);  // the ball at y = 0.35, z = -0.15
  EXPECT_THROW(shepp_logan({0, 4, 4}), std::invalid_argument);
}

}  // namespace
}  // namespace mri
