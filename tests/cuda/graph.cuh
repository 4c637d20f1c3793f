#pragma once

#include <functional>

#include "tests/cuda/support.cuh"

namespace vox::testing {

/// A graph captured from `ops`, run in the stream that was current then.
class Graph {
 public:
  /// Global is the strictest mode: during the capture CUDA refuses unsafe calls of all threads.
  explicit Graph(const std::function<void()>& ops, unsigned flags = 0) : stream_(cuda::current_stream()) {
    EXPECT_CUDA(cudaStreamBeginCapture(native(stream_), cudaStreamCaptureModeGlobal));
    try {
      ops();
    } catch (...) {
      (void)cudaStreamEndCapture(native(stream_),
                                 &graph_);  // or every test after this one would fail as well
      (void)cudaGetLastError();
      throw;
    }
    EXPECT_CUDA(cudaStreamEndCapture(native(stream_), &graph_));
    EXPECT_CUDA(cudaGraphInstantiate(&executable_, graph_, flags));
  }
  ~Graph() {
    EXPECT_CUDA(cudaGraphExecDestroy(executable_));
    EXPECT_CUDA(cudaGraphDestroy(graph_));
  }
  void launch() const { EXPECT_CUDA(cudaGraphLaunch(executable_, native(stream_))); }

 private:
  cuda::Stream stream_;
  cudaGraph_t graph_ = nullptr;
  cudaGraphExec_t executable_ = nullptr;
};

/// Every test captures in a stream of its own, with nothing pending.
class GraphTest : public ::testing::Test {
 protected:
  void SetUp() override {
    SKIP_WITHOUT_CUDA();
    stream_ = std::make_unique<cuda::Stream>();
    guard_ = std::make_unique<cuda::StreamGuard>(*stream_);
    fill(native_current(), floats(1), 0);  // loads the kernels, which must not happen in a capture
    cuda::synchronize();
  }
  std::unique_ptr<cuda::Stream> stream_;
  std::unique_ptr<cuda::StreamGuard> guard_;
};

}  // namespace vox::testing
