// What the library promises when the system fails it, with failures at every place (inject.h).
#include "tests/failures/inject.h"
#include "tests/support/test.h"

namespace vox {
namespace {

constexpr Failing of_files[] = {Failing::allocation, Failing::file, Failing::interrupt,
                                Failing::short_transfer};
constexpr Failing of_threads[] = {Failing::allocation, Failing::thread};

void expect_old_or_new_file(const std::function<void(const std::filesystem::path&)>& save) {
  const TemporaryFolder folder;
  const std::filesystem::path file = folder / "file";
  save(file);
  const std::string complete = read_bytes(file), old = "old";
  for (const Failing kind : of_files) {
    fail_each(
        kind, [&] { write_bytes(file, old); }, [&] { save(file); },
        [&](bool returned) {
          const std::string bytes = read_bytes(file);
          EXPECT_TRUE(bytes == complete || (!returned && bytes == old)) << bytes;
          EXPECT_EQ(folder.entries(), 1);
        });
  }
}

TEST(Failures, ASavedFileIsTheOldOneOrTheNewOne) {
  const nn::StateDict tensors{{"a", ones({2, 3})}, {"b.c", full({4}, 2)}};
  expect_old_or_new_file([&](const auto& path) { nn::save(path, tensors, {{"k", "v"}}); });
}

TEST(Failures, ASavedArrayIsTheOldOneOrTheNewOne) {
  const Tensor x = ones({2, 3});
  expect_old_or_new_file([&](const auto& path) { save_npy(path, x); });
}

TEST(Failures, TheBytesReachTheDiskBeforeTheNameAndTheNameBeforeTheReturn) {
  const TemporaryFolder folder;
  std::string calls;
  testing::file_calls = &calls;
  save_npy(folder / "file", ones({2}));
  testing::file_calls = nullptr;
  EXPECT_EQ(calls, "open write write fsync close rename open fsync close ");
}

TEST(Failures, WhatALoadReturnsIsComplete) {
  const TemporaryFolder folder;
  const Tensor x = normal({5, 7}, {f32});
  nn::save(folder / "file", {{"x", x}}, {{"k", "v"}});
  save_npy(folder / "array", x);
  Tensor loaded, array;
  for (const Failing kind : of_files) {
    fail_each(
        kind, [&] { loaded = array = {}; },
        [&] {
          loaded = nn::load(folder / "file").tensors.at("x");
          array = load_npy(folder / "array");
        },
        [&](bool returned) { EXPECT_TRUE(!returned || (same_bits(loaded, x) && same_bits(array, x))); });
  }
}

TEST(Failures, ATapeIsFreedWithoutMemory) {
  Tensor y;
  fail_each(
      Failing::allocation,
      [&] {
        const Tensor x = ones({8}).set_requires_grad();
        y = x;
        for (int i = 0; i < 5; ++i) y = y * x + sin(y);
      },
      [&] {
        y = {};
        ::operator delete(::operator new(1));  // so that something is allocated
      },
      [](bool) {});
}

TEST(Failures, TensorsThatAreNotMadeHoldNoMemory) {
  for (const Tensor& warm : {ones({1000}), ones({1000})}) ASSERT_TRUE(warm.defined());
  int64_t before = 0;
  fail_each(
      Failing::allocation, [&] { before = memory_stats().in_use; }, [] { const Tensor x = ones({1000}) + 1; },
      [&](bool) { EXPECT_EQ(memory_stats().in_use, before); });
}

TEST(Failures, ALoaderThrowsAndTheNextEpochHasAllBatches) {
  const data::Loader loader(
      6, [](int64_t i, Generator& random) { return data::Sample{full({2}, i) + rand({2}, {}, random)}; },
      {.batch_size = 2, .shuffle = true, .threads = 2});
  const auto batches = [&] {
    std::vector<Tensor> all;
    for (const data::Sample& batch : loader.epoch(0)) all.push_back(batch[0]);
    return cat(all, 0);
  };
  const Tensor expected = batches();
  for (const Failing kind : of_threads) {
    Tensor got;
    fail_each(
        kind, [&] { got = {}; }, [&] { got = batches(); },
        [&](bool returned) { EXPECT_TRUE(same_bits(returned ? got : batches(), expected)); });
  }
}

TEST(Failures, ASummaryLeavesTheNetworkAsItWas) {
  nn::Sequential network{nn::Conv3d({.in_channels = 1, .out_channels = 2, .kernel_size = 1}),
                         nn::BatchNorm3d({.num_features = 2}), nn::ReLU()};
  network.train();
  const Tensor x = ones({1, 1, 2, 2, 2});
  fail_each(
      Failing::allocation, [] {}, [&] { (void)nn::summary(network, x); },
      [&](bool) {
        for (const auto& [name, module] : network.named_modules()) {
          EXPECT_TRUE(module->is_training()) << name;
          EXPECT_FALSE(module->has_forward_hooks()) << name;
        }
      });
}

/// The next parallel_for() starts the threads.
void restart_threads(int threads) {
  set_num_threads(1);
  set_num_threads(threads);
}

void expect_whole_step(bool dense) {
  const Tensor gradient = full({3, 20000}, 0.5), small_gradient = ones({2});
  Tensor small, big;
  std::optional<optim::SGD> sgd;
  for (const Failing kind : of_threads) {
    fail_each(
        kind,
        [&] {
          small = ones({2}).set_requires_grad();
          small.set_grad(small_gradient);
          big = dense ? ones({3, 20000}) : ones({20000, 3}).transpose(0, 1);
          big.set_requires_grad().set_grad(gradient);
          sgd.emplace(std::vector<Tensor>{small}, optim::SGD::Options{.lr = 1});
          sgd->add_group({big}, {.lr = 0.5, .momentum = dense ? 0 : 0.5});
          restart_threads(2);
        },
        [&] { sgd->step(); },
        [&](bool returned) {
          EXPECT_EQ(sgd->steps(), returned);
          EXPECT_TRUE(equal(small, full({2}, returned ? 0 : 1)));
          EXPECT_TRUE(equal(big, full({3, 20000}, returned ? 0.75 : 1.0)));
        });
  }
}

TEST(Failures, AStepChangesEverythingOrNothing) {
  expect_whole_step(false);
  expect_whole_step(true);  // nothing but the update itself shares its work among threads
}

/// A network of most kinds of layers, and a step of its training.
struct Training {
  nn::Sequential network{
      nn::Conv3d({.in_channels = 1, .out_channels = 4, .kernel_size = 3, .padding = 1}),
      nn::GroupNorm({.num_groups = 2, .num_channels = 4}),
      nn::LeakyReLU(),
      nn::Dropout({.p = 0.25}),
      nn::Conv3d({.in_channels = 4, .out_channels = 4, .kernel_size = 2, .stride = 2}),
      nn::InstanceNorm3d({.num_features = 4, .affine = true}),
      nn::ReLU(),
      nn::ConvTranspose3d({.in_channels = 4, .out_channels = 2, .kernel_size = 2, .stride = 2})};
  optim::AdamW optimizer{network.parameters(), {.lr = 0.01}};
  const Tensor x = normal({1, 1, 4, 4, 4}, {f32});
  const Tensor target = gt(normal({1, 4, 4, 4}, {f32}, 2), 0).to(i64);

  explicit Training(const nn::StateDict& start) { network.load_state_dict(start, false); }
  void step() {
    manual_seed(7);
    optimizer.zero_grad();
    const Tensor y = network(x), p = softmax(y, 1).select(1, 1);
    const Tensor loss = cross_entropy(y, target) + soft_dice_loss(p, target.to(f32), {1, 2, 3}, 1);
    loss.backward();
    (void)optim::clip_grad_norm_(network.parameters(), 1);
    optimizer.step();
  }
};

TEST(Failures, AStepThatFailedCanBeRepeatedWithTheSameBits) {
  manual_seed(1);
  nn::StateDict start;
  for (const auto& [name, t] : Training({}).network.state_dict()) start[name] = t.clone();
  Training expected(start);
  expected.step();
  std::optional<Training> training;
  const auto fail_each_of = [&](Failing kind, int threads, int64_t stride, int64_t stride_all) {
    fail_each(
        kind,
        [&] {
          training.emplace(start);
          restart_threads(threads);
        },
        [&] { training->step(); },
        [&](bool returned) {
          if (!returned) training->step();
          const nn::StateDict got = training->network.state_dict();
          for (const auto& [name, t] : expected.network.state_dict())
            EXPECT_TRUE(same_bits(t, got.at(name))) << name;
        },
        stride, stride_all);
  };
  fail_each_of(Failing::thread, 2, 1, 1);
  fail_each_of(Failing::allocation, 1, 1, 10);
  fail_each_of(Failing::allocation, 2, 13, 130);  // with threads, which take time to start
}

}  // namespace
}  // namespace vox
