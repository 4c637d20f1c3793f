// The segmentation: labels on heads drawn by hand, the losses and scores of hand cases, patches, and cubes
// that fit together.
#include "labels.h"
#include "loss.h"
#include "mri_images.h"
#include "report.h"
#include "sampler.h"
#include "tests/support/test.h"
#include "unet.h"

namespace unet {
namespace {

void fill(mri::Volume& volume, const Box& box, float value) {
  for_each_voxel(box, [&](int64_t d, int64_t h, int64_t w) { volume.at(d, h, w) = value; });
}

Mask box_mask(const Size& size, const Box& box) {
  mri::Volume volume(size);
  fill(volume, box, 1);
  return Mask(volume.voxels.begin(), volume.voxels.end());
}

// A head of 40^3 voxels in a volume of 48^3, with fluid in a fold and at the surface.
mri::Volume head() {
  mri::Volume scan({48, 48, 48});
  fill(scan, {{4, 4, 4}, {44, 44, 44}}, 0.8f);
  fill(scan, {{4, 20, 20}, {8, 24, 24}}, 0.3f);    // at the foot
  fill(scan, {{38, 10, 10}, {41, 40, 40}}, 0.3f);  // deep, but too high
  fill(scan, {{20, 20, 23}, {22, 22, 24}}, 0.3f);  // too small
  return scan;
}
const Box kLeft{{20, 16, 14}, {26, 30, 20}}, kRight{{20, 16, 27}, {26, 30, 33}};

TEST(UnetLabels, VentriclesAreLargePiecesInTheMiddle) {
  mri::Volume scan = head();
  fill(scan, kLeft, 0.3f);
  fill(scan, kRight, 0.3f);
  const Labels labels = label_ventricles(scan);
  Mask expected = box_mask(scan.size, kLeft);
  const Mask right = box_mask(scan.size, kRight);
  for (size_t i = 0; i < expected.size(); ++i) expected[i] |= right[i];
  EXPECT_TRUE(labels.ventricles == expected);  // EXPECT_EQ prints 110,592 voxels
  for (size_t i = 0; i < labels.dark.size(); ++i) EXPECT_EQ(labels.dark[i], scan.voxels[i] == 0.3f);
}

TEST(UnetLabels, AnOpeningCutsABridgeToOtherFluid) {
  mri::Volume scan = head();
  fill(scan, kLeft, 0.3f);
  fill(scan, {{26, 22, 16}, {38, 23, 17}}, 0.3f);  // one voxel wide, up to the fluid that is too high
  const Mask found = label_ventricles(scan).ventricles;
  const Mask left = box_mask(scan.size, kLeft);
  int64_t missed = 0, extra = 0;
  for (size_t i = 0; i < left.size(); ++i) {
    missed += left[i] && !found[i];
    extra += found[i] && !left[i];
  }
  EXPECT_EQ(extra, 1);  // the end of the bridge, which grows back
  EXPECT_EQ(missed,
            4 * (6 + 14 + 6) - 8 * 2);  // the edges of the box: a cross of 7 voxels does not reach them
}

TEST(UnetLabels, PhantomHasTwo) {
  const mri::Volume scan = mri::shepp_logan({64, 64, 64});
  const Labels labels = label_ventricles(scan);
  EXPECT_EQ(pieces(labels.ventricles, scan.size).size(), 2u);
  EXPECT_TRUE(labels.ventricles[scan.index(32, 32, 39)]);
  EXPECT_TRUE(labels.ventricles[scan.index(32, 32, 25)]);
}

TEST(UnetLabels, RefusesHeadsWithoutThem) {
  EXPECT_ERRORS(std::runtime_error, label_ventricles(mri::Volume()), label_ventricles(mri::Volume({8, 8, 8})),
                label_ventricles(mri::Volume({8, 8, 8}, 1.0f)), label_ventricles(head()));
}

TEST(UnetLabels, GrowStaysInsideAndCountsMoves) {
  const Size size{1, 2, 5};
  const Mask allowed{1, 1, 1, 0, 1,  //
                     0, 0, 1, 0, 1};
  const Mask seed{1, 0, 0, 0, 0, 0, 0, 0, 0, 0};
  EXPECT_EQ(grow(seed, allowed, size, 0), seed);
  EXPECT_EQ(grow(seed, allowed, size, 2), (Mask{1, 1, 1, 0, 0, 0, 0, 0, 0, 0}));
  EXPECT_EQ(grow(seed, allowed, size), (Mask{1, 1, 1, 0, 0, 0, 0, 1, 0, 0}));
  const auto all = pieces(allowed, size);
  ASSERT_EQ(all.size(), 2u);
  EXPECT_EQ(all[0], (std::vector<size_t>{0, 1, 2, 7}));
  EXPECT_EQ(all[1], (std::vector<size_t>{4, 9}));
}

TEST(UnetLoss, HandCases) {
  const vox::Tensor p = vox::from_vector<float>({1, 0.5f, 0, 0.25f}, {4});
  const vox::Tensor t = vox::from_vector<float>({1, 1, 0, 0}, {4});
  EXPECT_FLOAT_EQ(soft_dice_loss(p, t).item(), 1 - (2 * 1.5f + 1) / (1.75f + 2 + 1));
  EXPECT_EQ(soft_dice_loss(t, t).item(), 0);
  EXPECT_EQ(soft_dice_loss(vox::zeros({4}), vox::zeros({4})).item(), 0);

  // Scores of log(3) against 0 are a probability of 3/4.
  const float a = std::log(3.0f);
  const vox::Tensor scores = vox::from_vector<float>({0, 0, a, a}, {1, 2, 1, 1, 2});  // both 3/4
  const vox::Tensor target = vox::from_vector<int64_t>({1, 0}, {1, 1, 1, 2});
  const float cross_entropy = -(std::log(0.75f) + std::log(0.25f)) / 2;
  EXPECT_NEAR(segmentation_loss(scores, target).item(), cross_entropy + 1 - 2.5f / 3.5f, 1e-6);
  EXPECT_EQ(segmentation_loss(scores.to(vox::bf16), target).dtype(), vox::f32);
}

TEST(UnetScores, DiceOfHandCases) {
  const Size size{1, 2, 4};
  const Mask a{1, 1, 0, 0, 1, 0, 0, 0}, b{1, 0, 1, 0, 1, 1, 0, 0}, none(8);
  EXPECT_EQ(dice(a, b, size, mri::whole(size)), 4.0 / 7);
  EXPECT_EQ(dice(a, a, size, mri::whole(size)), 1);
  EXPECT_EQ(dice(a, none, size, mri::whole(size)), 0);
  EXPECT_TRUE(std::isnan(dice(none, none, size, mri::whole(size))));
  EXPECT_EQ(dice(a, b, size, {{0, 0, 1}, {1, 1, 4}}), 0);
  EXPECT_EQ(dice(a, b, size, {{0, 1, 0}, {1, 2, 4}}), 2.0 / 3);
}

TEST(UnetSampler, KeepsToItsPlanesAndShowsTheStructure) {
  // Zeros and ones, which no power changes: in one scan the planes that are kept out, in the other the
  // structure.
  const Size size{32, 90, 40};
  const mri::Split split = mri::split_planes(90, 8, 45, 55);
  const Mask structure = box_mask(size, {{10, 20, 10}, {20, 70, 12}});
  mri::Volume kept_out(size), shown(size);
  fill(kept_out, {{0, 32, 0}, {32, 57, 40}}, 1);
  fill(shown, {{10, 20, 10}, {20, 70, 12}}, 1);
  const Sampler unseen(kept_out, structure, split, 7), seen(shown, structure, split, 7);
  EXPECT_EQ(seen.patch(), 32);
  for (int64_t step = 1; step <= 20; ++step) {
    for (int64_t i = 0; i < Sampler::kBatchSize; ++i) {
      const vox::data::Sample sample = seen.sample(step, i);
      ASSERT_EQ(sample[0].shape(), (vox::Shape{1, 32, 32, 32}));
      ASSERT_EQ(sample[1].shape(), (vox::Shape{32, 32, 32}));
      if (i == 0) {
        ASSERT_GT(sample[1].sum().item<int64_t>(), 0);
      }
      ASSERT_EQ(sample[0].to_vector<float>(), sample[1].to(vox::f32).to_vector<float>());
      ASSERT_EQ(unseen.sample(step, i)[0].sum().item(), 0);
    }
  }
  EXPECT_ERRORS(std::invalid_argument, Sampler(shown, Mask(structure.size()), split, 7),
                Sampler(shown, structure, {{7, 83}, {{0, 7}, {83, 90}}}, 7));
}

TEST(UnetSampler, SamplesAreAFunctionOfSeedStepAndNumber) {
  const mri::Volume scan = mri::noise({24, 60, 24}, 1);
  const Mask structure = box_mask(scan.size, {{10, 10, 10}, {14, 50, 14}});
  const mri::Split split = mri::split_planes(60, 4, 45, 55);
  const Sampler sampler(scan, structure, split, 7), same(scan, structure, split, 7),
      other(scan, structure, split, 8);
  const auto values = [](const Sampler& s, int64_t step, int64_t i) {
    return s.sample(step, i)[0].to_vector<float>();
  };
  same.sample(49, 1);  // earlier draws do not matter
  EXPECT_EQ(values(sampler, 1, 1), values(same, 1, 1));
  EXPECT_NE(values(sampler, 1, 1), values(sampler, 2, 1));
  EXPECT_NE(values(sampler, 1, 1), values(sampler, 1, 0));
  EXPECT_NE(values(sampler, 1, 1), values(other, 1, 1));
}

TEST(Unet, KeepsTheShapeInBothDtypesWithF32Gradients) {
  vox::manual_seed(5);
  UNet network;
  for (const vox::DType dtype : {vox::f32, vox::bf16}) {
    const auto guard = vox::autocast(vox::bf16, dtype == vox::bf16);
    const vox::Tensor scores = network(vox::rand({1, 1, 16, 24, 16}));
    EXPECT_EQ(scores.shape(), (vox::Shape{1, 2, 16, 24, 16}));
    EXPECT_EQ(scores.dtype(), dtype);
    network.zero_grad();
    segmentation_loss(scores, vox::zeros({1, 16, 24, 16}, {.dtype = vox::i64})).backward();
    for (const auto& [name, parameter] : network.named_parameters()) {
      ASSERT_TRUE(parameter.grad().defined()) << name;
      EXPECT_EQ(parameter.grad().dtype(), vox::f32) << name;
    }
  }
}

// A volume of one cube is that cube in one piece; in a larger one each voxel is computed once, near the
// middle of a cube, and nothing outside the box is touched.
TEST(Unet, SegmentPutsCubesTogether) {
  vox::manual_seed(6);
  UNet network;
  const auto guard = vox::no_grad();
  const mri::Volume one = mri::noise({16, 16, 16}, 1);
  const vox::Tensor scores = network(vox::from_vector<float>(one.voxels, {1, 1, 16, 16, 16}));
  const auto background = scores.select(1, 0).to_vector<float>(),
             structure = scores.select(1, 1).to_vector<float>();
  const Box box{{2, 2, 2}, {14, 14, 14}};
  const Mask mask = segment(network, one, box, 16, vox::Device::cpu());
  const Mask inside = box_mask(one.size, box);
  int64_t marked = 0;
  for (size_t i = 0; i < mask.size(); ++i) {
    ASSERT_EQ(mask[i], inside[i] && structure[i] > background[i] && one.voxels[i] > mri::kAir);
    marked += mask[i];
  }
  EXPECT_GT(marked, 0);

  EXPECT_THROW(segment(network, one, box, 24, vox::Device::cpu()), std::invalid_argument);

  const mri::Volume two = mri::noise({16, 40, 16}, 2);
  const Mask all = segment(network, two, mri::whole(two.size), 16, vox::Device::cpu());
  const Mask part = segment(network, two, {{0, 11, 0}, {16, 23, 16}}, 16, vox::Device::cpu());
  for_each_voxel(mri::whole(two.size), [&](int64_t d, int64_t h, int64_t w) {
    ASSERT_EQ(part[two.index(d, h, w)], h >= 11 && h < 23 && all[two.index(d, h, w)]);
  });
}

}  // namespace
}  // namespace unet
