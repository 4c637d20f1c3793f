// What happens when memory runs out: this program's operator new fails at the n-th call, for every n.
#include <gtest/gtest.h>

#include <voxgrad/core/memory.h>
#include <voxgrad/nn/data/loader.h>
#include <voxgrad/nn/summary.h>
#include <voxgrad/voxgrad.h>

#include <atomic>
#include <cstdlib>
#include <functional>
#include <new>

#include "tests/support/temporary_folder.h"
#include "tests/support/values.h"

namespace {

std::atomic<int64_t> calls_left{-1};  // that succeed; negative: all do
std::atomic<bool> one_fails{true};    // whether one call fails, or all that follow too
std::atomic<bool> failed{false};

void* allocate(size_t bytes, size_t alignment) {
  if (calls_left >= 0 && calls_left-- == 0) {
    failed = true;
    if (!one_fails) calls_left = 0;
    return nullptr;
  }
  return std::aligned_alloc(alignment, (bytes / alignment + 1) * alignment);
}

void* allocate_or_throw(size_t bytes, size_t alignment = alignof(std::max_align_t)) {
  if (void* memory = allocate(bytes, alignment)) return memory;
  throw std::bad_alloc();
}

}  // namespace

[[gnu::noinline]] void* operator new(size_t bytes) { return allocate_or_throw(bytes); }
[[gnu::noinline]] void* operator new(size_t bytes, std::align_val_t a) {
  return allocate_or_throw(bytes, static_cast<size_t>(a));
}
[[gnu::noinline]] void* operator new(size_t bytes, std::align_val_t a, const std::nothrow_t&) noexcept {
  return allocate(bytes, static_cast<size_t>(a));
}
[[gnu::noinline]] void operator delete(void* memory) noexcept { std::free(memory); }
[[gnu::noinline]] void operator delete(void* memory, size_t) noexcept { std::free(memory); }
[[gnu::noinline]] void operator delete(void* memory, std::align_val_t) noexcept { std::free(memory); }
[[gnu::noinline]] void operator delete(void* memory, size_t, std::align_val_t) noexcept { std::free(memory); }

namespace vox {
namespace {

using testing::TemporaryFolder;

/// f() in which allocation n fails, or all from n on. Whether it returned.
bool returns_without(int64_t n, bool only_one, const std::function<void()>& f) {
  one_fails = only_one, failed = false, calls_left = n;
  try {
    f();
    calls_left = -1;
    return true;
  } catch (const std::exception&) {
    calls_left = -1;
    return false;
  }
}

/// For n = 0, 1, ... until allocation n is not reached: before(), f() in which allocations fail,
/// after(whether f returned).
void fail_each_allocation(const std::function<void()>& before, const std::function<void()>& f,
                          const std::function<void(bool)>& after) {
  for (const bool only_one : {true, false}) {
    int64_t n = 0;
    do {
      SCOPED_TRACE(str("allocation ", n, only_one ? "" : " and all that follow"));
      before();
      after(returns_without(n++, only_one, f));
    } while (failed && !::testing::Test::HasFailure());
    EXPECT_GT(n, 1) << "nothing was allocated";
  }
}

void fail_each_allocation_of_file(const std::function<void(const std::filesystem::path&)>& save) {
  const TemporaryFolder folder;
  const std::filesystem::path file = folder / "file";
  save(file);
  const std::string complete = testing::read_bytes(file), old = "old";
  fail_each_allocation([&] { testing::write_bytes(file, old); }, [&] { save(file); },
                       [&](bool returned) {
                         const std::string bytes = testing::read_bytes(file);
                         EXPECT_TRUE(bytes == complete || (!returned && bytes == old)) << bytes;
                         EXPECT_EQ(std::distance(std::filesystem::directory_iterator(folder.path()), {}), 1);
                       });
}

TEST(FailingAllocations, ASavedFileIsTheOldOneOrTheNewOne) {
  const nn::StateDict tensors{{"a", ones({2, 3})}, {"b.c", full({4}, 2)}};
  fail_each_allocation_of_file([&](const auto& path) { nn::save(path, tensors, {{"k", "v"}}); });
}

TEST(FailingAllocations, ASavedArrayIsTheOldOneOrTheNewOne) {
  const Tensor x = ones({2, 3});
  fail_each_allocation_of_file([&](const auto& path) { save_npy(path, x); });
}

TEST(FailingAllocations, ATapeIsFreedWithoutMemory) {
  Tensor y;
  fail_each_allocation(
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

TEST(FailingAllocations, TensorsThatAreNotMadeHoldNoMemory) {
  for (const Tensor& warm : {ones({1000}), ones({1000})}) ASSERT_TRUE(warm.defined());
  int64_t before = 0;
  fail_each_allocation([&] { before = memory_stats().in_use; }, [] { const Tensor x = ones({1000}) + 1; },
                       [&](bool) { EXPECT_EQ(memory_stats().in_use, before); });
}

TEST(FailingAllocations, AThreadOfALoaderDoesNotEndTheProgram) {
  fail_each_allocation([] {},
                       [] {
                         const data::Loader loader(
                             6, [](int64_t i, Generator&) { return data::Sample{full({2}, double(i))}; },
                             {.batch_size = 2, .threads = 2});
                         data::Loader::Epoch epoch = loader.epoch(0);
                         int64_t batches = 0;
                         while (epoch.next()) ++batches;
                         if (batches != 3) throw std::logic_error("batches are missing");
                       },
                       [](bool) {});
}

TEST(FailingAllocations, ASummaryLeavesTheNetworkAsItWas) {
  nn::Sequential network{nn::Conv3d({.in_channels = 1, .out_channels = 2, .kernel_size = 1}),
                         nn::BatchNorm3d({.num_features = 2}), nn::ReLU()};
  network.train();
  const Tensor x = ones({1, 1, 2, 2, 2});
  fail_each_allocation([] {}, [&] { (void)nn::summary(network, x); },
                       [&](bool) {
                         for (const auto& [name, module] : network.named_modules()) {
                           EXPECT_TRUE(module->is_training()) << name;
                           EXPECT_FALSE(module->has_forward_hooks()) << name;
                         }
                       });
}

TEST(FailingAllocations, AStepChangesEverythingOrNothing) {
  set_num_threads(2);
  const Tensor gradient = full({3, 20000}, 0.5);
  Tensor a, b;
  std::optional<optim::SGD> sgd;
  fail_each_allocation(
      [&] {
        a = ones({3, 20000}).set_requires_grad();
        b = ones({20000, 3}).transpose(0, 1).set_requires_grad();  // not contiguous
        a.set_grad(gradient), b.set_grad(gradient);
        sgd.emplace(std::vector<Tensor>{a, b}, optim::SGD::Options{.lr = 0.5, .momentum = 0.5});
      },
      [&] { sgd->step(); },
      [&](bool returned) {
        EXPECT_EQ(sgd->steps(), returned);
        for (const Tensor& t : {a, b}) EXPECT_TRUE(equal(t, full({3, 20000}, returned ? 0.75 : 1.0)));
      });
}

}  // namespace
}  // namespace vox
