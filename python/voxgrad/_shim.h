#pragma once

// What the functions of the C interface share. No exception leaves them: each returns a VoxgradStatus, and
// voxgrad_last_error() has the message.

extern "C" enum VoxgradStatus : int {
  voxgrad_ok,
  voxgrad_value_error,
  voxgrad_type_error,
  voxgrad_out_of_memory,
  voxgrad_runtime_error
};

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
