#pragma once

#include <map>
#include <span>
#include <string>
#include <vector>

#include <voxgrad/core/tensor.h>
#include <voxgrad/ops/optimizer_step.h>

namespace vox::optim {

/// Changes parameters according to their gradients. All optimisers work under no_grad() and element by
/// element, so every run gives the same bits. Parameters without a gradient do not change, nor do those that
/// do not require grad (are frozen). If step() throws, nothing has changed, unless CUDA refused a launch,
/// which a lack of memory does not cause.
///
/// Parameters with options of their own make a group, with a learning rate of its own too:
///
///     optim::AdamW adam(weights, {.lr = 1e-3});
///     adam.add_group(biases, {.lr = 1e-3, .weight_decay = 0});
///
/// A step is a few kernels for all parameters together. The number of updates of each parameter is kept on
/// its device, so a replayed CUDA graph counts on. The learning rate, and steps(), are numbers on the host: a
/// graph repeats the learning rate of its capture.
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

  virtual ~Optimizer() = default;
  Optimizer(const Optimizer&) = delete;
  Optimizer& operator=(const Optimizer&) = delete;

  /// Throws GradError if no parameter that requires grad has a gradient, which means that backward() has not
  /// been called, or did not reach them.
  void step();
  void zero_grad();

  const std::vector<Tensor>& parameters() const { return parameters_; }

  size_t group_count() const { return lr_.size(); }
  /// The learning rate of a group; the constructor's parameters are group 0.
  double lr(size_t group = 0) const;
  void set_lr(Real lr);  ///< of all groups
  void set_lr(Real lr, size_t group);

  /// Number of calls of step(). Launches of a captured step are not counted here.
  int64_t steps() const { return steps_; }

  /// Copies of the state, for a checkpoint; "step" counts launches of a captured step too. The learning rate
  /// is not part of it: the program computes it from the number of steps (nn/optim/schedule.h).
  State state_dict() const;
  /// Restores a saved state. If it does not fit this kind of optimiser or the parameters' shapes, throws
  /// ValueError, ShapeError or DTypeError and changes nothing.
  void load_state_dict(const State& state);

 protected:
  Optimizer() = default;
  /// Adds a group. Throws GradError unless all are leaves, DTypeError unless floating, ValueError for none,
  /// duplicates, or a parameter several elements of which share one place in memory.
  void add_parameters(std::vector<Tensor> parameters, double lr);

  using Items = std::span<const detail::OptimizerItem>;
  /// Updates parameters of one group and device, with `buffers` in the order of buffer_names().
  virtual void update(size_t group, Device device, Items items) = 0;

  /// Names of the buffers kept for each parameter: zeros before its first update.
  virtual std::vector<std::string> buffer_names() const = 0;
  /// If false, the items of the group have no buffers.
  virtual bool needs_buffers(size_t /*group*/) const { return true; }

 private:
  detail::OptimizerItem item(size_t i);

  std::vector<Tensor> parameters_;
  std::vector<size_t> groups_;  // of each parameter
  std::vector<double> lr_;      // of each group
  std::map<std::string, std::vector<Tensor>> buffers_;
  Tensor numbers_;               // OptimizerItem::numbers
  std::vector<Tensor> updates_;  // number of steps in which parameter i had a gradient; undefined for none
  int64_t steps_ = 0;
};

struct ClipOptions {
  vox::detail::ByName by_name{};
  bool error_if_nonfinite = false;  ///< throw ValueError, and leave the gradients as they are
};
/// Multiplies the gradients by max_norm / (norm + 1e-6) if that is below 1, or NaN, where norm is the L2 norm
/// of all of them together, and returns the norm. Waits for the device.
double clip_grad_norm_(const std::vector<Tensor>& parameters, Real max_norm, const ClipOptions& options = {});
/// Limits each element of the gradients to [-clip_value, clip_value]; NaN stays NaN.
void clip_grad_value_(const std::vector<Tensor>& parameters, Real clip_value);

}  // namespace vox::optim
