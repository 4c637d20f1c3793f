#pragma once

#include <memory>

#include <voxgrad/autograd/node.h>

// What the tape looks up on each thread: the gradients that the running backward needs, and who observes.

namespace vox::autograd {

class GradPlan;

/// Is told what happens on a thread's tape while it is set in `running`. vox::Watch (watch/watch.h) is one.
class Observer : public std::enable_shared_from_this<Observer> {
 public:
  virtual ~Observer() = default;
  /// An op was computed from `inputs`. Its node has its edges, but no outputs yet.
  virtual void reads(Node& node, std::span<const Tensor> inputs) = 0;
  /// An op has made `t` as the last output of `node` so far. It has not saved its tensors yet.
  virtual void recorded(Node& node, const Tensor& t) = 0;
  /// A run of the engine starts at `roots`, perhaps inside another run. `plan` is null in backward().
  virtual void began(const std::vector<Edge>& roots, const GradPlan* plan) = 0;
  /// `node` has all gradients of its outputs, after hooks.
  virtual void arrived(Node& node, const Gradients& gradients) = 0;
  /// It has returned the gradients of its inputs, and has released what the run frees.
  virtual void ran(Node& node, const Gradients& results) = 0;
  /// An exception ends the run: its text, and the number of the node that the engine had taken. ended()
  /// follows.
  virtual void failed(const char* error, uint64_t node) = 0;
  /// The run of the last began() ends, perhaps by an exception.
  virtual void ended() = 0;
};

struct Running {
  const GradPlan* plan = nullptr;  ///< of the vox::grad that runs; null in backward(), which needs all
  Observer* observer = nullptr;    ///< the innermost; null if there is none
};
inline thread_local Running running;

/// One run of the engine: sets the plan while it lives, and tells the observer that it found at its start.
class Run {
 public:
  Run(const std::vector<Edge>& roots, const GradPlan* plan) : outer_plan_(running.plan) {
    if (running.observer) {
      observer_ = running.observer->shared_from_this();  // a hook may end the Watch that owns it
      observer_->began(roots, plan);
    }
    running.plan = plan;
  }
  ~Run() {
    running.plan = outer_plan_;
    if (observer_) observer_->ended();
  }
  Run(const Run&) = delete;
  Run& operator=(const Run&) = delete;

  /// The engine has taken `node`, and runs its hooks next.
  void takes(const Node& node) { taken_ = node.number(); }
  void failed(const char* error) const {
    if (observer_) observer_->failed(error, taken_);
  }
  void arrived(Node& node, const Gradients& gradients) const {
    if (observer_) observer_->arrived(node, gradients);
  }
  void ran(Node& node, const Gradients& results) const {
    if (observer_) observer_->ran(node, results);
  }

 private:
  const GradPlan* outer_plan_;
  std::shared_ptr<Observer> observer_;
  uint64_t taken_ = 0;  // the node that the engine took last
};

}  // namespace vox::autograd
