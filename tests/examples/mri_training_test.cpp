// What training relies on: planes that stay apart, patches that are a function of the step, a network whose
// receptive field is what it says, tiles that fit together, checkpoints that restore everything.
#include "mri_images.h"
#include "network.h"
#include "patches.h"
#include "tests/support/test.h"
#include "training.h"

namespace mri {
namespace {

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
  save_weights(state.network, path);  // a good file, but no checkpoint
  EXPECT_THROW(load_checkpoint(state, path), std::runtime_error);
}

}  // namespace
}  // namespace mri
