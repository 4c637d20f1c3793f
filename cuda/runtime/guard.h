#pragma once

#include <cuda_runtime_api.h>

#include <voxgrad/cuda/runtime/error.h>

namespace vox::cuda {

/// Makes device `index` current for this thread while it lives.
class DeviceGuard {
 public:
  DeviceGuard(const char* op, int index) : index_(index), previous_(index) {
    check_cuda(op, cudaGetDevice(&previous_));
    if (previous_ != index_) check_cuda(op, cudaSetDevice(index_));
  }
  ~DeviceGuard() {
    if (previous_ != index_) ignore_error(cudaSetDevice(previous_));
  }
  DeviceGuard(const DeviceGuard&) = delete;
  DeviceGuard& operator=(const DeviceGuard&) = delete;

  int index() const { return index_; }

 private:
  int index_;
  int previous_;
};

/// While this thread (or, with cudaStreamCaptureModeGlobal, any thread) captures a graph, CUDA refuses calls
/// that might affect the capture, and invalidates the capture. Our own bookkeeping does not affect it; this
/// guard tells CUDA so.
class OutsideCapture {
 public:
  OutsideCapture() { ignore_error(cudaThreadExchangeStreamCaptureMode(&mode_)); }
  ~OutsideCapture() { ignore_error(cudaThreadExchangeStreamCaptureMode(&mode_)); }
  OutsideCapture(const OutsideCapture&) = delete;
  OutsideCapture& operator=(const OutsideCapture&) = delete;

 private:
  cudaStreamCaptureMode mode_ = cudaStreamCaptureModeRelaxed;
};

}  // namespace vox::cuda
