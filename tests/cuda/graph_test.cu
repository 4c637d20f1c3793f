// See Note [CUDA graphs] in core/cuda.h.
#include <chrono>
#include <thread>

#include "tests/cuda/graph.cuh"

namespace vox::testing {
namespace {

using cuda::memory_stats;
class CudaGraph : public GraphTest {};

using cuda::Stream;
using cuda::StreamGuard;

constexpr int64_t n = 1 << 16;

TEST_F(CudaGraph, KeepsMemoryThatItsCaptureDropped) {
  const int64_t before = memory_stats().in_use;
  const Block y = floats(n);
  Block x = floats(n);
  fill(native_current(), x, 5);
  cuda::synchronize();
  {
    const Graph graph([&] {
      copy_block(y, x);
      x.reset();
    });
    std::vector<Block> others;
    for (int i = 0; i < 16; ++i) {
      others.push_back(floats(n));
      fill(native_current(), others.back(), -1);  // would overwrite x if it had been freed
    }
    for (int i = 0; i < 3; ++i) {
      fill(native_current(), y, 0);
      graph.launch();
      expect_all(y, 5);
    }
    others.clear();
    EXPECT_EQ(memory_stats().in_use, before + 2 * n * 4);
  }
  // CUDA reports from its own thread that the graph is gone.
  for (int i = 0; i < 500 && memory_stats().in_use != before + n * 4; ++i)
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  EXPECT_EQ(memory_stats().in_use, before + n * 4);
}

TEST_F(CudaGraph, NothingIsFreedDuringACapture) {
  const int64_t before = memory_stats().in_use;
  const Block y = floats(n);
  Block unused;
  {
    const StreamGuard other{Stream()};
    unused = floats(n);
  }
  const Graph graph([&] {
    unused.reset();
    fill(native_current(), y, 2);
    EXPECT_EQ(memory_stats().in_use, before + 2 * n * 4);
  });
  EXPECT_EQ(memory_stats().in_use, before + n * 4);
  graph.launch();
  expect_all(y, 2);
}

TEST_F(CudaGraph, AResultThatOutlivesTheCaptureIsWrittenByEveryLaunch) {
  const int64_t before = memory_stats().in_use;
  {
    const Block x = floats(n);
    fill(native_current(), x, 0);
    cuda::synchronize();
    Block y;
    const Graph graph(
        [&] {
          const Block next = floats(n);
          affine(native_current(), next, x, 1, 1);
          copy_block(x, next);
          y = floats(n);
          affine(native_current(), y, x, 3, 0);
        },
        cudaGraphInstantiateFlagAutoFreeOnLaunch);
    EXPECT_EQ(memory_stats().in_use, before + 2 * n * 4) << "x and y, and no temporary of the capture";
    for (int i = 0; i < 100; ++i) graph.launch();
    expect_all(y, 300);
  }
  EXPECT_EQ(memory_stats().in_use, before);
  cuda::synchronize();
}

TEST_F(CudaGraph, MayBeDroppedUnlaunched) {
  const int64_t before = memory_stats().in_use;
  {
    Block y;
    const Graph graph([&] {
      y = floats(n);
      fill(native_current(), y, 1);
    });
    y.reset();
  }
  EXPECT_EQ(memory_stats().in_use, before);
  EXPECT_EQ(cudaGetLastError(), cudaSuccess);
}

TEST_F(CudaGraph, StreamsMayForkAndJoinInside) {
  const Stream side;
  const Block y = floats(n);
  const Graph graph([&] {
    Block a = floats(n);
    fill(native_current(), a, 3);
    Block b;
    side.wait(*stream_);
    {
      const StreamGuard guard(side);
      b = floats(n);
      copy_block(b, a);
    }
    stream_->wait(side);
    a.reset();                             // used in both streams
    affine(native_current(), y, b, 2, 0);  // b was allocated in the side stream, which is joined already
    b.reset();
  });
  for (int i = 0; i < 3; ++i) {
    fill(native_current(), y, 0);
    graph.launch();
    expect_all(y, 6);
  }
}

TEST_F(CudaGraph, WhatCannotBeCapturedIsRefusedAndSpoilsNothing) {
  const Block y = floats(n);
  std::vector<float> host(n);
  const Graph graph([&] {
    const auto to_host = [&] { read(y); };
    EXPECT_NE(message_of<CudaError>(to_host).find("captured"), std::string::npos);
    EXPECT_THROW(cuda::copy(y->data(), 0, host.data(), 0, y->bytes(), cuda::CopyKind::host_to_device),
                 CudaError);
    EXPECT_THROW(cuda::synchronize(), CudaError);
    EXPECT_THROW(stream_->synchronize(), CudaError);
    EXPECT_NO_THROW(cuda::empty_cache());
    fill(native_current(), y, 4);
  });
  graph.launch();
  expect_all(y, 4);
}

}  // namespace
}  // namespace vox::testing
