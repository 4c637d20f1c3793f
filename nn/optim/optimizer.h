#pragma once

#include <map>
#include <string>
#include <vector>

#include <voxgrad/core/tensor.h>

namespace vox::optim {

/// Changes parameters according to their gradients. All optimisers work under no_grad() and element by
/// element, so every run gives the same bits. Parameters without a gradient do not change.
///
/// For bf16 and f16 parameters the formulas are computed, and the state is kept, in f32. (PyTorch keeps it in
/// the parameter's dtype, where a moment times 0.999 rounds back to itself.) Each update rounds the parameter
/// itself: changes below half a unit in its last place are lost. If that matters, keep f32 parameters and
/// cast in forward().
class Optimizer {
 public:
  /// What step() keeps between calls, by name: "0.momentum", "1.exp_avg", ..., "step", and "updates" (how
  /// often each parameter was updated).
  using State = std::map<std::string, Tensor>;

  /// Throws GradError unless all are leaves that require grad, ValueError for no parameters or duplicates.
  explicit Optimizer(std::vector<Tensor> parameters, double lr);
  virtual ~Optimizer() = default;
  Optimizer(const Optimizer&) = delete;
  Optimizer& operator=(const Optimizer&) = delete;

  void step();
  void zero_grad();

  double lr() const { return lr_; }
  void set_lr(double lr);

  /// Number of calls of step().
  int64_t steps() const { return steps_; }

  /// Copies of the state, for a checkpoint. The learning rate is not part of it: the program computes it from
  /// the number of steps (nn/optim/schedule.h).
  State state_dict() const;
  /// Restores a saved state. If it does not fit this kind of optimiser or the parameters' shapes, throws
  /// ValueError, ShapeError or DTypeError and changes nothing.
  void load_state_dict(const State& state);

 protected:
  /// Updates parameter `i`, given its gradient (f32 for a 16-bit parameter), for the updates(i)-th time
  /// (counted from 1).
  virtual void update(size_t i, Tensor parameter, const Tensor& gradient) = 0;

  /// Number of steps in which parameter i had a gradient.
  int64_t updates(size_t i) const { return updates_[i]; }

  /// Names of the buffers kept for each parameter.
  virtual std::vector<std::string> buffer_names() const = 0;

  /// Buffer `name` of parameter i; zeros before its first use. It has the dtype that ops on the parameter
  /// compute in.
  Tensor& buffer(const std::string& name, size_t i);

  /// parameter = shrink * parameter + scale * direction. A 16-bit parameter is rounded once, at the end.
  static void move(Tensor& parameter, const Tensor& direction, double scale, double shrink = 1);

 private:
  std::vector<Tensor> parameters_;
  std::map<std::string, std::vector<Tensor>> buffers_;
  std::vector<int64_t> updates_;
  double lr_;
  int64_t steps_ = 0;
};

/// Scales the gradients so that their common L2 norm is at most `max_norm`, and returns the norm before
/// scaling. The norm is summed in the order of `parameters`.
double clip_grad_norm_(const std::vector<Tensor>& parameters, double max_norm);

}  // namespace vox::optim
