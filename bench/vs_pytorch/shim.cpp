#include "../common/shim.h"

#include <algorithm>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <vector>

// Transposed convolutions through voxgrad's public interface, behind the C ABI of common/shim.h.

extern "C" {

struct VoxBenchProblem {
  int64_t input[5];
  int64_t weight[5];
  int64_t stride[3], padding[3], output_padding[3], dilation[3];
  int64_t groups;
};

enum VoxBenchPass : int { forward, grad_input, grad_weight, step };
}

/// One pass of one problem, ready to run repeatedly. `results` are those of the last run: y; or grad_x; or
/// grad_weight, grad_bias; or for a step y, grad_x, grad_weight, grad_bias.
struct VoxBenchRun {
  VoxBenchPass pass;
  vox::Tensor x, weight, bias, y, gy;
  vox::ConvTranspose3dOptions options;
  std::vector<vox::Tensor> results;
  std::vector<const void*> poisoned;

  vox::Tensor transposed() const { return vox::conv_transpose3d(x, weight, bias, options); }

  std::vector<vox::Tensor> gradients(const vox::Tensor& of, const std::vector<vox::Tensor>& inputs,
                                     bool retain_graph) const {
    return vox::grad({of}, inputs, {.grad_outputs = {gy}, .retain_graph = retain_graph});
  }
};

using bench::borrow;
using bench::guarded;

namespace {

vox::Triple triple(const int64_t (&v)[3]) { return {v[0], v[1], v[2]}; }

const void* address(const vox::Tensor& t) { return t.impl()->data(); }

}  // namespace

extern "C" {

/// Prepares a pass on dense tensors of the dtype (f32, bf16, f16), which the caller keeps alive until
/// vox_bench_free. `bias` may be null; `gy` is the output's gradient, not looked at by `forward`. Backward
/// passes run one forward here.
const char* vox_bench_prepare(const VoxBenchProblem* p, VoxBenchPass pass, int cuda, const char* dtype_name,
                              void* x, void* weight, void* bias, void* gy, VoxBenchRun** out) {
  return guarded([&] {
    const vox::Device device = cuda ? vox::Device::cuda() : vox::Device::cpu();
    const std::optional<vox::DType> found = bench::dtype_named(dtype_name);
    vox::check<vox::DTypeError>(found.has_value(), "prepare: this build has no dtype ", dtype_name);
    const vox::DType dtype = *found;
    auto run = std::make_unique<VoxBenchRun>();
    run->pass = pass;
    run->options = {.stride = triple(p->stride),
                    .padding = triple(p->padding),
                    .output_padding = triple(p->output_padding),
                    .groups = p->groups,
                    .dilation = triple(p->dilation)};
    const bool parameters = pass == grad_weight || pass == step;
    run->x = borrow(x, dtype, vox::Shape(p->input, p->input + 5), device);
    run->x.set_requires_grad(pass == grad_input || pass == step);
    run->weight = borrow(weight, dtype, vox::Shape(p->weight, p->weight + 5), device);
    run->weight.set_requires_grad(parameters);
    if (bias) {
      run->bias = borrow(bias, dtype, {p->weight[1] * p->groups}, device);
      run->bias.set_requires_grad(parameters);
    }
    if (pass != forward) {
      vox::Tensor y = run->transposed();
      run->gy = borrow(gy, dtype, y.shape(), device);
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
      run->poisoned.push_back(address(result));
    }
    run->results.clear();
  });
}

/// Copies result `index` into `to`, which has as many elements. `was_poisoned` says whether its memory held
/// NaN before the run.
const char* vox_bench_result(const VoxBenchRun* run, int index, void* to, int* was_poisoned) {
  return guarded([&] {
    const vox::Tensor& result = run->results.at(index);
    borrow(to, result.dtype(), result.shape(), result.device()).copy_(result.detach());
    *was_poisoned = std::count(run->poisoned.begin(), run->poisoned.end(), address(result)) != 0;
  });
}

const char* vox_bench_free(VoxBenchRun* run) {
  return guarded([&] { delete run; });
}
}
