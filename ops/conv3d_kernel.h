#pragma once

#include <array>
#include <initializer_list>
#include <string>
#include <string_view>

namespace vox {

/// The three passes of the conv3d family. A device may compute each with another kernel.
enum class Conv3dPass { conv3d, conv_transpose3d, weight_grad };

const char* to_string(Conv3dPass pass);

/// For tests and benchmarks: while the guard lives, this thread computes the passes with the named kernel
/// only, or, where its arithmetic fails, with those that redo its work. The CPU has "winograd", "tiled" and
/// "direct" (ops/cpu/conv3d/README.md); CUDA's are in the table of cuda/conv3d/select.cpp. A pass throws
/// ValueError if its device has no kernel of that name, or if the kernel does not support the problem. An
/// empty name forces none. Guards nest.
class ForceConv3dKernel {
 public:
  explicit ForceConv3dKernel(std::string_view name,
                             std::initializer_list<Conv3dPass> passes = {
                                 Conv3dPass::conv3d, Conv3dPass::conv_transpose3d, Conv3dPass::weight_grad});
  ~ForceConv3dKernel();
  ForceConv3dKernel(const ForceConv3dKernel&) = delete;
  ForceConv3dKernel& operator=(const ForceConv3dKernel&) = delete;

 private:
  std::string name_;
  std::array<std::string_view, 3> previous_;
};

/// The name of the kernel that this thread must use for the pass; empty if none is forced.
std::string_view forced_conv3d_kernel(Conv3dPass pass);

}  // namespace vox
