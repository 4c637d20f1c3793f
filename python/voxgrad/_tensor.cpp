#include <voxgrad/core/cuda_memory.h>
#include <voxgrad/core/dlpack_abi.h>
#include <voxgrad/voxgrad.h>

#include "capi/errors.h"

#include <algorithm>
#include <memory>
#include <optional>
#include <vector>

// Tensors that Python objects own, for python/voxgrad/_tensor.py: borrowed from other libraries and lent to
// them by DLPack. A handle is a vox::Tensor on the heap.

using namespace vox;

extern "C" {

/// Functions of Python. This library is not linked to it, so _tensor.py gives them.
struct VoxgradPython {
  int (*capsule_is_valid)(void* capsule, const char* name);
  void* (*capsule_pointer)(void* capsule, const char* name);
  int (*is_initialized)();
  int (*take_gil)();
  void (*release_gil)(int state);
  void (*decrease_reference)(void* object);
};
}

namespace {

VoxgradPython python;
thread_local std::vector<std::unique_ptr<cuda::StreamGuard>> streams;

template <class Managed>
void delete_unless_used(void* capsule, const char* name) {
  if (!python.capsule_is_valid(capsule, name)) return;
  auto* managed = static_cast<Managed*>(python.capsule_pointer(capsule, name));
  managed->deleter(managed);
}

}  // namespace

extern "C" {

/// Takes over a DLManagedTensor, or a DLManagedTensorVersioned, unless it fails.
VoxgradStatus voxgrad_tensor_borrow(void* managed, int versioned, Tensor** result) {
  return guarded([&] {
    *result = new Tensor(versioned ? from_dlpack(static_cast<DLManagedTensorVersioned*>(managed))
                                   : from_dlpack(static_cast<DLManagedTensor*>(managed)));
  });
}

/// Lends a result, which may be on a tape; the borrower must notice writes itself. A view of an operand,
/// whose memory the caller may free, is copied.
VoxgradStatus voxgrad_result_lend(const Tensor* t, Tensor* const* operands, int64_t count, void** managed) {
  return guarded([&] {
    const bool is_view = std::any_of(operands, operands + count, [&](const Tensor* operand) {
      return operand->impl()->storage == t->impl()->storage;
    });
    *managed = to_dlpack(is_view ? t->detach().clone() : t->detach());
  });
}

/// Whether anything but the handle refers to the memory: a tape that saved it, or a view.
int voxgrad_tensor_is_shared(const Tensor* t) { return t->impl()->storage.use_count() > 1; }

/// This thread's work on a device runs in another library's stream until voxgrad_leave_stream().
VoxgradStatus voxgrad_enter_stream(int device, void* stream) {
  return guarded([&] {
    streams.push_back(
        std::make_unique<cuda::StreamGuard>(cuda::Stream::borrow(stream, Device::cuda(device))));
  });
}
VoxgradStatus voxgrad_leave_stream() {
  return guarded([] { streams.pop_back(); });
}

/// Lends `t`, for use in *stream of its CUDA device unless `stream` is null.
VoxgradStatus voxgrad_tensor_lend(const Tensor* t, int versioned, void* const* stream, void** managed) {
  return guarded([&] {
    std::optional<cuda::StreamGuard> guard;
    if (stream != nullptr) {
      cuda::Stream borrower = cuda::Stream::borrow(*stream, t->device());
      borrower.wait(cuda::current_stream(t->device()));
      guard.emplace(borrower);
    }
    *managed = versioned ? static_cast<void*>(to_dlpack_versioned(*t)) : to_dlpack(*t);
  });
}

/// A dense copy of `t` on the CPU (-1) or a CUDA device.
VoxgradStatus voxgrad_tensor_copy(const Tensor* t, int device, Tensor** result) {
  return guarded([&] {
    const Device target = device < 0 ? Device::cpu() : Device::cuda(device);
    *result = new Tensor(t->device() == target ? t->clone() : t->to(target).contiguous());
  });
}

/// The CUDA device whose memory `data` points into.
VoxgradStatus voxgrad_device_of(const void* data, int* device) {
  return guarded([&] { *device = cuda::device_of("Tensor", data); });
}

/// The cudaStream_t in which this thread's work on a device runs.
VoxgradStatus voxgrad_current_stream(int device, void** stream) {
  return guarded([&] { *stream = cuda::current_stream(Device::cuda(device)).native_handle(); });
}

/// This thread's work on a device waits for that of another library in `stream`.
VoxgradStatus voxgrad_wait_for_stream(int device, void* stream) {
  return guarded([&] {
    const Device target = Device::cuda(device);
    cuda::current_stream(target).wait(cuda::Stream::borrow(stream, target));
  });
}

void voxgrad_set_python(const VoxgradPython* functions) { python = *functions; }

/// The deleter of what _tensor.py lends: its context is the Python object that keeps the memory.
void voxgrad_release_owner(DLManagedTensorVersioned* managed) {
  if (!python.is_initialized()) return;  // Python has ended, and its objects with it
  const int state = python.take_gil();
  python.decrease_reference(managed->manager_ctx);
  python.release_gil(state);
}

/// The destructor of capsules that hold what voxgrad_tensor_lend made. Borrowers rename those that they use.
void voxgrad_destroy_capsule(void* capsule) {
  delete_unless_used<DLManagedTensor>(capsule, "dltensor");
  delete_unless_used<DLManagedTensorVersioned>(capsule, "dltensor_versioned");
}
}
