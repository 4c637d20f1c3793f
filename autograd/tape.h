#pragma once

#include <string>

#include <voxgrad/core/tensor.h>

namespace vox {

/// The tape that leads to `output`, one line a node, in the order in which backward visits them: number, op,
/// output shapes, bytes of memory that its saved tensors keep alive, and the numbers of the nodes that its
/// gradients go to. For `(x * x).sum()` with x of shape (2, 3) in f32:
///
///     #3 sum             ()     saves 0 B  -> #2
///     #2 mul             (2,3)  saves 24 B  -> #1 #1
///     #1 AccumulateGrad  (2,3)  saves 0 B
///
/// A view keeps the whole memory of its base. Memory that several nodes keep is counted for each of them.
/// An undefined output, or one that is not on the tape, gives a line that says so.
std::string tape(const Tensor& output);

/// The same graph for Graphviz: `dot -Tsvg`.
std::string tape_dot(const Tensor& output);

}  // namespace vox
