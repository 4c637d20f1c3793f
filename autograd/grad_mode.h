#pragma once

namespace vox {

/// Whether ops on this thread are recorded.
bool grad_enabled();

/// Sets grad mode for this thread while it lives, and restores it after.
class GradModeGuard {
 public:
  explicit GradModeGuard(bool enabled);
  ~GradModeGuard();
  GradModeGuard(const GradModeGuard&) = delete;
  GradModeGuard& operator=(const GradModeGuard&) = delete;

 private:
  bool previous_;
};

/// Nothing is recorded while the guard lives, and in-place writes are allowed:
/// `auto guard = vox::no_grad();`
[[nodiscard]] inline GradModeGuard no_grad() { return GradModeGuard(false); }

/// The reverse, inside a no_grad() region.
[[nodiscard]] inline GradModeGuard enable_grad() { return GradModeGuard(true); }

}  // namespace vox
