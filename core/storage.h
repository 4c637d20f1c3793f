#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>

#include <voxgrad/core/device.h>

namespace vox {

/// A block of memory on one device, shared by all tensors that view it.
///
/// The version counts in-place writes. A tensor saved for backward remembers the version and throws if it has
/// changed since.
class Storage {
 public:
  /// Fresh memory: 64-byte aligned on the CPU, from the device's stream-ordered pool on CUDA.
  /// Throws OutOfMemoryError, or DeviceError where the device does not exist. 0 bytes are legal.
  static std::shared_ptr<Storage> allocate(int64_t bytes, Device device);

  /// Memory that the caller owns; `deleter(data)` runs when the last tensor on it is gone. In-place writes to
  /// read-only memory throw ValueError.
  static std::shared_ptr<Storage> adopt(void* data, int64_t bytes, Device device,
                                        std::function<void(void*)> deleter, bool read_only = false);

  Storage(const Storage&) = delete;
  Storage& operator=(const Storage&) = delete;
  ~Storage();

  void* data() const { return data_; }
  int64_t bytes() const { return bytes_; }
  Device device() const { return device_; }
  bool read_only() const { return read_only_; }

  uint64_t version() const { return version_.load(std::memory_order_relaxed); }
  void bump_version() { version_.fetch_add(1, std::memory_order_relaxed); }

 private:
  Storage(void* data, int64_t bytes, Device device, std::function<void(void*)> deleter, bool read_only)
      : data_(data), bytes_(bytes), device_(device), read_only_(read_only), deleter_(std::move(deleter)) {}

  void* data_;
  int64_t bytes_;
  Device device_;
  bool read_only_;
  std::atomic<uint64_t> version_{0};
  std::function<void(void*)> deleter_;  // empty for memory of our own allocator
};

}  // namespace vox
