#include <voxgrad/autograd/grad_mode.h>

namespace vox {

namespace {
thread_local bool enabled_on_this_thread = true;
}

bool grad_enabled() { return enabled_on_this_thread; }

GradModeGuard::GradModeGuard(bool enabled) : previous_(enabled_on_this_thread) {
  enabled_on_this_thread = enabled;
}
GradModeGuard::~GradModeGuard() { enabled_on_this_thread = previous_; }

}  // namespace vox
