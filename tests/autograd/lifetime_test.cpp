#include <pthread.h>

#include "tests/support/test.h"

// Ownership: nothing leaks, nothing recurses, threads do not collide.

namespace vox {
namespace {

Tensor scalar_leaf(float value) { return from_vector<float>({value}, {1}).set_requires_grad(true); }
std::weak_ptr<autograd::Node> node_of(const Tensor& t) { return autograd::gradient_edge(t).node; }

/// Runs f on a thread with a stack of 256 KiB.
template <class F>
void on_small_stack(F f) {
  pthread_attr_t attributes;
  pthread_attr_init(&attributes);
  pthread_attr_setstacksize(&attributes, 256 * 1024);
  pthread_t thread;
  const auto call = [](void* function) -> void* {
    (*static_cast<F*>(function))();
    return nullptr;
  };
  ASSERT_EQ(pthread_create(&thread, &attributes, call, &f), 0);
  pthread_join(thread, nullptr);
  pthread_attr_destroy(&attributes);
}

constexpr int chain_length = 1'000'000;

TEST(Lifetime, MillionOpsWithSavedInputs) {
  on_small_stack([] {
    Tensor x = scalar_leaf(1), one = from_vector<float>({1}, {1});
    Tensor y = x;
    for (int i = 0; i < chain_length; ++i) y = y * one;  // mul saves its inputs
    y.backward({}, {.retain_graph = true});
    EXPECT_EQ(x.grad().item(), 1.f);
    EXPECT_EQ(grad({y}, {x})[0].item(), 1.f);
  });
}

TEST(Lifetime, MillionOpsWithSavedOutputs) {
  on_small_stack([] {
    Tensor x = scalar_leaf(1);
    Tensor y = x;
    for (int i = 0; i < chain_length; ++i) y = sqrt(y);  // sqrt saves its output
    y.backward();
    EXPECT_EQ(x.grad().item(), 0.f);  // 2^-1000000 underflows
  });
}

TEST(Lifetime, MillionOpsFreedWithoutBackward) {
  on_small_stack([] {
    Tensor y = scalar_leaf(1);
    for (int i = 0; i < chain_length; ++i) y = y + y;
    y = {};
  });
}

TEST(Lifetime, NodesDieWithTheirOutputs) {
  Tensor x = scalar_leaf(2);
  Tensor y = exp(x);  // saves its own output, which could make a cycle
  const auto exp_node = node_of(y), accumulator = node_of(x);
  EXPECT_FALSE(exp_node.expired());
  y = {};
  EXPECT_TRUE(exp_node.expired());
  EXPECT_TRUE(accumulator.expired());
}

TEST(Lifetime, CreateGraphMakesNoCycle) {
  std::weak_ptr<autograd::Node> node;
  std::weak_ptr<Storage> storage;
  {
    Tensor x = scalar_leaf(2);
    Tensor y = exp(x * x);
    y.backward({}, {.create_graph = true});
    node = node_of(x.grad());
    storage = x.impl()->storage;
    EXPECT_FALSE(node.expired());
  }
  EXPECT_TRUE(node.expired());
  EXPECT_TRUE(storage.expired());
}

TEST(Lifetime, BackwardFreesSavedMemory) {
  Tensor x = scalar_leaf(2);
  std::weak_ptr<Storage> storage;
  Tensor y;
  {
    Tensor c = from_vector<float>({3}, {1});
    storage = c.impl()->storage;
    y = x * c;
  }
  EXPECT_FALSE(storage.expired());
  y.backward();
  EXPECT_TRUE(storage.expired());
}

TEST(Lifetime, SavedLeafComesBackAsTheSameLeaf) {
  Tensor x = scalar_leaf(3);
  Tensor y = x * x;
  Tensor g = grad({y}, {x}, {.create_graph = true})[0];  // 2x, through the saved x
  g.backward();
  EXPECT_EQ(x.grad().item(), 2.f);
}

TEST(Lifetime, ALeafThatTheUserLetGoStillCarriesTheTape) {
  Tensor x = scalar_leaf(3);
  Tensor y;
  {
    Tensor gone = scalar_leaf(5);
    y = x * gone * gone;
  }
  EXPECT_EQ(grad({y}, {x}, {.create_graph = true})[0].item(), 25.f);
}

TEST(Threads, DistinctGraphsShareALeaf) {
  Tensor x = scalar_leaf(1);
  std::vector<std::thread> threads;
  for (int t = 0; t < 8; ++t) {
    threads.emplace_back([&x] {
      for (int i = 0; i < 200; ++i) (x * 2 + x * x).sum().backward();
    });
  }
  for (auto& thread : threads) thread.join();
  EXPECT_EQ(x.grad().item(), 8.f * 200 * 4);
}

TEST(Threads, AFreshLeafGetsOneNode) {
  for (int i = 0; i < 300; ++i) {
    Tensor x = scalar_leaf(1);
    x.set_name("x");  // so that the leaf has its metadata, which threads share
    std::atomic<int> ready{0};
    std::vector<autograd::Edge> edges(2);
    const auto use = [&](size_t t) {
      for (++ready; ready < 2;) {
      }
      edges[t] = autograd::gradient_edge(x);
    };
    std::thread other(use, 1);
    use(0);
    other.join();
    ASSERT_EQ(edges[0], edges[1]) << i;
  }
}

TEST(Threads, DistinctGraphsAreIndependent) {
  std::vector<std::thread> threads;
  Floats results(8);
  for (size_t t = 0; t < results.size(); ++t) {
    threads.emplace_back([&results, t] {
      Tensor x = scalar_leaf(static_cast<float>(t));
      for (int i = 0; i < 100; ++i) (x * x).sum().backward();
      results[t] = x.grad().item();
    });
  }
  for (auto& thread : threads) thread.join();
  for (size_t t = 0; t < results.size(); ++t) EXPECT_EQ(results[t], 200.f * static_cast<float>(t));
}

}  // namespace
}  // namespace vox
