#pragma once

#include <cuda.h>

#include <array>
#include <cstdint>

#include <voxgrad/core/dtype.h>

namespace vox::cuda::ptx {

/// A dense tensor of rank 5 in global memory, and the boxes that TMA loads of it. The axis that
/// is contiguous in memory comes first.
struct BoxesOfTensor {
  std::array<int64_t, 5> extents;
  std::array<int64_t, 5> box;                  ///< elements that a copy loads, at most 256 along an axis
  std::array<int64_t, 5> step{1, 1, 1, 1, 1};  ///< from one of them to the next, at most 8; the first is 1
};

/// What tensor_copy (tensor_copy.cuh) needs to know of the tensor at `data`. The box's first axis is 128
/// bytes long, one row in shared memory, whose granules of 16 bytes are swizzled. Elements outside the tensor
/// arrive as zeros. Kernels take the map as a `const __grid_constant__` argument. `data` and the bytes of the
/// first axis are multiples of 16. Errors name `op`.
CUtensorMap tensor_map(const char* op, const void* data, DType dtype, const BoxesOfTensor& boxes);

}  // namespace vox::cuda::ptx
