#include "shim.h"

namespace bench {

std::optional<vox::DType> dtype_named(const std::string& name) {
  for (uint8_t i = 0; i < 32; ++i)
    if (name == vox::to_string(static_cast<vox::DType>(i))) return static_cast<vox::DType>(i);
  return {};
}

vox::Tensor borrow(void* data, vox::DType dtype, const vox::Shape& shape, vox::Device device) {
  return vox::detail::from_blob(data, dtype, shape, vox::contiguous_strides(shape), device, {});
}

vox::Tensor borrow(const VoxBenchTensor& t) {
  const std::optional<vox::DType> dtype = dtype_named(t.dtype);
  vox::check<vox::DTypeError>(dtype.has_value(), "bench: this build has no dtype ", t.dtype);
  const vox::Device device = t.cuda ? vox::Device::cuda() : vox::Device::cpu();
  vox::Tensor tensor = borrow(t.data, *dtype, vox::Shape(t.sizes, t.sizes + t.rank), device);
  if (t.requires_grad) tensor.set_requires_grad();
  return tensor;
}

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

namespace {

/// Sets the precision of f32. Does nothing for a 16-bit dtype, and returns false if this build does not have
/// it.
bool set_precision(const std::string& name) {
  using enum vox::Float32Precision;
  if (name == "bf16" || name == "f16") return dtype_named(name).has_value();
  vox::check<vox::ValueError>(name == "highest" || name == "high" || name == "medium", "precision: got ",
                              name, ", allowed are highest, high, medium, bf16 and f16");
  vox::set_float32_precision(name == "highest" ? highest : name == "high" ? high : medium);
  return true;
}

Task make(const std::string& benchmark, const Spec& spec) {
  if (benchmark == "level2") return level2(spec);
  if (benchmark == "network") return network(spec);
  if (benchmark == "conv") return conv(spec);
  vox::check<vox::ValueError>(benchmark == "memory_bound", "bench: no benchmark ", benchmark);
  return memory_bound(spec);
}

}  // namespace
}  // namespace bench

using bench::guarded;
using bench::Task;

extern "C" {

/// Sets how f32 is computed, or nothing for bf16 and f16; `exists` says whether this build has it.
const char* vox_bench_precision(const char* name, int* exists) {
  return guarded([&] { *exists = bench::set_precision(name); });
}

const char* vox_bench_threads(int threads) {
  return guarded([&] { vox::set_num_threads(threads); });
}

/// The cudaStream_t that voxgrad's ops of this process run in.
const char* vox_bench_stream(void** stream) {
  return guarded([&] { *stream = vox::cuda::current_stream().native_handle(); });
}

/// Bytes in use on the GPU, and their peak since the last call with `reset`.
const char* vox_bench_memory(int64_t* in_use, int64_t* peak, int reset) {
  return guarded([&] {
    if (reset) vox::cuda::reset_peak_memory_stats();
    const vox::cuda::MemoryStats stats = vox::cuda::memory_stats();
    *in_use = stats.in_use;
    *peak = stats.peak_in_use;
  });
}

/// Gives voxgrad's unused GPU memory back.
const char* vox_bench_empty_cache() {
  return guarded([] { vox::cuda::empty_cache(); });
}

/// Prepares a task on `operands`, which the caller keeps alive until vox_bench_task_free.
const char* vox_bench_task(const char* benchmark, const char* name, const char* pass, const int64_t* options,
                           int option_count, const VoxBenchTensor* operands, int count, Task** out) {
  return guarded([&] {
    bench::Spec spec{.name = name,
                     .pass = pass,
                     .options = {options, options + option_count},
                     .operands = {},
                     .names = {}};
    for (int i = 0; i < count; ++i) {
      spec.operands.push_back(bench::borrow(operands[i]));
      spec.names.push_back(operands[i].name ? operands[i].name : "");
    }
    *out = std::make_unique<Task>(bench::make(benchmark, spec)).release();
  });
}

/// Runs it once; on a GPU it only submits the work.
const char* vox_bench_task_run(Task* task) {
  return guarded([&] {
    task->results.clear();
    task->results = task->run();
  });
}

/// Copies result `index` of the last run into `to`, a tensor of its shape, and casts it to the dtype of `to`.
const char* vox_bench_task_result(const Task* task, int index, const VoxBenchTensor* to) {
  return guarded([&] {
    const vox::Tensor& result = task->results.at(index);
    vox::Tensor target = bench::borrow(*to);
    vox::check<vox::ShapeError>(target.shape() == result.shape(), "bench: result ", index, " is ",
                                result.shape(), ", expected ", target.shape());
    target.copy_(result.detach());
  });
}

/// The name of the convolution's kernel, or "", valid while the task is.
const char* vox_bench_task_kernel(const Task* task, const char** name) {
  return guarded([&] { *name = task->kernel.c_str(); });
}

const char* vox_bench_task_free(Task* task) {
  return guarded([&] { delete task; });
}
}
