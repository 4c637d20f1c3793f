#include <voxgrad/image/image.h>
#include <nlohmann/json.hpp>

#include "metrics.h"
#include "mri_images.h"
#include "network.h"
#include "options.h"
#include "patches.h"
#include "pictures.h"
#include "tests/support/test.h"
#include "training.h"
#include "volume.h"

// PSNR, SSIM and the foreground mask against their definitions, written out voxel by voxel.

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

// Degrading, interpolating, cropping and normalising.

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

TEST(MriResample, TrilinearDoublesEachSize) {
  Volume low({1, 1, 2});
  low.voxels = {0, 4};
  const Volume high = upsample_trilinear(low);
  EXPECT_EQ(high.size, (Size{2, 2, 4}));
  for (size_t i = 0; i < 16; ++i) EXPECT_EQ(high.voxels[i], (std::vector<float>{0, 1, 3, 4}[i % 4]));
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

// The command line, the files written and the report.

Options parse(std::vector<const char*> arguments) {
  arguments.insert(arguments.begin(), "mri");
  Options options;
  parse_options(static_cast<int>(arguments.size()), arguments.data(), options);
  return options;
}

TEST(MriOptions, ReadsBothSpellings) {
  const Options options = parse({"--device", "cuda", "--seed=7", "--steps", "30", "--minutes=0.5",
                                 "--phantom", "--out", "somewhere", "--threads=2", "--resume"});
  EXPECT_EQ(options.device, "cuda");
  EXPECT_EQ(options.seed, 7u);
  EXPECT_EQ(options.steps, 30);
  EXPECT_EQ(options.minutes, 0.5);
  EXPECT_TRUE(options.phantom);
  EXPECT_TRUE(options.resume);
  EXPECT_EQ(options.out, "somewhere");
  EXPECT_EQ(options.threads, 2);
}

TEST(MriOptions, RefusesWhatItDoesNotKnow) {
  EXPECT_ERRORS(UsageError, parse({"--sed", "7"}), parse({"file.nii"}), parse({"--seed"}), parse({"--seed="}),
                parse({"--seed", "-1"}), parse({"--seed", "1x"}), parse({"--seed", "18446744073709551616"}),
                parse({"--steps", "0"}), parse({"--steps", "1e3"}), parse({"--threads", "0"}),
                parse({"--minutes", "nan"}), parse({"--phantom", "--volume", "file.nii"}));
  const auto message = [](const char* option, const char* value) {
    return vox::testing::message_of<UsageError>([&] { parse({option, value}); });
  };
  EXPECT_EQ(message("--minutes", "0"), "--minutes: '0' is not a number from 0.01 to 100000");
  EXPECT_EQ(message("--threads", "9999"), "--threads: '9999' is not a number from 1 to 1024");
  EXPECT_ERRORS(UsageError, parse({"--minutes", "-2"}), parse({"--device", "gpu"}));
}

TEST(MriFiles, ReplaceOldOnesOrFail) {
  const vox::testing::TemporaryFolder folder;
  const std::filesystem::path path = folder / "result.json";
  write_text(path, "an old text");
  write_text(path, "new");
  EXPECT_EQ(vox::testing::read_bytes(path), "new");
  EXPECT_EQ(folder.entries(), 1);
  EXPECT_THROW(write_text(folder / "no/such", "x"), std::runtime_error);
}

TEST(MriReport, HasTheAgreedKeys) {
  Comparison c;
  c.truth = noise({8, 10, 12}, 1);
  c.low = downsample(c.truth);
  c.trilinear = upsample_trilinear(c.low);
  c.ours = c.truth;
  Report report;
  report.device = "cpu";
  report.threads = 2;
  report.seconds = 1.5;
  report.steps = 3;
  report.seed = 4;
  report.parameters = 5;
  report.scores = score(c);
  report.unseen = score(planes(c, 0, 8));
  const auto json = nlohmann::json::parse(to_json(report));
  for (const auto* part : {&json, &json.at("unseen")}) {
    for (const char* key : {"psnr_trilinear", "psnr_ours", "ssim_trilinear", "ssim_ours"}) {
      EXPECT_TRUE(part->at(key).contains("foreground")) << key;
      EXPECT_TRUE(part->at(key).contains("whole")) << key;
    }
    EXPECT_EQ(part->at("psnr_trilinear").at("whole"), psnr(c.truth, c.trilinear));
    EXPECT_TRUE(part->at("psnr_ours").at("whole").is_null());  // infinite
    EXPECT_EQ(part->at("ssim_ours").at("whole"), 1.0);
  }
  EXPECT_EQ(json.at("device"), "cpu");
  EXPECT_EQ(json.at("threads"), 2);
  EXPECT_EQ(json.at("seconds"), 1.5);
  EXPECT_EQ(json.at("steps"), 3);
  EXPECT_EQ(json.at("seed"), 4);
  EXPECT_EQ(json.at("parameters"), 5);
}

TEST(MriComparison, PlanesCutBothResolutions) {
  Comparison c;
  c.truth = noise({12, 4, 6}, 1);
  c.low = downsample(c.truth);
  c.trilinear = c.ours = c.truth;
  const Comparison slab = planes(c, 4, 6);
  EXPECT_EQ(slab.truth.size, (Size{6, 4, 6}));
  EXPECT_EQ(slab.low.size, (Size{3, 2, 3}));
  EXPECT_EQ(slab.truth.at(0, 1, 2), c.truth.at(4, 1, 2));
  EXPECT_EQ(slab.low.at(0, 1, 2), c.low.at(2, 1, 2));
}

// What training relies on: planes that stay apart, patches that are a function of the step, a network whose
// receptive field is what it says, tiles that fit together, checkpoints that restore everything.

// A network whose last layer is not zero.
SuperResolution random_network() {
  vox::manual_seed(5);
  SuperResolution network;
  const auto guard = vox::no_grad();
  for (const auto& [name, parameter] : network.named_parameters()) {
    vox::Tensor handle = parameter;
    if (name.starts_with("upsample")) handle.copy_(0.1 * vox::randn(parameter.shape()));
  }
  return network;
}

TEST(MriSplit, GapsKeepTheSlabOutOfSight) {
  for (int64_t depth = 24; depth < 200; ++depth) {
    const Split split = split_planes(depth, 4);
    ASSERT_GE(split.slab.length(), 4);
    for (const Range& range : split.training) {
      ASSERT_GE(range.begin, 0);
      ASSERT_LT(range.begin, range.end);
      ASSERT_LE(range.end, depth);
      ASSERT_TRUE(range.end <= split.slab.begin - 4 || range.begin >= split.slab.end + 4) << depth;
    }
  }
  EXPECT_THROW(split_planes(8, 4), std::invalid_argument);
}

TEST(MriPatches, AreAFunctionOfSeedAndIndex) {
  const Volume truth = noise({96, 48, 40}, 1);
  const Volume low = downsample(truth);
  const Split split = split_planes(low.size[0], 4);
  const PatchSampler patches(low, truth, split, 7), same(low, truth, split, 7), other(low, truth, split, 8);
  const auto values = [](const PatchSampler& s, int64_t index) {
    return s.sample(index)[1].to_vector<float>();
  };
  same.sample(99);  // earlier draws do not matter
  EXPECT_EQ(values(patches, 3), values(same, 3));
  EXPECT_NE(values(patches, 3), values(patches, 4));
  EXPECT_NE(values(patches, 3), values(other, 3));
}

// Planes that hold their own number show where a patch was taken.
TEST(MriPatches, StayInTheTrainingPlanesAndReachAllOfThem) {
  Volume truth({128, 40, 36});
  for (size_t i = 0; i < truth.voxels.size(); ++i) truth.voxels[i] = static_cast<float>(i / (40 * 36) + 1);
  const Volume low = downsample(truth);
  const Split split = split_planes(low.size[0], 4);
  const PatchSampler patches(low, truth, split, 1);
  std::set<int64_t> seen;
  for (int64_t index = 0; index < 400; ++index) {
    for (const float value : patches.sample(index)[1].to_vector<float>())
      seen.insert(std::llround(value) - 1);
  }
  std::set<int64_t> training;
  for (const Range& range : split.training) {
    for (int64_t plane = 2 * range.begin; plane < 2 * range.end; ++plane) training.insert(plane);
  }
  EXPECT_EQ(seen, training);
}

TEST(MriPatches, PairsShowTheSamePlaceInTheSameMirror) {
  const Volume truth = noise({96, 48, 40}, 1);
  const Volume low = downsample(truth);
  const PatchSampler patches(low, truth, split_planes(low.size[0], 4), 7);
  const int64_t p = patches.patch_size();
  std::set<std::vector<float>> different;
  for (int64_t index = 0; index < 20; ++index) {
    const vox::data::Sample sample = patches.sample(index);
    ASSERT_EQ(sample[0].shape(), (vox::Shape{1, p, p, p}));
    ASSERT_EQ(sample[1].shape(), (vox::Shape{1, 2 * p, 2 * p, 2 * p}));
    Volume high({2 * p, 2 * p, 2 * p});
    high.voxels = sample[1].to_vector<float>();
    const std::vector<float> expected = downsample(high).voxels;
    const std::vector<float> patch = sample[0].to_vector<float>();
    for (size_t i = 0; i < patch.size(); ++i) ASSERT_NEAR(patch[i], expected[i], 1e-6);
    different.insert(patch);
  }
  EXPECT_GT(different.size(), 15u);  // of 20; so small a volume has few places
}

TEST(MriPatches, RefuseTooSmallVolumes) {
  const Volume truth = noise({40, 40, 40}, 1);
  const Volume low = downsample(truth);
  EXPECT_THROW(PatchSampler(low, truth, split_planes(20, 4), 1), std::invalid_argument);
}

TEST(MriNetwork, StartsAsTrilinearInterpolation) {
  SuperResolution network;
  const Volume low = noise({6, 7, 5}, 2);
  const Volume ours = super_resolve(network, low, vox::Device::cpu());
  const Volume trilinear = upsample_trilinear(low);
  ASSERT_EQ(ours.size, trilinear.size);
  for (size_t i = 0; i < ours.voxels.size(); ++i) ASSERT_NEAR(ours.voxels[i], trilinear.voxels[i], 1e-6);
}

TEST(MriNetwork, TilesFitTogether) {
  SuperResolution network = random_network();
  const Volume low = noise({40, 6, 5}, 3);
  const auto guard = vox::no_grad();
  const std::vector<float> at_once =
      network(vox::from_vector<float>(low.voxels, {1, 1, 40, 6, 5})).to_vector<float>();
  const Volume tiled = super_resolve(network, low, vox::Device::cpu());
  ASSERT_EQ(tiled.voxels.size(), at_once.size());
  for (size_t i = 0; i < at_once.size(); ++i) ASSERT_NEAR(tiled.voxels[i], at_once[i], 1e-5);
  const Volume part = super_resolve(network, low, {11, 19}, vox::Device::cpu());
  for (size_t i = 0; i < part.voxels.size(); ++i)
    ASSERT_NEAR(part.voxels[i], at_once[22 * 12 * 10 + i], 1e-5);
}

TEST(MriNetwork, SeesAsFarAsItSaysAndNoFarther) {
  SuperResolution network = random_network();
  const Volume low = noise({21, 5, 5}, 4);
  Volume changed = low;
  for (int64_t i = 0; i < 25; ++i) changed.voxels[10 * 25 + i] += 1;  // plane 10
  const Volume before = super_resolve(network, low, vox::Device::cpu());
  const Volume after = super_resolve(network, changed, vox::Device::cpu());
  int64_t first = 42, last = -1;
  for (int64_t plane = 0; plane < 42; ++plane) {
    for (int64_t i = 0; i < 100; ++i) {
      if (before.voxels[plane * 100 + i] == after.voxels[plane * 100 + i]) continue;
      first = std::min(first, plane);
      last = std::max(last, plane);
    }
  }
  // In planes of the low resolution; the farthest ones are only partly reached, from the near side.
  EXPECT_EQ(first / 2, 10 - SuperResolution::kReach);
  EXPECT_EQ(last / 2, 10 + SuperResolution::kReach);
}

class MriCheckpoint : public ::testing::Test {
 protected:
  vox::testing::TemporaryFolder folder_;
};

// A network and its optimiser, and the training of both.
struct SmallRun {
  explicit SmallRun(uint64_t seed, int64_t steps = 9) : state{network, optimizer, seed, steps} {}
  SuperResolution network;
  vox::optim::Adam optimizer{network.parameters()};
  TrainingState state;
};

// One step on a batch of ones, which gives the optimiser a state.
void train_one_step(SmallRun& run) {
  TrainingState& state = run.state;
  state.optimizer.zero_grad();
  vox::mse_loss(run.network(vox::ones({1, 1, 4, 4, 4})), vox::zeros({1, 1, 8, 8, 8})).backward();
  state.optimizer.step();
  state.history.loss.push_back(1.0f / static_cast<float>(++state.step));
}

TEST_F(MriCheckpoint, BringsEverythingBack) {
  const std::filesystem::path path = folder_ / "checkpoint.safetensors";
  SmallRun run(UINT64_MAX), restored_run(UINT64_MAX);
  TrainingState &state = run.state, &restored = restored_run.state;
  train_one_step(run);
  train_one_step(run);
  state.seconds = 12.5;
  state.history.evaluated_steps = {0, 2};
  state.history.evaluated_score = {30, 31};
  save_checkpoint(state, path);
  load_checkpoint(restored, path);
  EXPECT_EQ(restored.step, 2);
  EXPECT_EQ(restored.seconds, 12.5);
  EXPECT_EQ(restored.history.loss, state.history.loss);
  EXPECT_EQ(restored.history.evaluated_steps, state.history.evaluated_steps);
  EXPECT_EQ(restored.history.evaluated_score, state.history.evaluated_score);
  train_one_step(run);  // the optimiser's moments decide where this one goes
  train_one_step(restored_run);
  const auto a = state.network.named_parameters(), b = restored.network.named_parameters();
  for (size_t i = 0; i < a.size(); ++i) {
    EXPECT_EQ(a[i].second.to_vector<float>(), b[i].second.to_vector<float>()) << a[i].first;
  }
}

TEST_F(MriCheckpoint, RefusesOtherRunsAndDamage) {
  const std::filesystem::path path = folder_ / "checkpoint.safetensors";
  SmallRun run(1), other_seed(2), other_steps(1, 10);
  TrainingState& state = run.state;
  EXPECT_THROW(load_checkpoint(state, path), std::runtime_error);
  save_checkpoint(state, path);
  EXPECT_ERRORS(std::runtime_error, load_checkpoint(other_seed.state, path),
                load_checkpoint(other_steps.state, path));
  std::filesystem::resize_file(path, std::filesystem::file_size(path) - 1);
  EXPECT_THROW(load_checkpoint(state, path), std::runtime_error);
  vox::nn::save(path, state.network.state_dict());  // a good file, but no checkpoint
  EXPECT_THROW(load_checkpoint(state, path), std::runtime_error);
}

}  // namespace
}  // namespace mri
