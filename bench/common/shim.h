#pragma once

#include <voxgrad/voxgrad.h>

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "capi/arguments.h"
#include "capi/ops.h"

// What the shims of all benchmarks share. They make one library, libvoxgrad_bench.so, which library.py loads:
// voxgrad's public interface on memory that PyTorch owns, behind a plain C ABI (capi/errors.h).

extern "C" {

/// An op of a program. Its arguments may be results: first the program's operands, then those of the steps.
struct VoxgradStep {
  const char* op;
  int64_t count;
  const VoxgradArgument* arguments;
};
}

namespace bench {

using Tensors = std::vector<vox::Tensor>;
using Forward = std::function<vox::Tensor(const Tensors&)>;

/// Work that is prepared and can be run repeatedly.
struct Task {
  std::function<Tensors()> run;  ///< on a GPU it only submits the work
  std::string kernel = {};       ///< the kernel that the conv3d table chose, if known
  Tensors results = {};          ///< of the last run
};

/// What a task is made of. `operands` share the memory of the caller's tensors.
struct Spec {
  std::string name, pass;
  std::vector<int64_t> options;
  Tensors operands;
  std::vector<std::string> names;  ///< of the operands, in a network's state
};

Task network(const Spec& spec);         ///< a training step; networks/shim.cpp
Task conv(const Spec& spec);            ///< one convolution; conv.cpp
Task optimiser_step(const Spec& spec);  ///< half of the operands are parameters, the others their gradients

/// Ops by name, one after another; the last one's result is that of the program. The caller keeps `steps`.
class Program {
 public:
  Program(const VoxgradStep* steps, int64_t count, size_t operands);
  vox::Tensor operator()(Tensors operands) const;

 private:
  struct Step {
    vox::capi::Op op;
    std::vector<VoxgradArgument> arguments;
    std::vector<size_t> dropped;  ///< places of results that no later step uses
  };
  std::vector<Step> steps_;
};

/// `forward` of the operands as a task. The pass "forward" records nothing and results in y. "backward" runs
/// forward once, here, and results in the gradients of the operands that require grad; "step" does both each
/// time. In these two the last operand is the gradient of y.
Task differentiate(const Spec& spec, const Forward& forward);

/// "sgd", "adam" or "adamw", with the options of optimisers.py.
std::shared_ptr<vox::optim::Optimizer> optimiser(const std::string& name, Tensors parameters);

}  // namespace bench
