#pragma once

#include <voxgrad/core/tensor.h>

struct DLManagedTensor;           // defined by core/dlpack_abi.h, or by DLPack's own dlpack.h
struct DLManagedTensorVersioned;  // the same with a version and flags, from DLPack 1.0 on

namespace vox {

// Note [DLPack]
//
// DLPack (https://dmlc.github.io/dlpack) is the C structure by which NumPy, PyTorch, JAX, CuPy and others
// lend each other the memory of a tensor. Nothing is copied: both sides see each other's writes. The
// structure has a deleter, which the borrower calls when it no longer needs the memory.
//
// On CUDA work is ordered by streams, which the structure does not mention:
//  - a lender's memory is written when the borrower's stream has waited for the lender's. Both sides of
//    Python's __dlpack__ protocol agree on a stream; in C++ call Stream::wait;
//  - memory that voxgrad lends is reused only after the work of the streams in which it was used. voxgrad
//    knows its own streams. If a borrower works in another one, make that stream current (StreamGuard) when
//    you call to_dlpack;
//  - memory that voxgrad borrowed is given back when the device has done all its work.

/// Lends the memory of `t`, with its strides. The memory lives until the result's deleter has run, whatever
/// becomes of `t`. Throws ValueError for an undefined tensor and for read-only memory, which this structure
/// cannot describe; GradError if `t` requires grad, because the tape would not see the borrower's writes
/// (lend `t.detach()`).
DLManagedTensor* to_dlpack(const Tensor& t);

/// The same as DLPack 1.0, for read-only memory as well.
DLManagedTensorVersioned* to_dlpack_versioned(const Tensor& t);

/// A tensor on borrowed memory: of the CPU, of a CUDA device, or of the host as allocated by CUDA, which
/// becomes a CPU tensor. The deleter of `managed` runs when the last tensor on the memory is gone; if
/// from_dlpack throws, `managed` remains the caller's. Bools must be 0 or 1.
///
/// Throws DTypeError and DeviceError, with its name, for a dtype or device that voxgrad does not have;
/// ShapeError for negative sizes or strides, more than 8 dimensions, and sizes beyond 64 bits; ValueError for
/// null pointers and memory that is not aligned to the dtype.
Tensor from_dlpack(DLManagedTensor* managed);

/// The same for DLPack 1.x; ValueError for other versions. In-place writes to read-only memory throw
/// ValueError.
Tensor from_dlpack(DLManagedTensorVersioned* managed);

}  // namespace vox
