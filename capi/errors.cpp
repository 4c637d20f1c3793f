#include "errors.h"

#include <new>
#include <string>

#include <voxgrad/core/check.h>

namespace {

thread_local std::string last_error;

VoxgradStatus failed(VoxgradStatus status, const char* message) noexcept {
  try {
    last_error = message;
  } catch (...) {  // there is no memory for the message
    last_error.clear();
  }
  return status;
}

}  // namespace

VoxgradStatus voxgrad_caught() noexcept {
  try {
    throw;
  } catch (const vox::ShapeError& error) {
    return failed(voxgrad_shape_error, error.what());
  } catch (const vox::ValueError& error) {
    return failed(voxgrad_value_error, error.what());
  } catch (const vox::DTypeError& error) {
    return failed(voxgrad_dtype_error, error.what());
  } catch (const vox::DeviceError& error) {
    return failed(voxgrad_device_error, error.what());
  } catch (const vox::GradError& error) {
    return failed(voxgrad_grad_error, error.what());
  } catch (const vox::CudaError& error) {
    return failed(voxgrad_cuda_error, error.what());
  } catch (const vox::OutOfMemoryError& error) {
    return failed(voxgrad_out_of_memory, error.what());
  } catch (const vox::Error& error) {
    return failed(voxgrad_error, error.what());
  } catch (const vox::capi::Inexpressible& error) {
    return failed(voxgrad_inexpressible, error.what());
  } catch (const std::bad_alloc&) {
    return failed(voxgrad_out_of_memory, "voxgrad: no memory on the host");
  } catch (const std::exception& error) {
    return failed(voxgrad_foreign_error, error.what());
  } catch (...) {
    return failed(voxgrad_foreign_error, "voxgrad: an exception that is no std::exception");
  }
}

const char* voxgrad_last_error() { return last_error.c_str(); }
