#pragma once

#include <cstdint>
#include <ostream>
#include <string>

namespace vox {

struct TensorOptions;  // core/tensor.h

enum class DeviceType : uint8_t { cpu, cuda };

/// Where a tensor's memory lives. Devices are explicit: nothing moves or falls back silently.
struct Device {
  DeviceType type = DeviceType::cpu;
  int index = 0;

  static constexpr Device cpu() { return {DeviceType::cpu, 0}; }
  static constexpr Device cuda(int index = 0) { return {DeviceType::cuda, index}; }

  constexpr bool is_cpu() const { return type == DeviceType::cpu; }
  constexpr bool is_cuda() const { return type == DeviceType::cuda; }
  friend constexpr bool operator==(const Device&, const Device&) = default;

  /// f32 on this device: `vox::zeros({2, 3}, vox::Device::cuda())`.
  constexpr operator TensorOptions() const;
};

inline std::string to_string(Device device) {
  return device.is_cpu() ? "cpu" : "cuda:" + std::to_string(device.index);
}
inline std::ostream& operator<<(std::ostream& out, Device device) { return out << to_string(device); }

}  // namespace vox
