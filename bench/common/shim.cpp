#include "shim.h"

#include <limits>

namespace bench {

Task differentiate(const Spec& spec, const Forward& forward) {
  if (spec.pass == "forward")
    return {[=] {
      const auto guard = vox::no_grad();
      return Tensors{forward(spec.operands)};
    }};
  vox::check<vox::ValueError>(spec.pass == "backward" || spec.pass == "step", "bench: pass ", spec.pass,
                              ", allowed are forward, backward and step");
  Tensors wanted;
  for (const vox::Tensor& operand : spec.operands)
    if (operand.requires_grad()) wanted.push_back(operand);
  const vox::Tensor gy = spec.operands.back();
  if (spec.pass == "step")
    return {[=] { return vox::grad({forward(spec.operands)}, wanted, {.grad_outputs = {gy}}); }};
  const vox::Tensor y = forward(spec.operands);
  return {[=] { return vox::grad({y}, wanted, {.grad_outputs = {gy}, .retain_graph = true}); }};
}

std::shared_ptr<vox::optim::Optimizer> optimiser(const std::string& name, Tensors parameters) {
  using namespace vox::optim;
  if (name == "adam") return std::make_shared<Adam>(std::move(parameters));
  if (name == "adamw") return std::make_shared<AdamW>(std::move(parameters));
  vox::check<vox::ValueError>(name == "sgd", "bench: no optimiser ", name);
  return std::make_shared<SGD>(
      std::move(parameters),
      SGD::Options{.lr = 1e-2, .momentum = 0.99, .weight_decay = 3e-5, .nesterov = true});
}

Task optimiser_step(const Spec& spec) {
  const size_t count = spec.operands.size() / 2;
  Tensors parameters;
  for (size_t i = 0; i < count; ++i) {
    parameters.push_back(spec.operands[i].clone().set_requires_grad());
    parameters.back().set_grad(spec.operands[count + i]);
  }
  return {[parameters, optimiser = optimiser(spec.name, parameters)] {
    optimiser->step();
    return parameters;
  }};
}

namespace {

Task make(const std::string& benchmark, const Spec& spec) {
  if (benchmark == "network") return network(spec);
  if (benchmark == "conv") return conv(spec);
  vox::check<vox::ValueError>(benchmark == "optimiser", "bench: no benchmark ", benchmark);
  return optimiser_step(spec);
}

}  // namespace
}  // namespace bench

using bench::Task;

extern "C" {

/// Sets how f32 is computed.
VoxgradStatus voxgrad_bench_precision(const char* name) {
  return guarded([&] {
    using enum vox::Float32Precision;
    vox::set_float32_precision(vox::capi::named<vox::Float32Precision>(
        name, {{"highest", highest}, {"high", high}, {"medium", medium}}));
  });
}

/// The cudaStream_t that voxgrad's ops of this process run in.
VoxgradStatus voxgrad_bench_stream(void** stream) {
  return guarded([&] { *stream = vox::cuda::current_stream().native_handle(); });
}

/// Bytes in use on the GPU, and their peak since the last call with `reset`.
VoxgradStatus voxgrad_bench_memory(int64_t* in_use, int64_t* peak, int reset) {
  return guarded([&] {
    if (reset) vox::cuda::reset_peak_memory_stats();
    const vox::cuda::MemoryStats stats = vox::cuda::memory_stats();
    *in_use = stats.in_use;
    *peak = stats.peak_in_use;
  });
}

/// Gives voxgrad's unused GPU memory back.
VoxgradStatus voxgrad_bench_empty_cache() {
  return guarded([] { vox::cuda::empty_cache(); });
}

/// Prepares a task on `operands`, whose memory the caller keeps alive until voxgrad_bench_task_free.
VoxgradStatus voxgrad_bench_task(const char* benchmark, const char* name, const char* pass,
                                 const int64_t* options, int option_count, vox::Tensor* const* operands,
                                 const char* const* names, int count, Task** out) {
  return guarded([&] {
    const bench::Spec spec{.name = name,
                           .pass = pass,
                           .options = {options, options + option_count},
                           .operands = vox::capi::tensors_of(operands, count),
                           .names = {names, names + count}};
    *out = std::make_unique<Task>(bench::make(benchmark, spec)).release();
  });
}

/// Prepares a pass of a program on `operands`, of which the last is the gradient of y, except in "forward".
/// The caller keeps their memory and `steps` alive until voxgrad_bench_task_free.
VoxgradStatus voxgrad_bench_program(const char* pass, const VoxgradStep* steps, int step_count,
                                    vox::Tensor* const* operands, int count, Task** out) {
  return guarded([&] {
    const bench::Spec spec{.name = "program",
                           .pass = pass,
                           .options = {},
                           .operands = vox::capi::tensors_of(operands, count),
                           .names = {}};
    const size_t inputs = spec.operands.size() - (spec.pass == "forward" ? 0 : 1);
    const bench::Program program(steps, step_count, inputs);
    const auto forward = [=](const bench::Tensors& t) {
      return program({t.begin(), t.begin() + static_cast<std::ptrdiff_t>(inputs)});
    };
    *out = std::make_unique<Task>(bench::differentiate(spec, forward)).release();
  });
}

/// Runs it once; on a GPU it only submits the work.
VoxgradStatus voxgrad_bench_task_run(Task* task) {
  return guarded([&] {
    task->results.clear();
    task->results = task->run();
  });
}

/// Copies result `index` of the last run into `to`, a tensor of its shape, and casts it to the dtype of `to`.
VoxgradStatus voxgrad_bench_task_result(const Task* task, int index, vox::Tensor* to) {
  return guarded([&] {
    const vox::Tensor& result = task->results.at(index);
    vox::check<vox::ShapeError>(to->shape() == result.shape(), "bench: result ", index, " is ",
                                result.shape(), ", expected ", to->shape());
    to->copy_(result.detach());
  });
}

/// Where result `index` of the last run lies.
VoxgradStatus voxgrad_bench_task_address(const Task* task, int index, const void** address) {
  return guarded([&] { *address = task->results.at(index).impl()->data(); });
}

/// Writes NaN over the results and gives their memory back to the pool, which hands it out again: so
/// vs_pytorch sees that a run writes all of them.
VoxgradStatus voxgrad_bench_task_poison(Task* task) {
  return guarded([&] {
    for (const vox::Tensor& result : task->results)
      result.detach().fill_(std::numeric_limits<float>::quiet_NaN());
    task->results.clear();
  });
}

/// The name of the convolution's kernel, or "", valid while the task is.
VoxgradStatus voxgrad_bench_task_kernel(const Task* task, const char** name) {
  return guarded([&] { *name = task->kernel.c_str(); });
}

VoxgradStatus voxgrad_bench_task_free(Task* task) {
  return guarded([&] { delete task; });
}
}
