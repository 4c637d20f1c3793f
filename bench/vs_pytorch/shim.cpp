#include <voxgrad/voxgrad.h>
#if __has_include(<voxgrad/ops/precision.h>)
#include <voxgrad/ops/precision.h>
#define VOX_BENCH_HAS_PRECISION 1
#else
#define VOX_BENCH_HAS_PRECISION 0
#endif

#include <algorithm>
#include <exception>
#include <limits>
#include <memory>
#include <string>
#include <vector>

// What bench/vs_pytorch.py loads (vs_pytorch/library.py): transposed convolutions through voxgrad's public
// API on memory that PyTorch owns, behind a plain C ABI. Every function returns null, or a message that is
// good until this thread's next call; no exception gets out.

extern "C" {

struct VoxBenchProblem {
  int64_t input[5];
  int64_t weight[5];
  int64_t stride[3], padding[3], output_padding[3], dilation[3];
  int64_t groups;
};

enum VoxBenchPass : int { forward, grad_input, grad_weight, step };
}

/// One pass of one problem, ready to run again and again. `results` are those of the last run: y; or grad_x;
/// or grad_weight, grad_bias; or for a step y, grad_x, grad_weight, grad_bias.
struct VoxBenchRun {
  VoxBenchPass pass;
  vox::Tensor x, weight, bias, y, gy;
  vox::ConvTranspose3dOptions options;
  std::vector<vox::Tensor> results;
  std::vector<const float*> poisoned;

  vox::Tensor transposed() const { return vox::conv_transpose3d(x, weight, bias, options); }

  std::vector<vox::Tensor> gradients(const vox::Tensor& of, const std::vector<vox::Tensor>& inputs,
                                     bool retain_graph) const {
    return vox::grad({of}, inputs, {.grad_outputs = {gy}, .retain_graph = retain_graph});
  }
};

namespace {

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

vox::Device device_of(int cuda) { return cuda ? vox::Device::cuda() : vox::Device::cpu(); }

vox::Triple triple(const int64_t (&v)[3]) { return {v[0], v[1], v[2]}; }

vox::Tensor borrow(float* data, const vox::Shape& shape, vox::Device device) {
  return vox::from_blob(data, shape, vox::contiguous_strides(shape), device);
}

/// Builds from before ops/precision.h compute everything at `highest`.
void set_precision([[maybe_unused]] const std::string& name, const char** computed) {
#if VOX_BENCH_HAS_PRECISION
  using enum vox::Float32Precision;
  vox::check<vox::ValueError>(name == "highest" || name == "high" || name == "medium", "precision: got ",
                              name, ", allowed are highest, high and medium");
  vox::set_float32_precision(name == "highest" ? highest : name == "high" ? high : medium);
  *computed = name == "highest" ? "highest" : name == "high" ? "high" : "medium";
#else
  *computed = "highest";
#endif
}

}  // namespace

extern "C" {

/// Sets how f32 is computed; `computed` becomes what this build will really compute.
const char* vox_bench_precision(const char* name, const char** computed) {
  return guarded([&] { set_precision(name, computed); });
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

/// Prepares a pass on dense f32 tensors, which the caller keeps alive until vox_bench_free. `bias` may be
/// null; `gy` is the output's gradient, not looked at by `forward`. Backward passes run one forward here.
const char* vox_bench_prepare(const VoxBenchProblem* p, VoxBenchPass pass, int cuda, float* x, float* weight,
                              float* bias, float* gy, VoxBenchRun** out) {
  return guarded([&] {
    const vox::Device device = device_of(cuda);
    auto run = std::make_unique<VoxBenchRun>();
    run->pass = pass;
    run->options = {.stride = triple(p->stride),
                    .padding = triple(p->padding),
                    .output_padding = triple(p->output_padding),
                    .groups = p->groups,
                    .dilation = triple(p->dilation)};
    const bool parameters = pass == grad_weight || pass == step;
    run->x = borrow(x, vox::Shape(p->input, p->input + 5), device);
    run->x.set_requires_grad(pass == grad_input || pass == step);
    run->weight = borrow(weight, vox::Shape(p->weight, p->weight + 5), device);
    run->weight.set_requires_grad(parameters);
    if (bias) {
      run->bias = borrow(bias, {p->weight[1] * p->groups}, device);
      run->bias.set_requires_grad(parameters);
    }
    if (pass != forward) {
      vox::Tensor y = run->transposed();
      run->gy = borrow(gy, y.shape(), device);
      if (pass != step) run->y = y;
    }
    *out = run.release();
  });
}

/// Runs the pass once; on a GPU it only submits it.
const char* vox_bench_run(VoxBenchRun* run) {
  return guarded([&] {
    run->results.clear();
    switch (run->pass) {
      case forward:
        run->results = {run->transposed()};
        break;
      case grad_input:
        run->results = run->gradients(run->y, {run->x}, true);
        break;
      case grad_weight:
        run->results = run->gradients(run->y, {run->weight, run->bias}, true);
        break;
      case step: {
        const vox::Tensor y = run->transposed();
        run->results = run->gradients(y, {run->x, run->weight, run->bias}, false);
        run->results.insert(run->results.begin(), y.detach());
        break;
      }
    }
  });
}

/// Writes NaN over the results and gives their memory back to the pool, which hands it out again.
const char* vox_bench_poison(VoxBenchRun* run) {
  return guarded([&] {
    run->poisoned.clear();
    for (const vox::Tensor& result : run->results) {
      result.detach().fill_(std::numeric_limits<float>::quiet_NaN());
      run->poisoned.push_back(result.data<float>());
    }
    run->results.clear();
  });
}

/// Copies result `index` into `to`, of as many elements; `was_poisoned` says whether it lies in memory that
/// held NaN before the run.
const char* vox_bench_result(const VoxBenchRun* run, int index, float* to, int* was_poisoned) {
  return guarded([&] {
    const vox::Tensor& result = run->results.at(index);
    borrow(to, result.shape(), result.device()).copy_(result.detach());
    *was_poisoned = std::count(run->poisoned.begin(), run->poisoned.end(), result.data<float>()) != 0;
  });
}

const char* vox_bench_free(VoxBenchRun* run) {
  return guarded([&] { delete run; });
}
}
