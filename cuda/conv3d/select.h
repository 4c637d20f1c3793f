#pragma once

#include <initializer_list>
#include <string_view>
#include <vector>

#include <voxgrad/core/dtype.h>
#include <voxgrad/cuda/conv3d/model/machine.h>
#include <voxgrad/cuda/conv3d/model/time.h>
#include <voxgrad/ops/conv3d_geometry.h>
#include <voxgrad/ops/precision.h>

namespace vox::cuda {

/// The three passes, each with kernels of its own.
enum class Conv3dPass { conv3d, conv_transpose3d, weight_grad };

/// What a choice of kernel depends on.
struct Conv3dProblem {
  Conv3dPass pass;
  Conv3dGeometry geometry;
  DType dtype;
  Float32Precision precision;

  friend bool operator==(const Conv3dProblem&, const Conv3dProblem&) = default;
};

/// The names of all kernels.
std::vector<std::string_view> conv3d_kernel_names();

/// A kernel that supports a problem: the work that the problem is for it, and the predicted time.
struct Conv3dCandidate {
  std::string_view kernel;
  conv::Work work;
  double microseconds;
};

/// The kernels that support the problem on a machine, the fastest by prediction first. It needs no GPU: the
/// machine may be described by hand.
std::vector<Conv3dCandidate> conv3d_candidates(const Conv3dProblem& problem, const conv::Machine& machine);

/// Whether the kernel is among them here. Throws ValueError for a name that is not in the table.
bool conv3d_kernel_supports(std::string_view name, const Conv3dProblem& problem);

/// The kernel that runs for the problem on this thread now: the forced one, or the first of the candidates.
/// Throws ValueError if the forced one does not support it.
std::string_view chosen_conv3d_kernel(const Conv3dProblem& problem);

/// For tests and benchmarks: while the guard lives, this thread computes the passes with the named kernel
/// only. A problem that it does not support is then a ValueError, as is a name that is not in the table.
class ForceConv3dKernel {
 public:
  explicit ForceConv3dKernel(std::string_view name,
                             std::initializer_list<Conv3dPass> passes = {
                                 Conv3dPass::conv3d, Conv3dPass::conv_transpose3d, Conv3dPass::weight_grad});
  ~ForceConv3dKernel();
  ForceConv3dKernel(const ForceConv3dKernel&) = delete;
  ForceConv3dKernel& operator=(const ForceConv3dKernel&) = delete;

 private:
  const void* previous_[3];  // entries of the table, one per pass; null: none is forced
};

}  // namespace vox::cuda
