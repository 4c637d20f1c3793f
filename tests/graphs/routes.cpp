#include <memory>
#include <vector>

#include "capi/arguments.h"

// More of the C interface, for tests/graphs: the routes by which a graph can be computed. Statuses and
// handles are those of capi/tensors.cpp.

using namespace vox;

namespace {

thread_local std::vector<std::unique_ptr<AutocastGuard>> scopes;

std::vector<Tensor> taken(Tensor* const* handles, int64_t count) {
  std::vector<Tensor> list;
  for (int64_t i = 0; i < count; ++i) list.push_back(*std::unique_ptr<Tensor>(handles[i]));
  return list;
}

}  // namespace

extern "C" {

/// The caller's function: it owns the handles that it gets, and gives away those of `results`, which has room
/// for 64. It returns their number, or -1 if it failed.
using VoxgradFunction = int64_t (*)(Tensor* const* inputs, int64_t inputs_count, Tensor** results);

/// Tensor::backward, then the gradients that `leaves` have, which are taken from them; null for none.
VoxgradStatus voxgrad_backward(const Tensor* output, const Tensor* gradient, Tensor* const* leaves,
                               int64_t leaves_count, Tensor** results) {
  return guarded([&] {
    output->backward(*gradient);
    for (int64_t i = 0; i < leaves_count; ++i) {
      const Tensor g = leaves[i]->grad();
      results[i] = g.defined() ? new Tensor(g) : nullptr;
      leaves[i]->set_grad({});
    }
  });
}

/// vox::checkpoint. `function` must live as long as the results.
VoxgradStatus voxgrad_checkpoint(VoxgradFunction function, Tensor* const* inputs, int64_t inputs_count,
                                 Tensor** results, int64_t* count) {
  return guarded([&] {
    const auto f = [function](const std::vector<Tensor>& in) {
      std::vector<Tensor*> handles;
      for (const Tensor& t : in) handles.push_back(new Tensor(t));
      Tensor* out[64];
      const int64_t n = function(handles.data(), std::ssize(in), out);
      check<ValueError>(n >= 0, "voxgrad_checkpoint: the function failed");
      return taken(out, n);
    };
    const std::vector<Tensor> found = detail::checkpoint(f, capi::tensors_of(inputs, inputs_count));
    *count = std::ssize(found);
    for (const Tensor& t : found) *results++ = new Tensor(t);
  });
}

/// Begins a scope of vox::autocast, switched on or off; voxgrad_autocast_end() ends the latest.
VoxgradStatus voxgrad_autocast(const char* dtype_name, int enabled) {
  return guarded([&] {
    DType dtype;
    capi::read(dtype_name, dtype);
    scopes.push_back(std::make_unique<AutocastGuard>(enabled ? std::optional(dtype) : std::nullopt));
  });
}

VoxgradStatus voxgrad_autocast_end() {
  return guarded([&] { scopes.pop_back(); });
}

VoxgradStatus voxgrad_memory_in_use(const char* device_name, int64_t* bytes) {
  return guarded([&] {
    Device device;
    capi::read(device_name, device);
    *bytes = memory_stats(device).in_use;
  });
}

/// Captures `function`, which gets no inputs and gives no results, in a CUDA graph and replays it.
VoxgradStatus voxgrad_capture(VoxgradFunction function, int64_t replays) {
  return guarded([&] {
    const cuda::Graph graph(
        [&] { check<ValueError>(function(nullptr, 0, nullptr) == 0, "voxgrad_capture: failed"); });
    for (int64_t i = 0; i < replays; ++i) graph.replay();
    cuda::synchronize();
  });
}
}
