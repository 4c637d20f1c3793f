#pragma once

#include <set>
#include <string>
#include <vector>

#include <voxgrad/autograd/node.h>

namespace vox {

/// The tape that leads to `output`, one line a node, in the order in which backward visits them: number, op,
/// output names and shapes, bytes of memory that its saved tensors keep alive, and the numbers of the nodes
/// that its gradients go to. For `(x * x * 2).sum()` with x of shape (2, 3) in f32 and x.set_name("x"):
///
///     #4 sum                 ()     saves 0 B  -> #3
///     #3 mul                 (2,3)  saves 0 B  -> #2
///     #2 mul                 (2,3)  saves 24 B  -> #1 #1
///     #1 AccumulateGrad "x"  (2,3)  saves 0 B
///
/// A last line explains the columns. A view keeps the whole memory of its base. Memory that several nodes
/// keep is counted for each of them. An undefined output, or one that is not on the tape, gives a line that
/// says so.
std::string tape(const Tensor& output);

namespace autograd {
/// All nodes that `root` leads to, highest number first. `root` keeps them alive.
std::vector<Node*> nodes_of(const Edge& root);

/// The memory that the node's saved tensors keep alive, each block once.
std::set<const Storage*> saved_memory(const Node& node);

/// What a line of the tape says about its node.
struct TapeLine {
  explicit TapeLine(const Node* node);
  const Node* node;
  std::string title, shapes;  ///< the op with its outputs' names, and their shapes
  int64_t saved_bytes = 0;
};
}  // namespace autograd

}  // namespace vox
