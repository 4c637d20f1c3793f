// What the library promises when the system fails it, with failures at every place (inject.h).
#include "tests/failures/fail_each.h"
#include "tests/support/test.h"
#include "tests/support/tree.h"

#if VOXGRAD_INJECTS_CUDA
#include <sys/wait.h>
#include <unistd.h>

#include "tests/failures/inject_cuda.h"
#endif
#if VOXGRAD_HAS_NNUNET
#include <nlohmann/json.hpp>

#include <voxgrad/image/image.h>

#include "train.h"
#endif

namespace vox {
namespace {

constexpr Failing of_files[] = {Failing::allocation, Failing::file, Failing::interrupt,
                                Failing::short_transfer};
constexpr std::array of_threads{Failing::allocation, Failing::thread};

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

TEST(Failures, AContinuedLogKeepsItsRows) {
  const TemporaryFolder folder;
  const std::string old = "step,a much longer name\n1,0.25\n2,0.125\n";
  const std::vector<std::string> columns{"step", "a much longer name"};
  for (const Failing kind : of_files) {
    fail_each(
        kind, [&] { write_bytes(folder / "log", old); },
        [&] {
          nn::CsvLog(folder / "log", columns, 2).row({3, 4});
        },
        [&](bool returned) { EXPECT_EQ(read_bytes(folder / "log"), returned ? old + "3,4\n" : old); });
  }
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
  std::filesystem::copy_file(testing::tree / "tests/fuzz/corpus/npy/stored.npz", folder / "archive");
  Tensor loaded, array, member;
  for (const Failing kind : of_files) {
    fail_each(
        kind, [&] { loaded = array = member = {}; },
        [&] {
          loaded = nn::load(folder / "file").tensors.at("x");
          array = load_npy(folder / "array");
          member = load_npz(folder / "archive").at("a");
        },
        [&](bool returned) {
          EXPECT_TRUE(!returned || (same_bits(loaded, x) && same_bits(array, x) && sum(member).item() == 15));
        });
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

void expect_whole_step(bool dense, std::array<Failing, 2> kinds, Device device = Device::cpu()) {
  const Tensor gradient = full({3, 20000}, 0.5, device), small_gradient = ones({2}, device);
  Tensor small, big;
  std::optional<optim::SGD> sgd;
  for (const Failing kind : kinds) {
    fail_each(
        kind,
        [&] {
          small = ones({2}, device).set_requires_grad();
          small.set_grad(small_gradient);
          big = dense ? ones({3, 20000}, device) : ones({20000, 3}, device).transpose(0, 1);
          big.set_requires_grad().set_grad(gradient);
          sgd.emplace(std::vector<Tensor>{small}, optim::SGD::Options{.lr = 1});
          sgd->add_group({big}, {.lr = 0.5, .momentum = dense ? 0 : 0.5});
          restart_threads(2);
        },
        [&] { sgd->step(); },
        [&](bool returned) {
          EXPECT_EQ(sgd->steps(), returned);
          EXPECT_TRUE(equal(small, full({2}, returned ? 0 : 1, device)));
          EXPECT_TRUE(equal(big, full({3, 20000}, returned ? 0.75 : 1.0, device)));
        });
  }
}

TEST(Failures, AStepChangesEverythingOrNothing) {
  expect_whole_step(false, of_threads);
  expect_whole_step(true, of_threads);  // nothing but the update itself shares its work among threads
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
  Tensor x = normal({1, 1, 4, 4, 4}, {f32});
  Tensor target = gt(normal({1, 4, 4, 4}, {f32}, 2), 0).to(i64);

  explicit Training(const nn::StateDict& start, Device device = Device::cpu()) {
    network.load_state_dict(start, false);
    network.to(device);
    x = x.to(device), target = target.to(device);
  }
  void backward() {
    manual_seed(7);
    optimizer.zero_grad();
    const Tensor y = network(x), p = softmax(y, 1).select(1, 1);
    const Tensor loss = cross_entropy(y, target) + soft_dice_loss(p, target.to(f32), {1, 2, 3}, 1);
    loss.backward();
  }
  void step() {
    backward();
    (void)optim::clip_grad_norm_(network.parameters(), 1);
    optimizer.step();
  }
  /// A state of the network to start from.
  static nn::StateDict some() {
    manual_seed(1);
    nn::StateDict start;
    for (const auto& [name, t] : Training({}).network.state_dict()) start[name] = t.clone();
    return start;
  }
};

void expect_same_bits(nn::Sequential& got, nn::Sequential& expected) {
  const nn::StateDict state = got.state_dict();
  for (const auto& [name, t] : expected.state_dict()) EXPECT_TRUE(same_bits(t, state.at(name))) << name;
}

TEST(Failures, AStepThatFailedCanBeRepeatedWithTheSameBits) {
  const nn::StateDict start = Training::some();
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
          training->optimizer.load_state_dict(training->optimizer.state_dict());  // which is whole
          if (!returned) training->step();
          expect_same_bits(training->network, expected.network);
        },
        stride, stride_all);
  };
  fail_each_of(Failing::thread, 2, 1, 1);
  fail_each_of(Failing::allocation, 1, 1, 10);
  fail_each_of(Failing::allocation, 2, 13, 130);  // with threads, which take time to start
}

#if VOXGRAD_HAS_NNUNET

/// voxgrad_nnunet on two small cases.
class NnunetFailures : public ::testing::Test {
 public:
  using path = std::filesystem::path;
  NnunetFailures() {
    set_num_threads(1);  // more keep memory of their own
    for (const char* part : {"imagesTr", "labelsTr", "masks"}) create_directory(folder / part);
    const path recorded = path(data_dir) / "nnunet/iso";
    copy(recorded / "dataset.json", folder / "dataset.json");
    auto plans = nlohmann::json::parse(read_bytes(recorded / "plans.json"));
    plans["configurations"]["3d_fullres"]["patch_size"] = {8, 8, 8};
    write_bytes(folder / "plans.json", plans.dump());
    for (const char* name : {"a", "b"}) {
      Image image{.data = normal({9, 10, 11}, {f32}), .spacing = {1, 1, 1}};
      write_image(folder / str("imagesTr/", name, "_0000.nii.gz").c_str(), image);
      image.data = (gt(image.data, 0).to(i64) + gt(image.data, 1).to(i64)).to(u8);
      write_image(folder / str("labelsTr/", name, ".nii.gz").c_str(), image);
    }
  }
  /// Names and contents.
  std::map<std::string, std::string> files(const char* part) const {
    std::map<std::string, std::string> all;
    for (const auto& entry : std::filesystem::recursive_directory_iterator(folder / part))
      if (entry.is_regular_file())
        all[relative(entry.path(), folder.path()).string()] = read_bytes(entry.path());
    std::erase_if(
        all, [](const auto& file) { return file.first.find("tfevents") != file.first.npos; });  // the time
    return all;
  }
  void train() const {
    nnunet::train({.data = folder.path(),
                   .plans = folder / "plans.json",
                   .output = folder / "model",
                   .fold = "all",
                   .epochs = 1,
                   .iterations = 1,
                   .validation_iterations = 1},
                  [](auto&) {});
  }
  /// Where allocations fail, the model is read before: destructors of nlohmann::json allocate, so a parser
  /// that runs out of memory may end the process.
  void predict() const {
    nnunet::predict_folder(failing == Failing::allocation ? model.value() : read_model(), folder / "imagesTr",
                           folder / "masks", {}, {.step = 1, .mirror = false}, [](auto&) {});
  }
  nnunet::Model read_model() const { return nnunet::read_model(folder / "model", {"all"}); }
  /// Fails every stride-th file operation and 1000 * stride-th allocation of f, which writes below folder /
  /// part: each file is the whole new one, or the old one if there was one.
  void fail_all(const char* part, bool old, int64_t stride, void (NnunetFailures::*f)() const) const {
    (this->*f)();
    const auto complete = files(part);
    for (const Failing kind : of_files)
      fail_each(
          kind,
          [&] {
            remove_all(folder / part);
            create_directory(folder / part);
            for (const auto& [name, bytes] : complete)
              if (old) write_bytes(folder / name.c_str(), "old");
          },
          [&] { (this->*f)(); },
          [&](bool returned) {
            const auto all = files(part);
            EXPECT_TRUE(!returned || all.size() == complete.size());
            for (const auto& [name, bytes] : all) {
              ASSERT_TRUE(complete.contains(name)) << name;
              const std::string& whole = complete.at(name);
              const bool grows = name.ends_with(".csv");
              EXPECT_TRUE(bytes == whole || (!returned && old && bytes == "old") ||
                          (!returned && grows && whole.starts_with(bytes)))
                  << name << ": " << bytes.size() << " bytes of " << whole.size();
            }
          },
          kind == Failing::allocation ? 1000 * stride : stride,
          kind == Failing::allocation ? 10'000 * stride : 10 * stride);
  }

  const TemporaryFolder folder;
  std::optional<nnunet::Model> model;
};

TEST_F(NnunetFailures, Predict) {
  train();
  model = read_model();
  fail_all("masks", true, 1, &NnunetFailures::predict);
}

TEST_F(NnunetFailures, Train) { fail_all("model", false, 5, &NnunetFailures::train); }

#endif

#if VOXGRAD_INJECTS_CUDA

TEST(Failures, CallsOfCudaFailOnPurpose) {
  failing = Failing::cuda, one_fails = true, calls_left = 0;
  EXPECT_EQ(cudaDeviceSynchronize(), cuda_code);
  EXPECT_EQ(cudaGetLastError(), cuda_code);
  EXPECT_NE(cudaGetLastError(), cuda_code);
  calls_left = -1;
}

// The first use of CUDA makes a context, a pool and a stream, and asks what the GPU can do: each trial is a
// new process. Sums of whole numbers are exact, so the CPU gives the same bits.
TEST_F(CudaTest, FirstUseFailsAtEachCallAndWorksThen) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const Tensor x = randint(-3, 4, {1, 2, 5, 5, 5}).to(f32), w = randint(-3, 4, {3, 2, 3, 3, 3}).to(f32);
  const Tensor expected = conv3d(x, w);
  const auto on_gpu = [&] { return conv3d(x.to(Device::cuda()), w.to(Device::cuda())).to(Device::cpu()); };
  enum Status { right = 10, not_reached, wrong };
  const auto trial = [&](int64_t n) {
    failing = Failing::cuda, cuda_says = "cudaErrorUnknown";
    (void)returns_without(n, [&] { (void)on_gpu(); });
    const bool reached = failed;
    if (HasFailure() || !same_bits(on_gpu(), expected)) return wrong;
    return reached ? right : not_reached;
  };
  int64_t n = 0;
  for (int status = right; status == right && !HasFailure(); ++n) {
    const auto knows = [&](int s) { return (status = WEXITSTATUS(s)) == right || status == not_reached; };
    EXPECT_EXIT(_exit(trial(n)), knows, "") << "call " << n;
  }
  EXPECT_GT(n, 10);
}

class CudaFailures : public CudaTest {
 protected:
  void SetUp() override {
    CudaTest::SetUp();
    set_num_threads(1);  // more keep memory of their own
    if (!IsSkipped()) resources = cuda_resources;
  }
  void TearDown() override { resources = open_files; }

  static std::string cuda_resources() {
    const auto in_use = cuda::memory_stats().in_use;  // frees what could not be freed before
    const CudaLive& l = cuda_live;
    return str(open_files(), ", ", l.blocks, " blocks of ", in_use, " bytes, ", l.pinned, " pinned, ",
               l.streams, " streams, ", l.events, " events, ", l.graphs, " graphs, ", l.executables,
               " executable ones, ", l.captures, " captures, ", l.relaxed, " relaxed");
  }
  /// Fails calls of CUDA, its memory, and allocations of the host.
  static void fail_all(const std::function<void()>& before, const std::function<void()>& f,
                       const std::function<void(bool)>& after, int64_t stride_of_allocations = 3) {
    cuda_code = cudaErrorUnknown, cuda_says = "cudaErrorUnknown";
    fail_each(Failing::cuda, before, f, after, 1, 10);
    cuda_code = cudaErrorMemoryAllocation, cuda_says = "cannot allocate";
    fail_each(Failing::cuda_memory, before, f, after);
    fail_each(Failing::allocation, before, f, after, stride_of_allocations, 10 * stride_of_allocations);
  }

  const Device device = Device::cuda();
};

TEST_F(CudaFailures, AStepThatFailedCanBeRepeatedWithTheSameBits) {
  const nn::StateDict start = Training::some();
  Training expected(start, device);
  const optim::Optimizer::State start_of_optimizer = expected.optimizer.state_dict();
  expected.step();
  std::optional<Training> training;
  fail_all([&] { training.emplace(start, device); }, [&] { training->step(); },
           [&](bool returned) {
             if (!returned) {  // perhaps within the optimiser's step
               training->network.load_state_dict(start);
               training->optimizer.load_state_dict(start_of_optimizer);
               training->step();
             }
             expect_same_bits(training->network, expected.network);
           },
           20);
}

TEST_F(CudaFailures, MemoryThatIsShortLeavesAStepWhole) {
  cuda_code = cudaErrorMemoryAllocation, cuda_says = "cannot allocate";
  expect_whole_step(true, {Failing::allocation, Failing::cuda_memory}, device);
}

TEST_F(CudaFailures, ACapturedGraph) {
  Training training(Training::some(), device);
  const auto gradients = [&] {
    std::vector<Tensor> all;
    for (const Tensor& p : training.network.parameters()) all.push_back(p.grad().to(Device::cpu()));
    return all;
  };
  training.backward();
  const std::vector<Tensor> expected = gradients();
  const auto run = [&] {
    const cuda::Graph graph([&] { training.backward(); });
    graph.replay();
    cuda::synchronize();
    const std::vector<Tensor> got = gradients();
    for (size_t i = 0; i < got.size(); ++i) EXPECT_TRUE(same_bits(got[i], expected[i])) << i;
  };
  fail_all([&] { training.optimizer.zero_grad(); }, run,
           [&](bool returned) {
             if (!returned) run();
             training.optimizer.zero_grad();
           });
}

TEST_F(CudaFailures, SaveAndLoad) {
  const TemporaryFolder folder;
  const std::filesystem::path file = folder / "file";
  const nn::StateDict tensors{{"a", normal({2, 3}, device)}, {"b", full({4}, 2, device).to(bf16)}};
  nn::save(file, tensors);
  const std::string complete = read_bytes(file), old = "old";
  nn::StateDict loaded;
  fail_all([&] { write_bytes(file, old), loaded.clear(); },
           [&] {
             nn::save(file, tensors);
             loaded = nn::load(file, device).tensors;
           },
           [&](bool returned) {
             const std::string bytes = read_bytes(file);
             EXPECT_TRUE(bytes == complete || (!returned && bytes == old));
             for (const auto& [name, t] : loaded) EXPECT_TRUE(same_bits(t, tensors.at(name)));
             EXPECT_EQ(loaded.size(), returned ? 2u : 0u);
           },
           10);
}

TEST_F(CudaFailures, StreamsEventsAndPinnedMemory) {
  const data::Loader loader(4, [](int64_t i, Generator&) { return data::Sample{full({2}, i)}; },
                            {.batch_size = 2, .device = device});
  const auto run = [&] {
    const cuda::Event begin, end;
    const cuda::Stream side;
    Tensor sum = zeros({2}, device);
    begin.record();
    side.wait(cuda::current_stream());
    for (const data::Sample& batch : loader.epoch(0)) {
      const cuda::StreamGuard guard(side);
      sum = sum + batch[0].sum(0);  // memory of two streams
    }
    cuda::current_stream().wait(side);
    end.record();
    EXPECT_GE(end.milliseconds_since(begin), 0);
    EXPECT_EQ(sum[1].item(), 6);
  };
  fail_all([] {}, run,
           [&](bool returned) {
             if (!returned) run();
           });
}

TEST_F(CudaFailures, AfterAStickyErrorTheMessageSaysThatTheProcessMustEnd) {
  const nn::StateDict start = Training::some();
  std::optional<Training> training;
  cuda_says = "must end";
  for (const cudaError_t code :
       {cudaErrorIllegalAddress, cudaErrorLaunchFailure, cudaErrorECCUncorrectable}) {
    cuda_code = code;
    fail_each(
        Failing::cuda, [&] { training.emplace(start, device); }, [&] { training->step(); }, [](bool) {}, 50,
        50);
  }
}

#endif

}  // namespace
}  // namespace vox
