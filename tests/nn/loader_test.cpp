#include <voxgrad/core/philox.h>

#include "tests/support/test.h"

namespace vox::data {
namespace {

DEVICE_SUITE(LoaderTest);

/// Example i is {i, i}, its number, and noise of its own.
Sample numbered(int64_t i, Generator& random) {
  return {full({2}, i), from_vector<int64_t>({i}, {}), rand({3}, {}, random)};
}

Sample without_5(int64_t i, Generator& random) {
  if (i == 5) throw std::runtime_error("no example 5");
  return numbered(i, random);
}

std::vector<Ints> numbers_of(const Loader& loader, int64_t epoch, int64_t first = 0) {
  std::vector<Ints> all;
  for (const Sample& batch : loader.epoch(epoch, first)) all.push_back(batch[1].to_vector<int64_t>());
  return all;
}

TEST_P(LoaderTest, StacksExamplesInOrder) {
  const Loader loader(5, numbered, {.batch_size = 2, .device = device()});
  EXPECT_EQ(loader.batches(), 3);
  auto epoch = loader.epoch();
  const Sample first = *epoch.next();
  ASSERT_EQ(first.size(), 3u);
  EXPECT_EQ(first[0].device(), device());
  EXPECT_EQ(first[0].shape(), (Shape{2, 2}));
  EXPECT_EQ(first[0].to_vector<float>(), (Floats{0, 0, 1, 1}));
  EXPECT_EQ(first[1].dtype(), i64);
  EXPECT_EQ((*epoch.next())[1].to_vector<int64_t>(), (Ints{2, 3}));
  EXPECT_EQ((*epoch.next())[1].to_vector<int64_t>(), (Ints{4}));
  EXPECT_FALSE(epoch.next().has_value());
  EXPECT_FALSE(epoch.next().has_value());
  EXPECT_EQ(first[0].to_vector<float>(), (Floats{0, 0, 1, 1})) << "a later batch wrote to this one";
  EXPECT_EQ(numbers_of(Loader(5, numbered, {.batch_size = 2, .drop_last = true}), 0),
            (std::vector<Ints>{{0, 1}, {2, 3}}));
  EXPECT_EQ(numbers_of(Loader(0, numbered), 0).size(), 0u);
}

TEST_P(LoaderTest, BatchesDoNotDependOnThreads) {
  const auto all = [&](int64_t threads, int64_t prefetch, uint64_t seed, int64_t epoch, int64_t first) {
    const Loader loader(23, numbered,
                        {.batch_size = 3,
                         .shuffle = true,
                         .seed = seed,
                         .threads = threads,
                         .prefetch = prefetch,
                         .device = device()});
    std::vector<Tensor> tensors;
    for (const Sample& batch : loader.epoch(epoch, first))
      tensors.insert(tensors.end(), batch.begin(), batch.end());
    return tensors;
  };
  const auto same = [](const std::vector<Tensor>& a, const std::vector<Tensor>& b) {
    return std::equal(a.begin(), a.end(), b.begin(), b.end(), same_bits);
  };
  const auto expected = all(0, 1, 7, 2, 0);
  EXPECT_EQ(expected.size(), 24u);
  for (int64_t threads : {1, 2, 5})
    for (int64_t prefetch : {1, 4}) EXPECT_TRUE(same(all(threads, prefetch, 7, 2, 0), expected));
  EXPECT_FALSE(same(all(2, 1, 8, 2, 0), expected)) << "another seed";
  EXPECT_FALSE(same(all(2, 1, 7, 3, 0), expected)) << "another epoch";
  // A run that goes on in the middle.
  EXPECT_TRUE(same(all(2, 1, 7, 2, 5), std::vector<Tensor>(expected.begin() + 15, expected.end())));
}

TEST(LoaderCpuTest, ShufflesAllExamples) {
  const Loader loader(100, numbered, {.batch_size = 100, .shuffle = true, .seed = 3});
  Ints first = numbers_of(loader, 0)[0], second = numbers_of(loader, 1)[0];
  EXPECT_NE(first, second);
  EXPECT_FALSE(std::is_sorted(first.begin(), first.end()));
  EXPECT_EQ(first, numbers_of(loader, 0)[0]);
  std::sort(first.begin(), first.end());
  for (int64_t i = 0; i < 100; ++i) EXPECT_EQ(first[static_cast<size_t>(i)], i);
}

TEST(LoaderCpuTest, EveryOrderOccurs) {
  const Loader loader(3, numbered, {.batch_size = 3, .shuffle = true});
  std::set<Ints> orders;
  for (int64_t epoch = 0; epoch < 60; ++epoch) orders.insert(numbers_of(loader, epoch)[0]);
  EXPECT_EQ(orders.size(), 6u);
}

TEST(LoaderCpuTest, AnExamplesNumbersAreNotThoseOfTheOrder) {
  const Loader loader(1, numbered, {.seed = 5});
  for (const uint64_t seed : {uint64_t{5}, ~uint64_t{5}}) {
    const PhiloxWords words = philox_block(seed, 0, 0);
    Generator random(join_words(words.word[0], words.word[1]));
    EXPECT_EQ(same_bits((*loader.epoch(0).next())[2].reshape({3}), rand({3}, {}, random)), seed != 5) << seed;
  }
}

TEST(LoaderCpuTest, WaitingThreadsEndWithTheEpoch) {
  std::atomic<int> made = 0;
  const Loader loader(100, [&](int64_t i, Generator&) { return ++made, Sample{full({}, i)}; },
                      {.threads = 2, .prefetch = 1});
  {
    auto epoch = loader.epoch();
    while (made < 2) std::this_thread::yield();
    std::this_thread::sleep_for(std::chrono::milliseconds(20));  // until they wait for a taker
  }
  EXPECT_EQ(made, 2);
}

TEST(LoaderCpuTest, AnExceptionReachesTheCallerInItsPlace) {
  for (int64_t threads : {0, 3}) {
    const Loader loader(10, without_5, {.batch_size = 2, .threads = threads});
    auto epoch = loader.epoch();
    EXPECT_TRUE(epoch.next().has_value());
    EXPECT_TRUE(epoch.next().has_value());
    EXPECT_MESSAGE(std::runtime_error, epoch.next(), "no example 5");
    EXPECT_FALSE(epoch.next().has_value());
  }
}

/// The numbers of all batches of one example that four threads get of an epoch, sorted.
Ints taken_by_four(Loader::Epoch& epoch) {
  std::mutex mutex;
  Ints numbers;
  std::vector<std::thread> callers;
  for (int i = 0; i < 4; ++i) {
    callers.emplace_back([&] {
      try {
        while (const auto batch = epoch.next()) {
          const std::lock_guard lock(mutex);
          numbers.push_back((*batch)[1].item<int64_t>());
        }
      } catch (const std::runtime_error&) {
        const std::lock_guard lock(mutex);
        numbers.push_back(-1);
      }
    });
  }
  for (std::thread& caller : callers) caller.join();
  std::sort(numbers.begin(), numbers.end());
  return numbers;
}

TEST_P(LoaderTest, SeveralThreadsShareTheBatches) {
  Ints all(200);
  std::iota(all.begin(), all.end(), 0);
  for (int64_t threads : {0, 1, 3}) {
    const Loader loader(200, numbered, {.threads = threads, .device = device()});
    auto epoch = loader.epoch();
    EXPECT_EQ(taken_by_four(epoch), all) << threads;
    // One of them gets the exception; the others end.
    const Loader failing(200, without_5, {.threads = threads, .device = device()});
    auto broken = failing.epoch();
    EXPECT_EQ(taken_by_four(broken), (Ints{-1, 0, 1, 2, 3, 4})) << threads;
  }
}

TEST(LoaderCpuTest, OnlyAShuffledOrderTakesMemory) {
  for (int64_t size : {int64_t{1} << 40, INT64_MAX})
    EXPECT_EQ((*Loader(size, numbered).epoch(0, size - 1).next())[1].item<int64_t>(), size - 1);
  // The last batch ends at the last example, even if a whole one would end beyond 2^63.
  const auto stop = [](int64_t i, Generator&) -> Sample { throw std::runtime_error(std::to_string(i)); };
  const Loader two(INT64_MAX, stop, {.batch_size = (int64_t{1} << 62) + 1, .threads = 0});
  EXPECT_EQ(two.batches(), 2);
  EXPECT_MESSAGE(std::runtime_error, two.epoch(0, 1).next(), "4611686018427387905");
  for (int64_t size : {int64_t{1} << 62, int64_t{1} << 59}) {
    if (size == int64_t{1} << 59 && !can_limit_memory) continue;  // a sanitizer ends the process
    EXPECT_MESSAGE(OutOfMemoryError, Loader(size, numbered, {.shuffle = true}).epoch(),
                   str("Loader::epoch: no memory for a shuffled order of ", size, " examples"));
  }
}

TEST(LoaderCpuTest, MayEndInTheMiddle) {
  std::atomic<int> made = 0;
  const Loader loader(1000,
                      [&](int64_t i, Generator& random) {
                        ++made;
                        return numbered(i, random);
                      },
                      {.threads = 3, .prefetch = 2});
  for (int taken = 0; taken < 4; ++taken) {
    auto epoch = loader.epoch();
    for (int i = 0; i < taken; ++i) ASSERT_TRUE(epoch.next().has_value());
  }
  EXPECT_LE(made, 4 * 6 + 6) << "more was made than may be ahead";
  for (const Sample& batch : loader.epoch()) {
    EXPECT_EQ(batch.size(), 3u);
    break;
  }
}

TEST(LoaderCpuTest, Errors) {
  EXPECT_ERRORS(ValueError, Loader(-1, numbered), Loader(1, Loader::Get()),
                Loader(1, numbered, {.batch_size = 0}), Loader(1, numbered, {.threads = -1}),
                Loader(1, numbered, {.prefetch = 0}), Loader(3, numbered).epoch(-1),
                Loader(3, numbered).epoch(0, 4));
  const auto first_of = [](const Loader::Get& get) { Loader(2, get, {.batch_size = 2}).epoch().next(); };
  EXPECT_ERRORS(ShapeError,
                first_of([](int64_t i, Generator&) { return Sample(static_cast<size_t>(i), zeros({1})); }),
                first_of([](int64_t i, Generator&) { return Sample{zeros({1 + i})}; }));
  EXPECT_THROW(first_of([](int64_t i, Generator&) { return Sample{zeros({1}, {i == 0 ? f32 : f64})}; }),
               DTypeError);
  EXPECT_THROW(first_of([](int64_t, Generator&) { return Sample{Tensor()}; }), ValueError);
  if (cuda::is_available()) return;
  EXPECT_THROW(Loader(1, numbered, {.device = Device::cuda()}).epoch().next(), DeviceError);
}

DEVICE_SUITE(AugmentTest);

TEST_P(AugmentTest, CropsAllTensorsAtTheSamePlace) {
  const Tensor scan = arange(5 * 6 * 7, on(f32)).reshape({1, 5, 6, 7}),
               label = arange(5 * 6 * 7, on(i64)).reshape({5, 6, 7});
  Generator random(1);
  Bools begins_at(4, false);
  for (int i = 0; i < 50; ++i) {
    const Sample s = random_crop({scan, label}, {2, 3, 7}, random);
    EXPECT_EQ(s[0].shape(), (Shape{1, 2, 3, 7}));
    EXPECT_TRUE(same_bits(s[0].select(0, 0).contiguous(), s[1].contiguous().to(f32)));
    const auto v = s[1].contiguous().to_vector<int64_t>();
    EXPECT_EQ(v[1], v[0] + 1);
    EXPECT_EQ(v[7], v[0] + 7);
    EXPECT_EQ(v[21], v[0] + 42);
    begins_at[static_cast<size_t>(v[0] / 42)] = true;
  }
  EXPECT_EQ(begins_at, Bools(4, true));
}

TEST_P(AugmentTest, FlipsAllTensorsAlike) {
  const Tensor scan = arange(8, on(f32)).reshape({1, 2, 2, 2}), label = scan.select(0, 0).to(i64);
  Generator random(1);
  std::vector<int> seen(8, 0);
  for (int i = 0; i < 200; ++i) {
    const Sample s = random_flip({scan, label}, random);
    EXPECT_TRUE(same_bits(s[0].select(0, 0), s[1].to(f32)));
    const auto v = s[1].to_vector<int64_t>();
    for (int64_t k = 0; k < 8; ++k) EXPECT_EQ(v[static_cast<size_t>(k)], k ^ v[0]);  // mirrored axes are bits
    ++seen[static_cast<size_t>(v[0])];
  }
  for (int count : seen) EXPECT_GT(count, 5);
  for (int i = 0; i < 20; ++i)
    EXPECT_EQ(random_flip({label}, random, {2})[0].to_vector<int64_t>()[0] & ~int64_t{1}, 0);
}

TEST_P(AugmentTest, ChangesIntensities) {
  const Tensor x = from_vector<float>({0.25, 0.5, 1}, {3}, device());
  Generator random(1);
  EXPECT_EQ(random_intensity(x, {}, random).impl(), x.impl());
  const auto fixed =
      random_intensity(x, {.scale = {2, 2}, .shift = {3, 3}, .gamma = {2, 2}}, random).to_vector<float>();
  EXPECT_EQ(fixed, (Floats{3.125, 3.5, 5}));
  Floats factors;
  for (int i = 0; i < 100; ++i)
    factors.push_back(random_intensity(x, {.scale = {0.5, 2}}, random).to_vector<float>()[2]);
  EXPECT_GE(*std::min_element(factors.begin(), factors.end()), 0.5f);
  EXPECT_LE(*std::max_element(factors.begin(), factors.end()), 2.0f);
  EXPECT_LT(*std::min_element(factors.begin(), factors.end()), 0.7f);
  EXPECT_GT(*std::max_element(factors.begin(), factors.end()), 1.8f);
  const Tensor many = zeros({10000}, on(f32));
  double largest = 0;
  for (int i = 0; i < 20; ++i)
    largest = std::max<double>(largest, std(random_intensity(many, {.noise = 0.5}, random)).item<float>());
  EXPECT_GT(largest, 0.3);
  EXPECT_LT(largest, 0.52);
}

TEST_P(AugmentTest, Errors) {
  Generator random;
  const Tensor x = zeros({2, 3, 4}, on(f32));
  EXPECT_ERRORS(ShapeError, random_crop({x}, {2, 3, 5}, random), random_crop({x}, {0, 3, 4}, random),
                random_crop({x, x.slice(0, 0, 1)}, 1, random), random_flip({x.select(0, 0)}, random));
  EXPECT_ERRORS(ValueError, random_crop({}, 1, random), random_flip({x}, random, {3}),
                random_intensity(x, {.scale = {2, 1}}, random), random_intensity(x, {.noise = -1}, random));
  EXPECT_THROW(random_intensity(x.to(i64), {}, random), DTypeError);
}

}  // namespace
}  // namespace vox::data
