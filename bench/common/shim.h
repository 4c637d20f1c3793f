#pragma once

#include <voxgrad/voxgrad.h>

#include <exception>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

// What the shims of all benchmarks share. They make one library, libvoxgrad_bench.so, which library.py loads:
// voxgrad's public interface on memory that PyTorch owns, behind a plain C ABI. Every exported function
// returns null, or a message that is valid until this thread's next call; no exception leaves it.

extern "C" {

/// A dense tensor in memory that the caller owns.
struct VoxBenchTensor {
  void* data;
  const char* name;   ///< in a network's state; else null
  const char* dtype;  ///< "f32", "bf16", ...
  int64_t rank, sizes[8];
  int cuda, requires_grad;
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
  std::vector<std::string> names;  ///< of the operands
};

// Each is defined in the shim.cpp of one benchmark, except conv, which is in common/conv.cpp.
Task level2(const Spec& spec);
Task network(const Spec& spec);
Task conv(const Spec& spec);
Task memory_bound(const Spec& spec);

/// `forward` of the operands as a task. The pass "forward" records nothing and results in y. "backward" runs
/// forward once, here, and results in the gradients of the operands that require grad; "step" does both each
/// time. In these two the last operand is the gradient of y.
Task differentiate(const Spec& spec, const Forward& forward);

/// "sgd", "adam" or "adamw", with the options of optimisers.py.
std::shared_ptr<vox::optim::Optimizer> optimiser(const std::string& name, Tensors parameters);

/// The dtype of this name, if this build has it.
std::optional<vox::DType> dtype_named(const std::string& name);

vox::Tensor borrow(void* data, vox::DType dtype, const vox::Shape& shape, vox::Device device);
vox::Tensor borrow(const VoxBenchTensor& tensor);

template <class F>
const char* guarded(F f) noexcept {
  static thread_local std::string message;
  try {
    f();
    return nullptr;
  } catch (const std::exception& error) {
    message = error.what();
  } catch (...) {
    message = "an exception that is no std::exception";
  }
  return message.c_str();
}

}  // namespace bench
