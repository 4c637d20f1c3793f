#include <voxgrad/ops/conv3d_kernel.h>

namespace vox {

namespace {
thread_local std::array<std::string_view, 3> forced;  // by pass; the guards own the names
}  // namespace

const char* to_string(Conv3dPass pass) {
  constexpr const char* names[]{"conv3d", "conv_transpose3d", "conv3d_weight_grad"};
  return names[static_cast<size_t>(pass)];
}

ForceConv3dKernel::ForceConv3dKernel(std::string_view name, std::initializer_list<Conv3dPass> passes)
    : name_(name), previous_(forced) {
  for (const Conv3dPass pass : passes) forced[static_cast<size_t>(pass)] = name_;
}

ForceConv3dKernel::~ForceConv3dKernel() { forced = previous_; }

std::string_view forced_conv3d_kernel(Conv3dPass pass) { return forced[static_cast<size_t>(pass)]; }

}  // namespace vox
