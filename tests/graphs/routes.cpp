#include <memory>
#include <vector>

#include "capi/arguments.h"
#if VOXGRAD_HAS_DIST
#include <voxgrad/dist/data_parallel.h>
#include <voxgrad/dist/dist.h>
#endif

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

/// The gradients that leaves have, which are taken from them; null for none.
void take_gradients(Tensor* const* leaves, int64_t count, Tensor** results) {
  for (int64_t i = 0; i < count; ++i) {
    const Tensor g = leaves[i]->grad();
    results[i] = g.defined() ? new Tensor(g) : nullptr;
    leaves[i]->set_grad({});
  }
}

}  // namespace

extern "C" {

/// The caller's function: it owns the handles that it gets, and gives away those of `results`, which has room
/// for 64. It returns their number, or -1 if it failed.
using VoxgradFunction = int64_t (*)(Tensor* const* inputs, int64_t inputs_count, Tensor** results);

/// Tensor::backward, then take_gradients().
VoxgradStatus voxgrad_backward(const Tensor* output, const Tensor* gradient, Tensor* const* leaves,
                               int64_t leaves_count, Tensor** results) {
  return guarded([&] {
    output->backward(*gradient);
    take_gradients(leaves, leaves_count, results);
  });
}

#if VOXGRAD_HAS_DIST
/// vox::dist::init().
VoxgradStatus voxgrad_find_ranks() {
  return guarded([] { dist::init(); });
}

/// `function`, which gets no inputs and gives a loss, and its backward() by a vox::dist::DataParallel of the
/// leaves in many buckets; then take_gradients().
VoxgradStatus voxgrad_data_parallel(VoxgradFunction function, Tensor* const* leaves, int64_t count,
                                    Tensor** results) {
  return guarded([&] {
    std::vector<dist::DataParallel::Named> named;
    for (int64_t i = 0; i < count; ++i) named.emplace_back(str(i), *leaves[i]);
    dist::DataParallel parallel(named, {}, {.bucket_bytes = 256});
    Tensor* loss = nullptr;
    check<ValueError>(function(nullptr, 0, &loss) == 1, "voxgrad_data_parallel: the function failed");
    parallel.backward(taken(&loss, 1)[0]);
    take_gradients(leaves, count, results);
  });
}
#endif

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
