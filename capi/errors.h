#pragma once

#include <stdexcept>

// What all functions of a C interface share. No exception leaves them: each returns a VoxgradStatus, and
// voxgrad_last_error() has the message.

namespace vox::capi {

/// The call cannot be written with voxgrad's interface: no error of an op, and no result either.
struct Inexpressible : std::runtime_error {
  using std::runtime_error::runtime_error;
};

}  // namespace vox::capi

extern "C" {

enum VoxgradStatus : int {
  voxgrad_ok,
  voxgrad_value_error,
  voxgrad_shape_error,
  voxgrad_dtype_error,
  voxgrad_device_error,
  voxgrad_grad_error,
  voxgrad_cuda_error,
  voxgrad_out_of_memory,
  voxgrad_error,          ///< any other vox::Error
  voxgrad_inexpressible,  ///< the call cannot be written with voxgrad's interface
  voxgrad_foreign_error   ///< an exception that is no vox::Error
};

/// The message of this thread's last call that failed; valid until the next one fails.
const char* voxgrad_last_error();
}

/// Keeps the message of the exception that is being handled, and returns its status.
VoxgradStatus voxgrad_caught() noexcept;

template <class F>
VoxgradStatus guarded(F f) noexcept {
  try {
    f();
    return voxgrad_ok;
  } catch (...) {
    return voxgrad_caught();
  }
}
