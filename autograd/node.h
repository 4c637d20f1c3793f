#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include <voxgrad/core/tensor.h>

// Note [The tape]
//
// Every recorded op makes a Node. The node is owned by the tensors that the op returned, and owns, through
// its edges, the nodes that made the op's inputs. Its number comes from one process-wide counter.
//
// An op's inputs exist before the op runs, and in-place writes are never recorded. So every edge leads to a
// lower number, and *descending numbers are reverse topological order*. The engine needs no graph-wide sort:
// it takes the highest number that has a gradient until none is left. The numbered nodes are the tape; shared
// ownership is its memory management.
//
//     x (leaf)            AccumulateGrad #1  <---- edge ----  Mul #2  <---- edge ----  Sum #3
//     y = x * x; z = y.sum()                                 owned by y               owned by z
//
// A node keeps the tensors for its backward in SavedTensor members (saved_tensor.h), which never own a node.
// So no cycle can arise.

namespace vox::autograd {

class Node;
class SavedTensor;

/// Deletes a node, and all nodes that it alone kept alive, without recursion and without allocating.
void reclaim(Node* node) noexcept;

/// The gradient of one tensor, or nothing if none has arrived or none is needed.
using Gradient = std::optional<Tensor>;
using Gradients = std::vector<Gradient>;

/// "Output number `output` of `node`": where a gradient is sent. Without a node, the gradient is not needed.
struct Edge {
  std::shared_ptr<Node> node;
  int64_t output = 0;
  friend bool operator==(const Edge&, const Edge&) = default;
};

/// Shape, dtype and device of an output when it was made. Its gradient must have the same.
struct TensorSpec {
  Shape shape;
  DType dtype;
  Device device;
  friend bool operator==(const TensorSpec&, const TensorSpec&) = default;
};
TensorSpec spec_of(const Tensor& t);

/// into += gradient. Adds in place, or keeps `gradient` itself, only if no other tensor shares the memory and
/// nothing is recorded. Otherwise it makes a new dense tensor. So no two gradients ever share memory.
void accumulate(Tensor& into, Tensor gradient);

/// What a program attached to one tensor: a name, hooks in order of registration, and the handles that retain
/// their gradient.
struct HookList {
  std::string name;
  std::map<int64_t, Hook> hooks;
  int64_t next_id = 0;  // never reused, so a stale number cannot remove another hook
  std::vector<std::weak_ptr<TensorImpl>> retained;
};

/// One recorded op: knows how to turn the gradients of its outputs into those of its inputs.
class Node : public std::enable_shared_from_this<Node> {
 public:
  Node();
  virtual ~Node() = default;
  Node(const Node&) = delete;
  Node& operator=(const Node&) = delete;

  /// The op's name, as `vox::tape` prints it.
  virtual const char* name() const = 0;

  /// Takes one optional gradient per output (at least one is present) and returns one per input. It consists
  /// of recorded ops, so that it can itself be differentiated, and computes only gradients for which
  /// needs_grad(i) is true.
  virtual Gradients backward(Gradients gradients) = 0;

  /// The name that Tensor::set_name gave to an output; "" if it has none.
  std::string output_name(int64_t output) const;

  /// Position on the tape.
  uint64_t number() const { return number_; }

  const std::vector<Edge>& edges() const { return edges_; }
  const std::vector<TensorSpec>& outputs() const { return outputs_; }
  const std::vector<SavedTensor*>& saved() const { return saved_; }
  /// The shape of input i, which requires grad.
  const Shape& input_shape(int64_t i) const;

  /// Whether the gradient of input i is needed in the backward that runs on this thread.
  bool needs_grad(int64_t i) const;

  /// f() if the gradient of input i is needed, else nothing:
  /// `return {if_needed(0, [&] { return g * b; }), ...};`
  template <class F>
  Gradient if_needed(int64_t i, F f) const {
    return needs_grad(i) ? Gradient(f()) : std::nullopt;
  }

  /// Sets the edges, one for each input: done once, by record(). Tells the observer of the inputs.
  void set_edges(std::vector<Edge> edges, std::span<const Tensor> inputs);

  /// Makes `t` the next output of this node. Tensors saved as outputs are saved after this.
  void add_output(const Tensor& t);

  /// Drops the saved tensors. The engine calls it after backward(), unless the graph is retained.
  void release();

  std::shared_ptr<HookList>& hooks(int64_t output);
  /// Runs the hooks of every output on its gradient.
  void run_hooks(Gradients& gradients);
  /// Adds the gradients into the grad() of the outputs that asked for it by retain_grad().
  void retain_gradients(const Gradients& gradients) const;

 protected:
  /// For AccumulateGrad: its output is the leaf, a tensor that exists already.
  void add_output_spec(const TensorSpec& spec) { outputs_.push_back(spec); }

 private:
  friend class SavedTensor;
  friend void reclaim(Node* node) noexcept;

  uint64_t number_;
  std::vector<Edge> edges_;
  std::vector<TensorSpec> outputs_;
  std::vector<std::shared_ptr<HookList>> hooks_;  // by output; mostly empty
  std::vector<SavedTensor*> saved_;               // members of the derived class
  Node* next_doomed_ = nullptr;                   // in the list of reclaim()
};

/// The names of the node's outputs, each with a blank in front: ` "y"`. Empty if they have none.
std::string quoted_names(const Node& node);
/// The node in messages: `mul #2`, or `mul #2 "y"` if its output has a name.
std::ostream& operator<<(std::ostream& out, const Node& node);

/// f(gradient), where f is a user's. Throws GradError if f writes into the gradient, because other nodes may
/// share its memory.
template <class F>
auto call_on_gradient(const char* what, const Node& node, const Tensor& gradient, F&& f) {
  const std::shared_ptr<Storage> storage = gradient.impl()->storage;
  const uint64_t version = storage->version();
  auto result = f(gradient);
  check<GradError>(storage->version() == version, what, node,
                   ": must not write into its gradient, which other ",
                   "parts of the graph may share; return a new tensor instead, such as g * 2");
  return result;
}

/// Makes a node. All nodes are made here, so that reclaim() deletes them all.
template <class N, class... Args>
std::shared_ptr<N> make_node(Args&&... args) {
  return std::shared_ptr<N>(new N(std::forward<Args>(args)...), [](N* node) { reclaim(node); });
}

}  // namespace vox::autograd
