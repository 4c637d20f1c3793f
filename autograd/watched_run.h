#pragma once

#include <memory>
#include <set>
#include <vector>

#include <voxgrad/autograd/node.h>

// What the tape reports to a Watch: Note [Watching]. All of it does nothing unless a Watch lives on this
// thread.

namespace vox::autograd {

class Recorder;

/// The recorder of this thread's innermost Watch; null without one.
inline thread_local std::shared_ptr<Recorder>* running_watch = nullptr;

/// An op has made `t` as the last output of `node` so far. Only if running_watch is set.
void watch_output(Node& node, const Tensor& t);

/// One run of the engine.
class WatchedRun {
 public:
  /// `partial`: only what leads to requested inputs will run.
  WatchedRun(const std::vector<Edge>& roots, bool partial) {
    if (running_watch) begin(roots, partial);
  }
  ~WatchedRun() {
    if (recorder_) end();
  }
  WatchedRun(const WatchedRun&) = delete;
  WatchedRun& operator=(const WatchedRun&) = delete;

  /// The next node, with the gradients of its outputs.
  void arrived(Node& node, const Gradients& gradients) {
    if (recorder_) record_arrived(node, gradients);
  }
  /// The node has returned the gradients of its inputs, and has released what the run frees.
  void ran(Node& node, const Gradients& results) {
    if (recorder_) record_ran(node, results);
  }

 private:
  void begin(const std::vector<Edge>& roots, bool partial);
  void end();
  void record_arrived(Node& node, const Gradients& gradients);
  void record_ran(Node& node, const Gradients& results);
  void note_pending();

  std::shared_ptr<Recorder> recorder_;  // shared: the Watch may end in a hook of this run
  std::set<uint64_t, std::greater<>> pending_;
  size_t step_ = 0;  // the event of the node that runs
  int exceptions_ = 0;
};

}  // namespace vox::autograd
