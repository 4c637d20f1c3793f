#include <voxgrad/dist/data_parallel.h>
#include <voxgrad/dist/dist.h>
#include <voxgrad/dist/sampler.h>
#include <voxgrad/dist/sync_batch_norm.h>

#include "tests/support/test.h"

namespace {

using namespace vox;
using namespace vox::testing;
namespace dist = vox::dist;
using dist::DataParallel;
using dist::Reduce;

/// On the CPU, and on a GPU for each rank; instantiated with devices(), as a DeviceTest.
class RanksTest : public ::testing::TestWithParam<Device> {
 protected:
  void SetUp() override {
    if (GetParam().is_cpu()) return;
    if (cuda::device_count() < dist::size()) GTEST_SKIP() << "needs a GPU for each rank";
    device = Device::cuda(dist::local_rank());
  }
  static Doubles values(const Tensor& t) { return t.to(f64).to_vector<double>(); }

  const int rank = dist::rank(), size = dist::size();
  Device device = Device::cpu();
};

class Collectives : public RanksTest {
 protected:
  Tensor vec(const Doubles& elements, DType dtype = f32) const {
    return from_vector(elements, {static_cast<int64_t>(elements.size())}).to(dtype).to(device);
  }
  const double r = rank, n = size, all = n * (n + 1) / 2;  // 1 + 2 + ... + size
};
INSTANTIATE_TEST_SUITE_P(, Collectives, devices(), device_name);

TEST_P(Collectives, AllReduceCombinesEveryDtype) {
  for (const DType dtype : {f32, f64, i64, u8, bf16, f16}) {
    SCOPED_TRACE(to_string(dtype));
    const Tensor x = vec({r + 1, 5, 2 * r}, dtype);
    EXPECT_EQ(dist::all_reduce(x).dtype(), dtype);
    EXPECT_NE(dist::all_reduce(x).impl()->storage, x.impl()->storage);
    EXPECT_EQ(values(dist::all_reduce(x)), (Doubles{all, 5 * n, 2 * (all - n)}));
    EXPECT_EQ(values(dist::all_reduce(x, Reduce::max)), (Doubles{n, 5, 2 * n - 2}));
    EXPECT_EQ(values(dist::all_reduce(x, Reduce::min)), (Doubles{1, 5, 0}));
    EXPECT_EQ(values(x), (Doubles{r + 1, 5, 2 * r}));  // is not written to
    if (is_floating(dtype)) {
      EXPECT_EQ(values(dist::all_reduce(x * n, Reduce::mean)), (Doubles{all, 5 * n, 2 * (all - n)}));
    }
  }
  const Tensor mine = vec({rank == 0 ? 1. : 0.}, boolean);
  EXPECT_EQ(dist::all_reduce(mine, Reduce::max).item<bool>(), true);
  EXPECT_EQ(dist::all_reduce(mine, Reduce::min).item<bool>(), size == 1);
}

TEST_P(Collectives, TakeStridedEmptyAndScalarTensors) {
  const Tensor x = vec({0, 1, 2, 3, 4, 5}).reshape({2, 3}) * (r + 1);
  const Tensor sum = dist::all_reduce(x.transpose(0, 1));
  EXPECT_EQ(sum.shape(), (Shape{3, 2}));
  EXPECT_EQ(values(sum), (Doubles{0, 3 * all, all, 4 * all, 2 * all, 5 * all}));
  EXPECT_EQ(dist::all_reduce(zeros({0, 3}, {.device = device})).shape(), (Shape{0, 3}));
  EXPECT_EQ(dist::all_gather(zeros({0, 3}, {.device = device})).shape(), (Shape{0, 3}));
  EXPECT_EQ(values(dist::all_reduce(full({}, 2, {.device = device})))[0], 2 * size);
}

TEST_P(Collectives, BroadcastGatherAndScatter) {
  for (int root = 0; root < size; ++root) {
    const Tensor x = vec({r, r + 10});
    const double from = root;
    EXPECT_EQ(values(dist::broadcast(x, root)), (Doubles{from, from + 10}));
    EXPECT_EQ(values(x), (Doubles{r, r + 10}));
  }
  Doubles gathered, ramp;
  for (int i = 0; i < size; ++i) {
    const double v = i;
    gathered.insert(gathered.end(), {v, -v});
    ramp.insert(ramp.end(), {2 * v, 2 * v + 1});
  }
  EXPECT_EQ(values(dist::all_gather(vec({r, -r}))), gathered);
  EXPECT_EQ(values(dist::reduce_scatter(vec(ramp))), (Doubles{n * 2 * r, n * (2 * r + 1)}));
}

// The gradient is that of the sum of all ranks' losses; each rank weighs its result by rank + 1.
TEST_P(Collectives, GradientsOfTheSumOfAllLosses) {
  const auto gradient = [&](auto f, Doubles x_values) {
    Tensor x = vec(std::move(x_values)).set_requires_grad();
    (f(x) * (r + 1)).sum().backward();
    return values(x.grad());
  };
  EXPECT_EQ(gradient([](const Tensor& x) { return dist::all_reduce(x); }, {1, 2}), (Doubles{all, all}));
  EXPECT_EQ(gradient([&](const Tensor& x) { return dist::all_reduce(x * n, Reduce::mean); }, {1, 2}),
            (Doubles{all, all}));
  const double of_root = rank == size - 1 ? all : 0;
  EXPECT_EQ(gradient([&](const Tensor& x) { return dist::broadcast(x, size - 1); }, {1, 2}),
            (Doubles{of_root, of_root}));
  EXPECT_EQ(gradient([](const Tensor& x) { return dist::all_gather(x); }, {1, 2}), (Doubles{all, all}));
  Doubles weights;
  for (int i = 0; i < size; ++i) weights.push_back(i + 1);
  EXPECT_EQ(gradient([](const Tensor& x) { return dist::reduce_scatter(x); }, Doubles(size, 1)), weights);
}

TEST_P(Collectives, SecondGradient) {
  Tensor x = vec({r + 1}).set_requires_grad();
  const Tensor y = dist::all_reduce(x * x);  // of the sum of all losses: d/dx = 2 x n, d2/dx2 = 2 n
  const Tensor g = grad({y}, {x}, {.create_graph = true})[0];
  EXPECT_EQ(values(g)[0], 2 * (r + 1) * n);
  EXPECT_EQ(values(grad({g}, {x})[0])[0], 2 * size);
}

TEST_P(Collectives, RefuseWhatTheyCannotDo) {
  EXPECT_ERRORS(ValueError, dist::all_reduce({}), dist::broadcast(vec({1}), size),
                dist::broadcast(vec({1}), -1));
  EXPECT_ERRORS(DTypeError, dist::all_reduce(vec({1}, i64), Reduce::mean),
                dist::all_reduce(vec({1}, boolean)), dist::reduce_scatter(zeros({size}, {boolean, device})));
  EXPECT_MESSAGE(DTypeError, dist::all_reduce(zeros({1}, {i32, device})),
                 "all_reduce: no op computes in dtype i32");
  EXPECT_THROW(dist::all_reduce(vec({1}).set_requires_grad(), Reduce::max), GradError);
  EXPECT_THROW(dist::all_gather(full({}, 1, {.device = device})), ShapeError);
  if (size > 1) {
    EXPECT_THROW(dist::reduce_scatter(zeros({size + 1}, {.device = device})), ShapeError);
  }
  dist::barrier();
}

TEST_P(Collectives, EqualBitsOnAllRanksAndInAllRuns) {
  Generator generator(static_cast<uint64_t>(rank));
  const Tensor x = randn({100'003}, {.device = device}, generator);
  const Tensor once = dist::all_reduce(x);
  EXPECT_TRUE(same_bits(dist::all_reduce(x), once));
  EXPECT_TRUE(same_bits(dist::broadcast(once), once));
}

TEST(DistInit, MayBeCalledOnce) { EXPECT_THROW(dist::init(), DistError); }
TEST(DistInit, CountsTheRanksOfThisMachine) { EXPECT_EQ(dist::local_rank(), dist::rank()); }

class DataParallelTest : public RanksTest {
 protected:
  static double largest(const Tensor& t) { return t.numel() == 0 ? 0 : abs(t).max().to(f64).item<double>(); }

  /// The same network on every rank: convolution, norm, ReLU, convolution.
  nn::Sequential network(DType dtype = f64) const {
    manual_seed(1);
    nn::Sequential net{nn::Conv3d({.in_channels = 1, .out_channels = 4, .kernel_size = 3, .padding = 1}),
                       nn::GroupNorm({.num_groups = 2, .num_channels = 4}), nn::ReLU(),
                       nn::Conv3d({.in_channels = 4, .out_channels = 2, .kernel_size = 3})};
    net.to(dtype).to(device);
    return net;
  }
  /// The same batch on every rank.
  Tensor batch(int64_t samples, DType dtype = f64) const {
    Generator generator(7);
    return randn({samples, 1, 5, 4, 6}, {.dtype = dtype, .device = device}, generator);
  }
  /// This rank's part of a batch, and its share.
  std::pair<Tensor, double> part(const Tensor& x) const {
    const int64_t n = x.size(0), begin = n * rank / size, end = n * (rank + 1) / size;
    return {x.slice(0, begin, end), static_cast<double>(end - begin) / static_cast<double>(n)};
  }
  static Tensor loss_of(nn::Sequential& net, const Tensor& x) {
    const Tensor y = net(x);
    return (y * y * y).mean();
  }
  /// The gradients that one process computes from the whole batch.
  std::vector<Tensor> whole(const Tensor& x) const {
    nn::Sequential net = network(x.dtype());
    loss_of(net, x).backward();
    std::vector<Tensor> gradients;
    for (const Tensor& p : net.parameters()) gradients.push_back(p.grad());
    return gradients;
  }
  static void expect_near(const nn::Module& net, const std::vector<Tensor>& expected, double tolerance) {
    const std::vector<nn::NamedTensor> parameters = net.named_parameters();
    for (size_t i = 0; i < parameters.size(); ++i) {
      SCOPED_TRACE(parameters[i].first);
      const Tensor difference = parameters[i].second.grad() - expected[i];
      EXPECT_LE(largest(difference), tolerance * largest(expected[i]));
    }
  }
  static void expect_equal_on_all_ranks(const Tensor& t) {
    EXPECT_EQ(values(dist::all_reduce(t.detach(), dist::Reduce::max)), values(t));
    EXPECT_EQ(values(dist::all_reduce(t.detach(), dist::Reduce::min)), values(t));
  }
};

INSTANTIATE_TEST_SUITE_P(, DataParallelTest, devices(), device_name);

TEST_P(DataParallelTest, StartsWithRank0sParametersAndBuffers) {
  nn::BatchNorm3d norm({.num_features = 3, .tensor = {.device = device}});
  {
    const auto guard = no_grad();
    norm.weight.fill_(rank + 2);
    norm.running_mean.fill_(rank + 4);
    norm.num_batches_tracked.fill_(rank + 6);
  }
  const DataParallel parallel(norm);
  EXPECT_EQ(values(norm.weight), (Doubles{2, 2, 2}));
  EXPECT_EQ(values(norm.running_mean), (Doubles{4, 4, 4}));
  EXPECT_EQ(values(norm.num_batches_tracked), (Doubles{6}));
}

TEST_P(DataParallelTest, RefusesNetworksThatDiffer) {
  if (size == 1) GTEST_SKIP() << "needs two ranks";
  nn::Sequential net{nn::Linear({.in_features = 2, .out_features = 3}),
                     nn::Linear({.in_features = 3, .out_features = rank == 1 ? 4 : 5})};
  const auto message = [](nn::Sequential& n) {
    return vox::testing::message_of<ValueError>([&] { DataParallel parallel(n); });
  };
  EXPECT_EQ(message(net),
            "DataParallel: the networks differ: rank 0 has parameter \"1.weight\" of f32 (5,3), where rank 1 "
            "has parameter \"1.weight\" of f32 (4,3)");
  nn::Sequential shorter{nn::Linear({.in_features = 2, .out_features = 3, .bias = rank != 1})};
  EXPECT_EQ(message(shorter),
            "DataParallel: the networks differ: rank 0 has parameter \"0.bias\" of f32 (3,), where rank 1 "
            "has nothing");
}

// Sums of whole numbers are not rounded, so every order of summation gives the same bits.
TEST_P(DataParallelTest, WholeNumbersGiveTheBitsOfTheWholeBatch) {
  const auto make = [&] {
    nn::Sequential net{nn::Conv3d({.in_channels = 1, .out_channels = 3, .kernel_size = 3, .padding = 1}),
                       nn::ReLU(), nn::Conv3d({.in_channels = 3, .out_channels = 2, .kernel_size = 2})};
    const auto guard = no_grad();
    Generator generator(3);
    for (Tensor p : net.parameters()) p.copy_(randint(-3, 4, p.shape(), {.dtype = i64}, generator).to(f32));
    net.to(device);
    return net;
  };
  Generator generator(4);
  const Tensor x = randint(-2, 3, {6, 1, 4, 4, 4}, {.dtype = i64}, generator).to(f32).to(device);
  nn::Sequential alone = make(), net = make();
  alone(x).sum().backward();

  DataParallel parallel(net, {.bucket_bytes = 100});
  for (int pass = 0; pass < 2; ++pass) {  // the second one with the buckets in the order of arrival
    net.zero_grad();
    parallel.backward(net(part(x).first).sum(), {.share = 1.0});
    for (size_t i = 0; i < net.parameters().size(); ++i)
      EXPECT_EQ(values(net.parameters()[i].grad()), values(alone.parameters()[i].grad())) << i;
  }
}

TEST_P(DataParallelTest, UnevenPartsGiveTheGradientOfTheWholeBatch) {
  for (const int64_t samples : {size * 2, size * 2 + 1, 7, 1}) {
    SCOPED_TRACE(samples);
    nn::Sequential net = network();
    DataParallel parallel(net, {.bucket_bytes = samples == 7 ? 64 : 1'000'000});
    const auto [x, share] = part(batch(samples));
    parallel.backward(x.numel() ? loss_of(net, x) : Tensor(), {.share = share});
    expect_near(net, whole(batch(samples)), 1e-12);
  }
}

TEST_P(DataParallelTest, EqualPartsNeedNoShare) {
  nn::Sequential net = network();
  DataParallel parallel(net);
  parallel.backward(loss_of(net, part(batch(2 * size)).first));
  expect_near(net, whole(batch(2 * size)), 1e-12);
}

TEST_P(DataParallelTest, AccumulatesOverSeveralBackwards) {
  nn::Sequential net = network();
  DataParallel parallel(net);
  const Tensor x = part(batch(4 * size)).first;
  parallel.backward(loss_of(net, x.slice(0, 0, 2)) / 2, {.accumulate = true});
  EXPECT_GT(largest(net.parameters()[0].grad()), 0);
  parallel.backward(loss_of(net, x.slice(0, 2, 4)) / 2);
  expect_near(net, whole(batch(4 * size)), 1e-12);
  // Without zero_grad() the next backward adds to the reduced gradient.
  parallel.backward(loss_of(net, x));
  std::vector<Tensor> twice = whole(batch(4 * size));
  for (Tensor& g : twice) g = g * 2;
  expect_near(net, twice, 1e-12);
}

struct Heads final : nn::Module {
  Tensor a = register_parameter("a", ones({3}));
  Tensor b = register_parameter("b", ones({3}));
  Tensor c = register_parameter("c", ones({3}));
  Tensor frozen = register_parameter("frozen", ones({3})).set_requires_grad(false);
  Tensor forward(const Tensor& x) { return (x * frozen * (dist::rank() == 0 ? a : b)).sum(); }
};

TEST_P(DataParallelTest, ParametersThatAStepDoesNotUse) {
  Heads net;
  net.to(device);
  DataParallel parallel(net, {.bucket_bytes = 1});
  const auto others = static_cast<double>(size - 1);
  for (int pass = 0; pass < 2; ++pass) {
    net.zero_grad();
    parallel.backward(net.forward(full({3}, size, {.device = device})));
    EXPECT_EQ(values(net.a.grad()), (Doubles{1, 1, 1}));
    if (size > 1) {
      EXPECT_EQ(values(net.b.grad()), (Doubles{others, others, others}));
    }
    EXPECT_FALSE(net.c.grad().defined());
  }
  EXPECT_FALSE(net.frozen.grad().defined());
}

TEST_P(DataParallelTest, RefusesABackwardThatDoesNotReduce) {
  Heads net;
  net.to(device);
  {
    DataParallel parallel(net);
    EXPECT_ERRORS(GradError, net.forward(ones({3}, {.device = device})).backward(),
                  parallel.backward(ones({3}, {.device = device})));
    EXPECT_ERRORS(ValueError, parallel.backward(net.forward(ones({3}, {.device = device})), {.share = 2.0}),
                  parallel.backward({}, {.share = 0.5}));
  }
  net.forward(ones({3}, {.device = device})).backward();  // the hooks are gone
}

TEST_P(DataParallelTest, GradientsMayTravelInBf16) {
  nn::Sequential net = network(f32);
  DataParallel parallel(net, {.gradient_dtype = bf16});
  parallel.backward(loss_of(net, part(batch(2 * size, f32)).first));
  EXPECT_EQ(net.parameters()[0].grad().dtype(), f32);
  expect_near(net, whole(batch(2 * size, f32)), size > 1 ? 0.02 : 0.005);
}

TEST_P(DataParallelTest, TrainingKeepsTheRanksEqualAndRepeats) {
  std::vector<Doubles> runs;
  for (int run = 0; run < 2; ++run) {
    nn::Sequential net = network(f32);
    DataParallel parallel(net, {.bucket_bytes = 512});
    optim::Adam adam(net.parameters(), {.lr = 1e-2});
    for (int step = 0; step < 10; ++step) {
      adam.zero_grad();
      parallel.backward(loss_of(net, part(batch(2 * size, f32)).first));
      EXPECT_GT(optim::clip_grad_norm_(net.parameters(), 0.1), 0.1);
      adam.step();
    }
    Doubles all;
    for (const Tensor& p : net.parameters()) {
      expect_equal_on_all_ranks(p);
      const Doubles v = values(p);
      all.insert(all.end(), v.begin(), v.end());
    }
    runs.push_back(all);
  }
  EXPECT_EQ(runs[0], runs[1]);
}

TEST_P(DataParallelTest, ClipsByTheNormOfTheWholeBatch) {
  nn::Sequential net = network(), alone = network();
  loss_of(alone, batch(2 * size)).backward();
  DataParallel parallel(net);
  parallel.backward(loss_of(net, part(batch(2 * size)).first));
  const double norm = optim::clip_grad_norm_(net.parameters(), 0.01);
  expect_equal_on_all_ranks(full({}, norm, {.dtype = f64, .device = device}));
  EXPECT_NEAR(norm, optim::clip_grad_norm_(alone.parameters(), 0.01), 1e-12 * norm);
}

TEST_P(DataParallelTest, SyncBatchNormIsBatchNormOfTheWholeBatch) {
  const auto make = [&](auto norm) {
    manual_seed(2);
    nn::Sequential net{nn::Conv3d({.in_channels = 1, .out_channels = 3, .kernel_size = 2, .bias = false}),
                       std::move(norm), nn::Conv3d({.in_channels = 3, .out_channels = 1, .kernel_size = 2})};
    net.to(f64).to(device);
    return net;
  };
  const int64_t samples = 2 * size + 1;
  for (const std::optional<double> momentum : {std::optional<double>(0.3), std::optional<double>()}) {
    nn::Sequential alone = make(nn::BatchNorm3d(
        {.num_features = 3, .momentum = momentum, .activation = Activation::leaky_relu(0.2)}));
    nn::Sequential net = make(dist::SyncBatchNorm3d(
        {.num_features = 3, .momentum = momentum, .activation = Activation::leaky_relu(0.2)}));
    DataParallel parallel(net);
    const auto [x, share] = part(batch(samples));
    for (int step = 0; step < 2; ++step) {
      alone.zero_grad();
      net.zero_grad();
      loss_of(alone, batch(samples) * (step + 1)).backward();
      parallel.backward(loss_of(net, x * (step + 1)), {.share = share});
    }
    std::vector<Tensor> expected;
    for (const Tensor& p : alone.parameters()) expected.push_back(p.grad());
    expect_near(net, expected, 1e-10);
    for (size_t i = 0; i < 3; ++i)
      EXPECT_LE(largest(net.named_buffers()[i].second - alone.named_buffers()[i].second), 1e-12) << i;
    EXPECT_TRUE(net.load_state_dict(alone.state_dict()).missing.empty());
    net.eval();
    alone.eval();
    EXPECT_LE(largest(net(x) - alone(x)), 1e-12);
  }
}

TEST_P(DataParallelTest, SyncBatchNormNeedsTwoElements) {
  dist::SyncBatchNorm3d norm({.num_features = 2, .tensor = {.device = device}});
  const auto of_samples = [&](int64_t n) { return norm(ones({n, 2, 1, 1, 1}, {.device = device})); };
  EXPECT_THROW(of_samples(rank == size - 1), ShapeError);
  EXPECT_EQ(of_samples(2).shape(), (Shape{2, 2, 1, 1, 1}));
}

TEST_P(DataParallelTest, BuffersFollowRank0) {
  nn::BatchNorm3d norm({.num_features = 1, .tensor = {.device = device}});
  DataParallel parallel(norm);
  norm.forward(full({2, 1, 2, 2, 2}, rank + 1, {.device = device}));
  parallel.broadcast_buffers();
  EXPECT_NEAR(norm.running_mean.item(), 0.1, 1e-7);
}

TEST(DistSampler, EveryEpochVisitsEverySampleOnce) {
  for (const int64_t count : {1, 5, 12, 13}) {
    for (const int64_t batch_size : {1, 4, 12, 100}) {
      const dist::Sampler sampler({.count = count, .batch_size = batch_size, .seed = 3});
      EXPECT_EQ(sampler.steps(), (count + batch_size - 1) / batch_size);
      for (int64_t epoch = 0; epoch < 3; ++epoch) {
        Tensor visits = zeros({count}, {.dtype = i64});
        for (int64_t step = 0; step < sampler.steps(); ++step) {
          const auto [samples, share] = sampler.batch(epoch, step);
          for (const int64_t i : samples) visits.mutable_data<int64_t>()[i] += 1;
          EXPECT_NEAR(dist::all_reduce(full({}, share)).item(), 1, 1e-6);
        }
        EXPECT_EQ(dist::all_reduce(visits).to_vector<int64_t>(),
                  std::vector<int64_t>(static_cast<size_t>(count), 1));
      }
    }
  }
  const dist::Sampler sampler({.count = 100, .batch_size = 100}),
      sorted({.count = 3, .batch_size = 3, .shuffle = false});
  EXPECT_NE(sampler.batch(0, 0).samples, sampler.batch(1, 0).samples);
  EXPECT_EQ(sampler.batch(1, 0).samples, sampler.batch(1, 0).samples);
  EXPECT_EQ(sorted.batch(5, 0).samples.size(),
            static_cast<size_t>(3 * (dist::rank() + 1) / dist::size() - 3 * dist::rank() / dist::size()));
  EXPECT_ERRORS(ValueError, sampler.batch(0, 1), dist::Sampler({.count = 0, .batch_size = 1}));
}

}  // namespace
