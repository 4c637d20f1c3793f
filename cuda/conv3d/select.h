#pragma once

#include <string_view>
#include <vector>

#include <voxgrad/core/dtype.h>
#include <voxgrad/cuda/conv3d/model/machine.h>
#include <voxgrad/cuda/conv3d/model/time.h>
#include <voxgrad/ops/conv3d_geometry.h>
#include <voxgrad/ops/conv3d_kernel.h>
#include <voxgrad/ops/precision.h>

namespace vox::cuda {

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

/// A kernel that supports a problem: the work that the problem is for it, what that work costs it, and the
/// predicted time.
struct Conv3dCandidate {
  std::string_view kernel;
  conv::Work work;
  conv::Prices price;
  double microseconds;
};

/// The kernels that support the problem on a machine, the fastest by prediction first. It needs no GPU: the
/// machine may be described by hand.
std::vector<Conv3dCandidate> conv3d_candidates(const Conv3dProblem& problem, const conv::Machine& machine);

/// Whether the kernel is for Hopper only. Throws ValueError for a name that is not in the table.
bool conv3d_kernel_needs_wgmma(std::string_view name);

/// Whether the kernel is among them here. Throws ValueError for a name that is not in the table.
bool conv3d_kernel_supports(std::string_view name, const Conv3dProblem& problem);

/// The kernel that runs for the problem on this thread now: the forced one (ForceConv3dKernel), or the first
/// of the candidates. Throws ValueError if the forced one is not in the table or does not support the
/// problem.
std::string_view chosen_conv3d_kernel(const Conv3dProblem& problem);

}  // namespace vox::cuda
