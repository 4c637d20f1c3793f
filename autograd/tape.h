#pragma once

#include <string>

#include <voxgrad/core/tensor.h>

namespace vox {

/// The tape that leads to `output`, one line a node, in the order in which backward visits them: number, op,
/// output shapes, bytes of saved tensors, and the numbers of the nodes that its gradients go to.
///
///     #5 sum        ()      saves 0 B   -> #4
///     #4 mul        (2,3)   saves 48 B  -> #3 #3
///     #3 AccumulateGrad (2,3)
///
/// An undefined output, or one that is not on the tape, gives a line that says so.
std::string tape(const Tensor& output);

/// The same graph for Graphviz: `dot -Tsvg`.
std::string tape_dot(const Tensor& output);

}  // namespace vox
