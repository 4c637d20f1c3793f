#include <voxgrad/core/check.h>
#include <voxgrad/cuda/runtime/device.h>
#include <voxgrad/cuda/runtime/launch.h>

namespace vox::cuda {

namespace {

int index_of(const char* op, const Tensor& output) {
  detail::check_defined(op, "output", output);
  check<DeviceError>(output.device().is_cuda(), op, ": a CUDA kernel was given an output on ",
                     output.device());
  check_device(op, output.device().index);
  return output.device().index;
}

}  // namespace

Launch::Launch(const char* op, const Tensor& output, std::initializer_list<const Tensor*> others)
    : op_(op), guard_(op, index_of(op, output)) {
  DeviceState& device = device_state(op, guard_.index());
  StreamImpl& stream = current(op, guard_.index());
  for (const Tensor* t : others) {
    if (t && t->defined()) detail::check_same_device(op, *t, output);
  }
  note_use(device, output.impl()->storage->data(), stream);
  for (const Tensor* t : others) {
    if (t && t->defined()) note_use(device, t->impl()->storage->data(), stream);
  }
  stream_ = stream.handle();
  earlier_ = cudaGetLastError();  // also clears it, so that it is not taken for an error of this op
}

void Launch::uses(const Tensor& t) const {
  note_use(device_state(op_, guard_.index()), t.impl()->storage->data(), current(op_, guard_.index()));
}

void Launch::check() const { check(cudaGetLastError()); }

void Launch::check(cudaError_t code) const {
  if (code == cudaSuccess) [[likely]]
    return;
  (void)cudaGetLastError();
  throw CudaError(str(op_, ": CUDA refused the launch: ", describe(code),
                      code == earlier_ ? "; the same error was pending before this op began" : ""));
}

Workspace::Workspace(const Launch& launch, int64_t bytes) : launch_(launch), bytes_(bytes) {
  if (bytes == 0) return;
  const OutsideCapture outside;
  data_ = take_from_pool(launch.op_, device_state(launch.op_, launch.guard_.index()), bytes, launch.stream_);
}

Workspace::~Workspace() {
  if (!data_) return;
  const OutsideCapture outside;
  give_to_pool(device_state(launch_.op_, launch_.guard_.index()), data_, bytes_, launch_.stream_);
}

}  // namespace vox::cuda
