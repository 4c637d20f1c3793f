// A run that is saved, loaded and continued gives the bits of an unbroken one. A write that fails is among
// the failures of nn::save (tests/failures).
#include "tests/support/test.h"

namespace vox::nn {
namespace {

struct Network : Module {
  Linear first{{.in_features = 6, .out_features = 8}}, last{{.in_features = 8, .out_features = 2}};
  Dropout dropout{{.p = 0.4}};
  VOXGRAD_MODULE(first, dropout, last)
  Tensor forward(const Tensor& x) { return last(dropout(relu(first(x)))); }
};

/// A whole training run: everything that a step reads is a part of the checkpoint.
struct TrainingRun {
  TrainingRun(Device device, uint64_t seed) : network((manual_seed(seed), Network())) {
    network.to(device);
    average.emplace(network, optim::AverageOptions{.decay = 0.9});
    checkpoint.add("network", network);
    checkpoint.add("average", *average);
    checkpoint.add("adam", adam);
    checkpoint.add("plateau", plateau);
    checkpoint.add("scaler", scaler);
    checkpoint.add("random", default_generator());
    checkpoint.add("step", step);
    checkpoint.add("best", best);
    checkpoint.add("losses", losses);
  }

  void train(int64_t steps) {
    const Device device = network.first.weight.device();
    for (const int64_t end = step + steps; step < end; ++step) {
      adam.zero_grad();
      const Tensor loss = abs(network(randn({5, 6}, {f32, device}))).mean();
      scaler.scale(loss).backward();
      scaler.step(adam);
      scaler.update();
      average->update();
      plateau.step(loss.item());
      losses.push_back(loss.item<float>());
      best = std::min(best, loss.item());
    }
  }

  Network network;
  optim::AdamW adam{network.parameters(), {.lr = 0.01}};
  optim::ReduceLROnPlateau plateau{adam, {.patience = 1}};
  optim::GradScaler scaler{{.init_scale = 8, .growth_interval = 3}};
  std::optional<optim::ExponentialMovingAverage> average;
  int64_t step = 0;
  double best = 1e30;
  Floats losses;
  Checkpoint checkpoint;
};

class CheckpointTest : public DeviceTest {
 protected:
  TemporaryFolder folder_;
  std::filesystem::path path_ = folder_ / "run.safetensors";
};
INSTANTIATE_TEST_SUITE_P(, CheckpointTest, devices(), device_name);

TEST_P(CheckpointTest, AResumedRunHasTheBitsOfAnUnbrokenOne) {
  TrainingRun unbroken(device(), 7);
  unbroken.train(20);
  unbroken.checkpoint.save(folder_ / "unbroken.safetensors");

  TrainingRun first(device(), 7);
  first.train(10);
  first.checkpoint.save(path_, {{"note", "half"}});
  TrainingRun second(device(), 99);  // other weights and random numbers
  second.train(3);
  EXPECT_EQ(second.checkpoint.load(path_), (Metadata{{"note", "half"}}));
  EXPECT_EQ(second.step, 10);
  second.train(10);
  second.checkpoint.save(path_);
  EXPECT_EQ(second.losses, unbroken.losses);
  EXPECT_TRUE(read_bytes(path_) == read_bytes(folder_ / "unbroken.safetensors"));
}

TEST_P(CheckpointTest, AFileThatDoesNotFitChangesNothing) {
  TrainingRun run(device(), 1);
  run.train(2);
  run.checkpoint.save(path_);
  const std::string before = read_bytes(path_);
  LoadedFile file = load(path_);
  for (const char* count : {"plateau.num_bad_epochs", "plateau.cooldown_counter", "scaler.growth_tracker"})
    EXPECT_EQ(file.tensors.at(count).dtype(), i64) << count;
  const auto refused = [&](const char* text, auto change) {
    StateDict damaged = file.tensors;
    change(damaged);
    save(folder_ / "damaged.safetensors", damaged);
    EXPECT_REFUSED(Error, run.checkpoint.load(folder_ / "damaged.safetensors"), text);
    run.checkpoint.save(folder_ / "after.safetensors");
    EXPECT_TRUE(read_bytes(folder_ / "after.safetensors") == before) << text;
  };
  refused("has no part 'step'", [](StateDict& d) { d.erase("step.value"); });
  refused("has a part 'ema'", [](StateDict& d) { d["ema.weight"] = ones({1}); });
  refused("has a part 'loose'", [](StateDict& d) { d["loose"] = ones({1}); });
  refused("'random': a generator has 2", [](StateDict& d) { d["random.value"] = zeros({3}, {i64}); });
  refused("'losses': the file has no value", [](StateDict& d) { d["losses.other"] = ones({1}); });
  refused("'step'", [](StateDict& d) { d["step.value"] = zeros({2}, {i64}); });
  refused("'network'", [](StateDict& d) { d.erase("network.last.bias"); });
  refused("'scaler'", [](StateDict& d) { d["scaler.scale"] = full({}, -1, {f64}); });
  refused("'scaler': GradScaler::load_state_dict: 'scale': item: needs exactly one element, got shape (3,)",
          [](StateDict& d) { d["scaler.scale"] = ones({3}, {f64}); });
  refused("'growth_tracker' is missing", [](StateDict& d) { d.erase("scaler.growth_tracker"); });
  refused("'best' is missing", [](StateDict& d) { d.erase("plateau.best"); });
  refused("'plateau'", [](StateDict& d) { d["plateau.lr"] = ones({2}, {f64}); });
  EXPECT_THROW(run.checkpoint.load(folder_ / "missing.safetensors"), IoError);
}

TEST(Checkpoint, RefusesNamesThatCannotBeTold) {
  Checkpoint checkpoint;
  int64_t number = 0;
  checkpoint.add("a", number);
  EXPECT_ERRORS(ValueError, checkpoint.add("a", number), checkpoint.add("a.b", number),
                checkpoint.add("", number));
}

}  // namespace
}  // namespace vox::nn
